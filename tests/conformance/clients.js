// The official SDKs as clients: each connects to an agent and compares all that it reads.

import assert from 'node:assert/strict';
import { setTimeout as sleep } from 'node:timers/promises';
import * as v2 from '@modelcontextprotocol/client';
import * as v1 from '@modelcontextprotocol/sdk/client/index.js';
import { StreamableHTTPClientTransport } from '@modelcontextprotocol/sdk/client/streamableHttp.js';
import { ResourceUpdatedNotificationSchema } from '@modelcontextprotocol/sdk/types.js';
import { answers } from './answers.js';

export const MODERN = '2026-07-28';
const LEGACY = '2025-11-25';
export const SELF = { name: 'waggle-tests', version: '1.0.0' };
/** The SDK calls only what the server declares. */
export const STRICT = { enforceStrictCapabilities: true };

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
        extensions: { 'io.modelcontextprotocol/skills': { directoryRead: true } },
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

/** Tries to connect and must be refused. */
export async function isRefused({ make }, endpoint, headers) {
    const [client, transport] = make(new URL(endpoint), { headers });
    try {
        await assert.rejects(client.connect(transport), error => (error.status ?? error.code) === 401);
    } finally {
        await client.close();
    }
}
