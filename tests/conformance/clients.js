// The official SDKs as clients: each connects to an agent and compares all that it reads.

import assert from 'node:assert/strict';
import { setTimeout as sleep } from 'node:timers/promises';
import * as v2 from '@modelcontextprotocol/client';
import * as v1 from '@modelcontextprotocol/sdk/client/index.js';
import { StreamableHTTPClientTransport } from '@modelcontextprotocol/sdk/client/streamableHttp.js';
import { ResourceUpdatedNotificationSchema } from '@modelcontextprotocol/sdk/types.js';
import { answers } from './answers.js';

const MODERN = '2026-07-28';
const LEGACY = '2025-11-25';
const SELF = { name: 'waggle-tests', version: '1.0.0' };
/** The SDK calls only what the server declares. */
const STRICT = { enforceStrictCapabilities: true };

const withV1 = (url, requestInit) => [
    new v1.Client(SELF, STRICT),
    new StreamableHTTPClientTransport(url, { requestInit }),
];

const withV2 = mode => (url, requestInit) => [
    new v2.Client(SELF, { ...STRICT, versionNegotiation: { mode } }),
    new v2.StreamableHTTPClientTransport(url, { requestInit }),
];

/** By name: how a client and its transport are created, and the revision that they negotiate. */
export const CLIENTS = {
    'SDK v1': { make: withV1, revision: LEGACY, updated: ResourceUpdatedNotificationSchema },
    'SDK v2 in the legacy era': { make: withV2('legacy'), revision: LEGACY },
    'SDK v2 in the modern era': { make: withV2({ pin: MODERN }), revision: MODERN },
    'SDK v2 left to choose': { make: withV2('auto'), revision: MODERN },
};

/** By name: the headers with a key. */
export const CREDENTIALS = {
    'X-Agent-API-Key': key => ({ 'X-Agent-API-Key': key }),
    Authorization: key => ({ Authorization: `Bearer ${key}` }),
};

/** The declared capabilities. */
function capabilities(revision) {
    const both = {
        completions: {},
        prompts: { listChanged: true },
        resources: { listChanged: true, subscribe: true },
        tools: { listChanged: true },
    };
    return revision === MODERN ? both : { ...both, logging: {} };
}

/** Connects and reads everything. */
export async function reads({ make, revision }, endpoint, headers) {
    const [client, transport] = make(new URL(endpoint), { headers });
    await client.connect(transport);
    try {
        assert.equal(transport.protocolVersion, revision);
        assert.deepEqual(client.getServerCapabilities(), capabilities(revision));
        for (const [what, ask, answer] of answers(client.getServerVersion(), revision === MODERN)) {
            assert.deepEqual(await ask(client), answer, what);
        }
        const uri = 'test://nothing';
        await assert.rejects(client.readResource({ uri }), error => error.data.uri === uri);
    } finally {
        await client.close();
    }
}

/** How long to wait for a notification that must not arrive, in milliseconds. */
const QUIET = 500;

/** Subscribes, is notified of a change, reads it, unsubscribes and is not notified again. `write` changes the text. */
export async function isNotified({ make, revision, updated = 'notifications/resources/updated' }, endpoint, headers, write) {
    const uri = 'test://watched-resource';
    const [client, transport] = make(new URL(endpoint), { headers });
    const received = [];
    let notify;
    client.setNotificationHandler(updated, notification => {
        received.push(notification.params.uri);
        notify?.();
    });
    await client.connect(transport);
    try {
        await write(uri, 'old');
        const listening = revision === MODERN && (await client.listen({ resourceSubscriptions: [uri] }));
        if (listening) assert.deepEqual(listening.honoredFilter, { resourceSubscriptions: [uri] });
        else await client.subscribeResource({ uri });

        const next = new Promise((resolve, reject) => {
            notify = resolve;
            setTimeout(() => reject(new Error('no notification arrived')), 10_000).unref();
        });
        await write(uri, 'new');
        await next;
        const { contents } = await client.readResource({ uri }, { cacheMode: 'bypass' });
        assert.equal(contents[0].text, 'new');
        assert.deepEqual(received, [uri]);

        if (listening) await listening.close();
        else await client.unsubscribeResource({ uri });
        await write(uri, 'newest');
        await sleep(QUIET);
        assert.deepEqual(received, [uri]);
    } finally {
        await client.close();
    }
}

/** The prompt of the manifest that asks, and what it becomes with the context `c`. */
const ASKING = { name: 'test_input_required_result_prompt' };
const IN_CONTEXT = 'In the context of c.';

/** The text of a prompt that asks, or the error, of a client that answers its forms so, and the forms. */
async function fill(endpoint, headers, answers) {
    const options = { ...STRICT, versionNegotiation: { mode: { pin: MODERN } } };
    const client = new v2.Client(SELF, { ...options, capabilities: { elicitation: { form: {} } } });
    const forms = [];
    client.setRequestHandler('elicitation/create', ({ params }) => {
        forms.push(params);
        return answers.shift();
    });
    await client.connect(new v2.StreamableHTTPClientTransport(new URL(endpoint), { requestInit: { headers } }));
    try {
        const { messages } = await client.getPrompt(ASKING);
        return { text: messages[0].content.text, forms };
    } catch ({ code, message }) {
        return { code, message, forms };
    } finally {
        await client.close();
    }
}

/** Gets a prompt that asks, and fills in, declines and cancels its form. */
export async function fillsForms(endpoint, headers) {
    const accept = content => ({ action: 'accept', content });
    const form = {
        mode: 'form',
        message: 'The prompt In a context needs more arguments.',
        requestedSchema: {
            type: 'object',
            properties: { context: { type: 'string', description: 'What it is about' } },
            required: ['context'],
        },
    };
    const filled = (...answers) => fill(endpoint, headers, answers);
    assert.deepEqual(await filled(accept({ context: 'c' })), { text: IN_CONTEXT, forms: [form] });
    assert.deepEqual(await filled(accept({ context: 'c', other: 1 })), { text: IN_CONTEXT, forms: [form] });
    for (const wrong of [{ context: 5 }, { Context: 'c' }, {}]) {
        const expected = { text: IN_CONTEXT, forms: [form, form] };
        assert.deepEqual(await filled(accept(wrong), accept({ context: 'c' })), expected);
    }
    for (const [action, message] of [
        ['decline', 'the form for the missing arguments was declined'],
        ['cancel', 'the form for the missing arguments was cancelled'],
    ]) {
        assert.deepEqual(await filled({ action }), { code: -32602, message, forms: [form] });
    }
}

/** Gets a prompt that asks with a client that shows no forms. */
export async function lacksArguments({ make }, endpoint, headers) {
    const [client, transport] = make(new URL(endpoint), { headers });
    await client.connect(transport);
    try {
        await assert.rejects(client.getPrompt(ASKING), ({ code, data }) => {
            assert.deepEqual({ code, data }, { code: -32602, data: { code: 'invalid_params', missing: ['context'] } });
            return true;
        });
    } finally {
        await client.close();
    }
}

/** Tries to connect and must be refused. */
export async function isRefused({ make }, endpoint, headers) {
    const [client, transport] = make(new URL(endpoint), { headers });
    try {
        await assert.rejects(client.connect(transport), error => (error.status ?? error.code) === 401);
    } finally {
        await client.close();
    }
}
