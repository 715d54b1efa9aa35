// Content from connections, read by the official SDKs, which are told when it changes.

import assert from 'node:assert/strict';
import { execFile } from 'node:child_process';
import { once } from 'node:events';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { promisify } from 'node:util';
import { MODERN } from './clients.js';
import { PYTHON } from './tools.js';

const KINDS = ['file', 'git', 'http', 's3', 'sql'];
const URIS = KINDS.map(kind => `test://${kind}`);
const TEXTS = KINDS.map(kind => `text of ${kind}`);

/** Reads a resource of each kind. */
export async function readsEachKind({ make, revision }, { endpoint, key }) {
    const [client, transport] = make(new URL(endpoint), { headers: { 'X-Agent-API-Key': key } });
    await client.connect(transport);
    try {
        assert.equal(transport.protocolVersion, revision);
        const texts = [];
        for (const uri of URIS) texts.push((await client.readResource({ uri })).contents[0].text);
        assert.deepEqual(texts, TEXTS);
    } finally {
        await client.close();
    }
}

/** The same with the SDK for Python. */
export async function readsEachKindInPython(mode, { endpoint, key }) {
    const script = join(import.meta.dirname, 'sources.py');
    const args = [script, endpoint, key, mode, ...URIS];
    const { stdout } = await promisify(execFile)(PYTHON, args, { timeout: 60_000 });
    assert.deepEqual(JSON.parse(stdout), TEXTS);
}

/** Is told of a changed file, and reads the new content. */
export async function isToldOfChange({ make, revision, updated = 'notifications/resources/updated' }, site, change) {
    const uri = 'test://changing';
    const [client, transport] = make(new URL(site.endpoint), { headers: { 'X-Agent-API-Key': site.key } });
    const received = new EventTarget();
    client.setNotificationHandler(updated, ({ params }) => {
        assert.equal(params.uri, uri);
        received.dispatchEvent(new Event('updated'));
    });
    await client.connect(transport);
    const listening = revision === MODERN && (await client.listen({ resourceSubscriptions: [uri] }));
    try {
        if (!listening) await client.subscribeResource({ uri });
        // What is watched for the first time may count as changed.
        await Promise.race([once(received, 'updated'), sleep(3_000)]);
        const told = once(received, 'updated', { signal: AbortSignal.timeout(5_000) });
        change('changed');
        await told;
        const { contents } = await client.readResource({ uri }, { cacheMode: 'bypass' });
        assert.equal(contents[0].text, 'changed');
    } finally {
        if (listening) await listening.close();
        await client.close();
        change('first');
    }
}
