// The reads of an agent with the manifest beside this file, and their expected answers.

import { readFileSync } from 'node:fs';
import { join } from 'node:path';

const MANIFEST = JSON.parse(readFileSync(join(import.meta.dirname, 'manifest.json'), 'utf8'));

/** A definition as listed: without its contents. */
function listed({ contents, template, messages, completions, ...definition }) {
    if (contents) definition.size = size(contents[0]);
    if (definition.arguments) definition.arguments = definition.arguments.map(listed);
    return definition;
}

const size = ({ text, blob }) => Buffer.from(text ?? blob, text === undefined ? 'base64' : 'utf8').length;

const EXACT = { uri: 'test://static-text', mimeType: 'text/plain' };
const TEMPLATED = { uri: 'test://template/a%20%22b%22/data', mimeType: 'application/json' };

/** The names of all tools: each prompt is one. */
const TOOLS = ['list_resources', 'read_resource', 'list_prompts', 'get_prompt', ...MANIFEST.prompts.map(({ name }) => name)];

/** Every read: its name, the call, and the answer of a server named `server`. */
export function answers(server, modern) {
    const named = modern ? { _meta: { 'io.modelcontextprotocol/serverInfo': server } } : {};
    const kept = modern ? { ...named, ttlMs: 0, cacheScope: 'private' } : {};
    return [
        ['resources', client => client.listResources(), { ...kept, resources: MANIFEST.resources.map(listed) }],
        [
            'templates',
            client => client.listResourceTemplates(),
            { ...kept, resourceTemplates: MANIFEST.templates.map(listed) },
        ],
        ['prompts', client => client.listPrompts(), { ...kept, prompts: MANIFEST.prompts.map(listed) }],
        ['tools', async client => (await client.listTools()).tools.map(({ name }) => name), TOOLS],
        [
            'an exact resource',
            client => client.readResource({ uri: EXACT.uri }),
            { ...kept, contents: [{ ...EXACT, text: 'This is the content of the static text resource.' }] },
        ],
        [
            'a templated resource',
            client => client.readResource({ uri: TEMPLATED.uri }),
            {
                ...kept,
                contents: [
                    { ...TEMPLATED, text: '{"id":"a \\"b\\"","templateTest":true,"data":"Data for ID: a \\"b\\""}' },
                ],
            },
        ],
        [
            'a prompt with arguments',
            client => client.getPrompt({ name: 'test_prompt_with_arguments', arguments: { arg1: '<1>', arg2: '二' } }),
            {
                ...named,
                description: 'Repeats its arguments',
                messages: [
                    {
                        role: 'user',
                        content: { type: 'text', text: "Prompt with arguments: arg1='<1>', arg2='二'" },
                    },
                ],
            },
        ],
        [
            'completions of an argument',
            client =>
                client.complete({
                    ref: { type: 'ref/prompt', name: 'test_prompt_with_arguments' },
                    argument: { name: 'arg1', value: 'PAR' },
                }),
            { ...named, completion: { values: ['paris', 'park', 'party', 'spare'], total: 4, hasMore: false } },
        ],
        [
            'completions of a variable',
            client =>
                client.complete({
                    ref: { type: 'ref/resource', uri: 'test://template/{id}/data' },
                    argument: { name: 'id', value: '12' },
                }),
            { ...named, completion: { values: ['123', '124'], total: 2, hasMore: false } },
        ],
    ];
}
