// Clients that show forms, and one that does not: each gets a prompt that asks for its missing argument.

import assert from 'node:assert/strict';
import { execFile } from 'node:child_process';
import { join } from 'node:path';
import { promisify } from 'node:util';
import * as v2 from '@modelcontextprotocol/client';
import { MODERN, SELF, STRICT } from './clients.js';
import { PYTHON } from './tools.js';

/** The prompt of the manifest that asks, its form, and what it becomes with the context `c`. */
const NAME = 'test_input_required_result_prompt';
const FORM = {
    mode: 'form',
    message: 'The prompt In a context needs more arguments.',
    requestedSchema: {
        type: 'object',
        properties: { context: { type: 'string', description: 'What it is about' } },
        required: ['context'],
    },
};
const TEXT = 'In the context of c.';

const accept = content => ({ action: 'accept', content });
const GOOD = accept({ context: 'c' });
const refused = what => [`the form for the missing arguments was ${what}`, { code: 'invalid_params' }, 1];

/** By name: the answers to the forms, and the text or the error with the number of forms. */
const CASES = {
    accept: [[GOOD], [TEXT, null, 1]],
    'unknown key': [[accept({ context: 'c', other: 1 })], [TEXT, null, 1]],
    'wrong type': [[accept({ context: 5 }), GOOD], [TEXT, null, 2]],
    'wrong key': [[accept({ Context: 'c' }), GOOD], [TEXT, null, 2]],
    'no value': [[accept({}), GOOD], [TEXT, null, 2]],
    decline: [[{ action: 'decline' }], refused('declined')],
    cancel: [[{ action: 'cancel' }], refused('cancelled')],
};
const ANSWERS = Object.values(CASES).map(([answers]) => answers);
const EXPECTED = Object.values(CASES).map(([, expected]) => expected);
const MISSING = ['missing argument: context', { code: 'invalid_params', missing: ['context'] }, 0];

async function fill(endpoint, headers, answers) {
    const options = { ...STRICT, versionNegotiation: { mode: { pin: MODERN } } };
    const client = new v2.Client(SELF, { ...options, capabilities: { elicitation: { form: {} } } });
    let forms = 0;
    client.setRequestHandler('elicitation/create', ({ params }) => {
        assert.deepEqual(params, FORM);
        return answers[forms++];
    });
    await client.connect(new v2.StreamableHTTPClientTransport(new URL(endpoint), { requestInit: { headers } }));
    try {
        const { messages } = await client.getPrompt({ name: NAME });
        return [messages[0].content.text, null, forms];
    } catch ({ message, data }) {
        return [message, data, forms];
    } finally {
        await client.close();
    }
}

/** Gets the prompt, with each of the answers. */
export async function fillsForms(endpoint, headers) {
    const results = [];
    for (const answers of ANSWERS) results.push(await fill(endpoint, headers, answers));
    assert.deepEqual(results, EXPECTED);
}

/** The same with the SDK for Python. A client of the legacy era is not asked. */
export async function fillsFormsInPython(mode, endpoint, key) {
    const script = join(import.meta.dirname, 'forms.py');
    const args = [script, endpoint, key, mode, NAME, JSON.stringify(ANSWERS)];
    const { stdout } = await promisify(execFile)(PYTHON, args, { timeout: 60_000 });
    assert.deepEqual(JSON.parse(stdout), mode === 'legacy' ? ANSWERS.map(() => MISSING) : EXPECTED);
}

/** Gets the prompt with a client that shows no forms. */
export async function lacksArguments({ make }, endpoint, headers) {
    const [client, transport] = make(new URL(endpoint), { headers });
    await client.connect(transport);
    try {
        await assert.rejects(client.getPrompt({ name: NAME }), ({ code, data }) => {
            assert.deepEqual([code, data], [-32602, MISSING[1]]);
            return true;
        });
    } finally {
        await client.close();
    }
}
