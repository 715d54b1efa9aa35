// The client against a real gateway; clients/test starts it and sets the environment.

import assert from 'node:assert/strict';
import { once } from 'node:events';
import { createServer } from 'node:http';
import { beforeEach, test } from 'node:test';
import { Agent } from '../dist/index.js';

const NAME = process.env.WAGGLE_AGENT;
const agent = new Agent(NAME);
const text = (content, more = {}) => ({ name: 'n', contents: [{ text: content }], ...more });
const EMPTY = { apiVersion: 'waggle/v1', resources: [], templates: [], prompts: [] };

/** Fails unless a call is refused with this code and status; resolves to the error. */
async function refused(code, status, call) {
    const error = await call.then(() => assert.fail(`expected ${code}`), error => error);
    assert.deepEqual([error.code, error.status], [code, status], String(error));
    return error;
}

beforeEach(() => agent.apply(EMPTY));

test('definitions are written, read, listed and deleted', async () => {
    for (const [definitions, key, definition] of [
        [agent.resources, 'x:%C3%BC?a=b&c=%20', text('one')],
        [agent.templates, 'y:{city}', { name: 'n', template: '{{ city }}' }],
        [agent.prompts, 'p', { messages: [{ role: 'user', content: { type: 'text', text: 't' } }] }],
    ]) {
        const first = await definitions.put(key, definition, { create: true });
        assert.equal(first.created, true);
        assert.deepEqual(await definitions.put(key, definition), { revision: first.revision, created: false });
        const read = await definitions.get(key);
        assert.equal(read.revision, first.revision);
        assert.deepEqual({ ...read.value, ...definition }, read.value);
        const listed = [];
        for await (const item of definitions.list()) listed.push(item);
        assert.equal(listed.length, 1);
        await definitions.delete(key);
        await definitions.delete(key);
        assert.equal(await definitions.get(key), undefined);
    }
});

test('content is kept as it is, and subscribers are notified', async () => {
    const content = Uint8Array.from({ length: 256 }, (_, byte) => byte);
    const { revision } = await agent.resources.putContent('x:bytes', content, 'application/octet-stream');
    assert.deepEqual(await agent.resources.content('x:bytes'), content);
    assert.ok(await agent.resources.touch('x:bytes') > revision);
});

test('lists have all pages', async () => {
    const resources = Array.from({ length: 501 }, (_, n) => ({ uri: `x:${n}`, ...text('t') }));
    await agent.apply({ ...EMPTY, resources });
    const listed = new Set();
    for await (const { uri } of agent.resources.list()) listed.add(uri);
    assert.deepEqual(listed, new Set(resources.map(({ uri }) => uri)));
});

test('conditions that do not hold are refused', async () => {
    const { resources } = agent;
    const first = await resources.put('x:1', text('one'));
    await refused('revision_mismatch', 412, resources.put('x:1', text('two'), { create: true }));
    const stale = { ifRevision: first.revision };
    const second = await resources.put('x:1', text('two'), stale);
    await refused('revision_mismatch', 412, resources.put('x:1', text('three'), stale));
    await refused('revision_mismatch', 412, resources.delete('x:1', stale));
    await refused('revision_mismatch', 412, agent.apply(EMPTY, stale));
    assert.equal((await resources.get('x:1')).revision, second.revision);
});

test('concurrent changes are all kept', async () => {
    await agent.resources.put('x:count', text('0'));
    const add = present => ({ ...present, contents: [{ text: String(Number(present.contents[0].text) + 1) }] });
    const work = async () => {
        for (let n = 0; n < 5; n += 1) await agent.resources.change('x:count', add);
    };
    await Promise.all(Array.from({ length: 6 }, work));
    assert.equal(new TextDecoder().decode(await agent.resources.content('x:count')), '30');
    await refused('not_found', 404, agent.resources.change('x:none', add));
});

test('a manifest is planned, applied and read', async () => {
    const manifest = {
        ...EMPTY, agent: NAME, resources: [{ uri: 'x:1', ...text('one') }], skills: [], mounts: [],
    };
    const before = (await agent.manifest()).revision;
    const planned = await agent.apply(manifest, { dryRun: true });
    assert.deepEqual([planned.created.resources, planned.revision], [['x:1'], before]);
    assert.equal((await agent.apply(manifest, { ifRevision: before })).created.count, 1);
    assert.deepEqual((await agent.manifest()).value, manifest);
});

test('limited requests wait as the gateway asks', async () => {
    const key = process.env.LIMITED_KEY;
    const hasty = new Agent(NAME, { key, retry: 0 });
    const burst = async () => {
        for (let n = 0; n < 20; n += 1) await hasty.resources.put(`x:${n}`, text('t'));
    };
    assert.ok((await refused('rate_limited', 429, burst())).requestId);
    const patient = new Agent(NAME, { key });
    const began = performance.now();
    for (let n = 0; n < 4; n += 1) await patient.resources.put(`y:${n}`, text('t'), { create: true });
    assert.ok(performance.now() - began > 1_000, 'Retry-After is in whole seconds');
});

test('lost answers are asked for again, unless conditional', async () => {
    const lossy = new Agent(NAME, { url: process.env.LOSSY_URL });
    assert.equal((await lossy.resources.put('x:lost', text('one'))).created, false, 'the first attempt wrote it');
    await lossy.resources.delete('x:lost');
    await refused('unreachable', undefined, lossy.resources.put('x:lost2', text('one'), { create: true }));
    assert.equal(new TextDecoder().decode(await agent.resources.content('x:lost2')), 'one');
});

test('refusals and unreachable gateways are named', async () => {
    await refused('not_found', 404, new Agent('none').resources.put('x:1', text('t')));
    await refused('unauthenticated', 401, new Agent(NAME, { key: 'bak_wrong' }).manifest());
    await refused('unreachable', undefined, new Agent(NAME, { url: 'http://127.0.0.1:1', retry: 0 }).manifest());
    const error = await refused('invalid_params', 400, agent.resources.put('x:1', { nam: 'n' }));
    assert.match(error.message, /unknown field `nam`/);
});

test('wrong arguments are refused before anything is sent', () => {
    for (const options of [{ url: 'ftp://x' }, { url: 'nonsense' }, { key: 'two words' }, { key: 'line\n' }]) {
        assert.throws(() => new Agent(NAME, options), TypeError);
    }
});

test('a weak ETag names a revision, as a strong one does', async () => {
    const tags = ['"7"', 'W/"7"', 'W/"7-gzip"'];
    const server = createServer((_, response) => response.setHeader('ETag', tags.shift()).end('{}'));
    await once(server.listen(0, '127.0.0.1'), 'listening');
    const proxied = new Agent(NAME, { url: `http://127.0.0.1:${server.address().port}` });
    try {
        for (let n = 0; n < 3; n += 1) assert.equal((await proxied.manifest()).revision, 7);
    } finally {
        server.closeAllConnections();
        server.close();
    }
});
