// Starts a gateway, a proxy that loses answers, and the tests of both clients against them; runs the examples of the guide.

import assert from 'node:assert/strict';
import { execFile } from 'node:child_process';
import { createServer, request } from 'node:http';
import { cp, mkdir, mkdtemp, readFile, rm, symlink, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join, resolve } from 'node:path';
import { after, test } from 'node:test';
import { promisify } from 'node:util';
import { Gateway } from '../tests/conformance/gateway.js';

const run = promisify(execFile);
const HERE = import.meta.dirname;
const PYTHON = process.env.PYTHON || 'python3';
const GUIDE = resolve(HERE, '../docs/publishing.md');

const gateway = new Gateway();
const lost = new Set();

/** Passes requests on, and closes the connection in place of the first answer to each. */
const lossy = createServer((incoming, answer) => {
    const { method, url, headers } = incoming;
    const forward = request(new URL(url, gateway.url), { method, headers }, response => {
        const name = `${method} ${url}`;
        if (lost.has(name)) return response.pipe(answer.writeHead(response.statusCode, response.headers));
        lost.add(name);
        response.resume().on('end', () => incoming.socket.destroy());
    });
    incoming.pipe(forward.on('error', () => incoming.socket.destroy()));
});

async function stop() {
    lossy.close();
    lossy.closeAllConnections();
    await gateway.stop();
}

/** Creates an agent; resolves to the environment of a client that publishes it, and of one that is limited. */
async function agent(id) {
    await gateway.admin('POST', '/agents', { id, tenant: 'acme', name: id });
    const key = async more => (await gateway.admin('POST', `/agents/${id}/keys`, { name: 'test', scopes: ['mcp', 'registry'], ...more })).key;
    return {
        ...process.env,
        WAGGLE_URL: gateway.url,
        WAGGLE_KEY: await key({}),
        WAGGLE_AGENT: id,
        LIMITED_KEY: await key({ limits: { perSecond: 10, burst: 5 } }),
        LOSSY_URL: `http://127.0.0.1:${lossy.address().port}`,
    };
}

after(stop);
for (const signal of ['SIGINT', 'SIGTERM']) process.once(signal, () => stop().finally(() => process.exit(1)));
await gateway.start();
await new Promise(listening => lossy.listen(0, '127.0.0.1', listening));
await gateway.admin('POST', '/tenants', { id: 'acme', name: 'Acme' });
await gateway.admin('POST', '/agents', { id: 'notes', tenant: 'acme', name: 'Notes' });

const PATH = { PYTHONPATH: join(HERE, 'python/src'), PYTHONDONTWRITEBYTECODE: '1' };

test('the client for Python publishes', async () => {
    const env = { ...(await agent('python')), ...PATH };
    await run(PYTHON, ['-m', 'unittest', 'discover', '--start-directory', 'tests'], { cwd: join(HERE, 'python'), env });
});

test('the client for TypeScript publishes', async () => {
    const env = await agent('typescript');
    // Node would run these tests as part of this one.
    delete env.NODE_TEST_CONTEXT;
    await run(process.execPath, ['--test', 'test/client.test.js'], { cwd: join(HERE, 'typescript'), env });
});

/** The only example of a language in the guide. */
async function example(language) {
    const blocks = (await readFile(GUIDE, 'utf8')).split('```').filter((_, index) => index % 2);
    const [code, ...more] = blocks.filter(block => block.startsWith(`${language}\n`));
    assert.ok(code && !more.length, `${GUIDE}: expected one example in ${language}`);
    return code.slice(language.length);
}

const PUBLISHED = { uri: 'notes://today', name: 'today', title: 'Notes of today', mimeType: 'text/markdown', contents: [{ text: '# Today\n' }] };
const TODAY = '/agents/notes/resources?uri=notes%3A%2F%2Ftoday';

/** Runs the example of a language in a folder of its own, with a key of the agent of the guide; compares what it published. */
async function publishes(language, runs) {
    const { key } = await gateway.admin('POST', '/agents/notes/keys', { name: language, scopes: ['registry'] });
    const folder = await mkdtemp(join(tmpdir(), 'waggle-clients-'));
    try {
        await runs(await example(language), folder, { ...process.env, ...PATH, WAGGLE_URL: gateway.url, WAGGLE_KEY: key });
    } finally {
        await rm(folder, { recursive: true });
    }
    assert.deepEqual(await gateway.admin('GET', TODAY), PUBLISHED);
    await gateway.admin('DELETE', TODAY);
}

test('the example of the guide in Python publishes', () => publishes('python', async (code, cwd, env) => {
    await writeFile(join(cwd, 'publish.py'), code);
    await run(PYTHON, ['publish.py'], { cwd, env });
}));

test('the example of the guide in TypeScript compiles and publishes', () => publishes('ts', async (code, cwd, env) => {
    const packages = join(HERE, 'typescript/node_modules');
    await mkdir(join(cwd, 'node_modules'));
    await symlink(join(HERE, 'typescript'), join(cwd, 'node_modules/waggle-client'));
    await symlink(join(packages, '@types'), join(cwd, 'node_modules/@types'));
    await writeFile(join(cwd, 'publish.mts'), code);
    await run(join(packages, '.bin/tsc'), ['--strict', '--skipLibCheck', '--module', 'nodenext', '--types', 'node', 'publish.mts'], { cwd });
    await run(process.execPath, ['publish.mjs'], { cwd, env });
}));

for (const client of ['python', 'typescript']) {
    test(`the commands of the README for ${client} publish`, async () => {
        const { key } = await gateway.admin('POST', '/agents/notes/keys', { name: client, scopes: ['registry'] });
        const readme = await readFile(join(HERE, client, 'README.md'), 'utf8');
        const [, commands] = /```sh\n(.*?)```/s.exec(readme);
        const cwd = await mkdtemp(join(tmpdir(), 'waggle-clients-'));
        try {
            const made = /node_modules|dist|\.venv|build|egg-info|__pycache__/;
            await cp(join(HERE, client), cwd, { recursive: true, filter: path => !made.test(path.slice(HERE.length)) });
            await run('sh', ['-euc', commands], { cwd, env: { ...process.env, WAGGLE_URL: gateway.url, WAGGLE_KEY: key } });
        } finally {
            await rm(cwd, { recursive: true });
        }
        const { contents } = await gateway.admin('GET', TODAY);
        assert.deepEqual(contents, [{ text: '# Today\n' }]);
        await gateway.admin('DELETE', TODAY);
    });
}
