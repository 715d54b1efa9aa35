// Content from connections, read by the official SDKs, which are notified when it changes.

import assert from 'node:assert/strict';
import { execFile } from 'node:child_process';
import { once } from 'node:events';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { promisify } from 'node:util';
import { MODERN } from './clients.js';
import { PYTHON } from './tools.js';

export const KINDS = ['file', 'git', 'http', 's3', 'sql'];
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

/** Is notified of content of a kind that changed, and reads the new content; resolves to the time that it took, in ms. */
export async function isNotifiedOfChange(client, site, kind, change) {
    const { make, revision, updated = 'notifications/resources/updated' } = client;
    const uri = `test://changing-${kind}`;
    const [connected, transport] = make(new URL(site.endpoint), { headers: { 'X-Agent-API-Key': site.key } });
    const received = new EventTarget();
    connected.setNotificationHandler(updated, ({ params }) => {
        assert.equal(params.uri, uri);
        received.dispatchEvent(new Event('updated'));
    });
    await connected.connect(transport);
    const listening = revision === MODERN && (await connected.listen({ resourceSubscriptions: [uri] }));
    try {
        if (!listening) await connected.subscribeResource({ uri });
        // What is watched for the first time may count as changed.
        await Promise.race([once(received, 'updated'), sleep(3_000)]);
        const notified = once(received, 'updated', { signal: AbortSignal.timeout(5_000) });
        const began = performance.now();
        change('changed');
        await notified;
        const took = Math.round(performance.now() - began);
        const { contents } = await connected.readResource({ uri }, { cacheMode: 'bypass' });
        assert.equal(contents[0].text.trimEnd(), 'changed');
        return took;
    } finally {
        if (listening) await listening.close();
        await connected.close();
        change('first');
    }
}
