// Clients that know only tools: each answers questions about the demo agent by calls of tools alone.

import assert from 'node:assert/strict';
import { execFile } from 'node:child_process';
import { existsSync } from 'node:fs';
import { join } from 'node:path';
import { promisify } from 'node:util';

const DEEP = { topic: '量子计算', depth: 'deep' };
const ANSWERS = {
    tools: ['search', 'fetch', 'list_resources', 'read_resource', 'list_prompts', 'get_prompt', 'research'],
    found: ['beeos://agent/config', 'gpt-4o'],
    model: 'gpt-4o',
    prompt: '深入研究量子计算。提供涵盖近期进展、主要参与者和实际应用的全面摘要。',
    failed: [true, 'resource_not_found: resource not found: beeos://agent/none'],
};

/** Which tools there are, which model a search finds, which model the agent uses, what a prompt says, and how a read fails. */
export async function asks({ make }, endpoint, headers) {
    const [client, transport] = make(new URL(endpoint), { headers });
    await client.connect(transport);
    const call = (name, args) => client.callTool({ name, arguments: args });
    try {
        // The SDK then checks structured content against the output schema.
        const { tools } = await client.listTools();
        const found = await call('search', { query: '能力' });
        const [{ id }] = found.structuredContent.results;
        const fetched = await call('fetch', { id });
        const listed = await call('list_resources', {});
        assert.deepEqual(JSON.parse(listed.content[0].text), listed.structuredContent);
        const { uri } = listed.structuredContent.resources.find(({ description }) => description?.includes('能力'));
        const read = await call('read_resource', { uri });
        const prompt = await call('research', DEEP);
        const missing = await call('read_resource', { uri: 'beeos://agent/none' });
        const answers = {
            tools: tools.map(({ name }) => name),
            found: [id, JSON.parse(fetched.structuredContent.text).model],
            model: JSON.parse(read.content[0].text).model,
            prompt: prompt.content[0].text,
            failed: [missing.isError, missing.content[0].text],
        };
        assert.deepEqual(answers, ANSWERS);
    } finally {
        await client.close();
    }
}

export const PYTHON = join(import.meta.dirname, '.venv/bin/python');

/** Why the SDK for Python is not tested, if it is not. */
export const skip = existsSync(PYTHON) ? false : 'tests/conformance/run could not install the SDK for Python';

/** The same with the SDK for Python. */
export async function asksInPython(mode, endpoint, key) {
    const script = join(import.meta.dirname, 'tools.py');
    const { stdout } = await promisify(execFile)(PYTHON, [script, endpoint, key, mode], { timeout: 60_000 });
    assert.deepEqual(JSON.parse(stdout), ANSWERS);
}
