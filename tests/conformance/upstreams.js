// What content is taken from: a folder, a database, and servers of HTTP, git and S3, each with one text.

import assert from 'node:assert/strict';
import { execFileSync, spawn } from 'node:child_process';
import { once } from 'node:events';
import { mkdirSync, mkdtempSync, realpathSync, rmSync, writeFileSync } from 'node:fs';
import { createServer } from 'node:http';
import { tmpdir } from 'node:os';
import { join, resolve } from 'node:path';
import { DatabaseSync } from 'node:sqlite';

const LOOPBACK = ['127.0.0.0/8'];

/** Listens on loopback; resolves to the port. */
async function listen(server) {
    server.listen(0, '127.0.0.1');
    await once(server, 'listening');
    return server.address().port;
}

/** A server of the repositories in a folder: git's own program behind HTTP. */
function gitServer(root) {
    return createServer((request, response) => {
        const [path, query = ''] = request.url.split('?');
        const env = {
            PATH: process.env.PATH,
            GIT_PROJECT_ROOT: root,
            GIT_HTTP_EXPORT_ALL: '1',
            PATH_INFO: path,
            QUERY_STRING: query,
            REQUEST_METHOD: request.method,
            CONTENT_TYPE: request.headers['content-type'] ?? '',
            HTTP_CONTENT_ENCODING: request.headers['content-encoding'] ?? '',
            GIT_PROTOCOL: request.headers['git-protocol'] ?? '',
        };
        const backend = spawn('git', ['http-backend'], { env, stdio: ['pipe', 'pipe', 'ignore'] });
        request.pipe(backend.stdin).on('error', () => {});
        const output = [];
        backend.stdout.on('data', piece => output.push(piece));
        backend.on('close', () => {
            const whole = Buffer.concat(output);
            const end = whole.indexOf('\r\n\r\n');
            for (const line of whole.subarray(0, end).toString().split('\r\n')) {
                const [name, value] = line.split(': ');
                if (name === 'Status') response.statusCode = Number(value.split(' ')[0]);
                else response.setHeader(name, value);
            }
            response.end(whole.subarray(end + 4));
        });
    });
}

/** Makes a bare repository with a `README.md`; returns a function that commits another file. */
function makeRepository(folder, text) {
    const [work, bare] = [join(folder, 'work'), join(folder, 'repository.git')];
    const git = (...args) => execFileSync('git', ['-C', work, '-c', 'user.name=t', '-c', 'user.email=t@t', ...args]);
    const commit = (name, text) => {
        writeFileSync(join(work, name), text);
        git('add', name);
        git('commit', '--quiet', '--allow-empty', '--message', name);
    };
    mkdirSync(work);
    git('init', '--quiet', '--initial-branch=main');
    commit('README.md', text);
    git('clone', '--quiet', '--bare', '.', bare);
    return (name, text) => {
        commit(name, text);
        git('push', '--quiet', bare, 'main');
    };
}

export class Upstreams {
    #servers = [];
    #s3;
    /** The folder that holds everything; a root of files. */
    root = realpathSync(mkdtempSync(join(tmpdir(), 'waggle-upstreams-')));
    /**
     * By kind: the settings of a connection, its secrets, the source of its text, which is `text of KIND`, the source of
     * another text that changes, since the first is read meanwhile, and what changes it.
     */
    kinds = {};

    async start() {
        const folder = name => {
            mkdirSync(join(this.root, name), { recursive: true });
            return join(this.root, name);
        };
        writeFileSync(join(folder('files'), 'a.txt'), 'text of file');
        this.kinds.file = {
            settings: { root: folder('files') },
            source: { path: 'a.txt' },
            changing: { path: 'changing.txt' },
            change: text => writeFileSync(join(this.root, 'files/changing.txt'), text),
        };

        let page;
        const http = createServer((request, response) => {
            const text = request.url === '/changing' ? page : 'text of http';
            response.setHeader('content-type', 'text/plain').end(text);
        });
        this.kinds.http = {
            settings: { baseUrl: `http://127.0.0.1:${await listen(http)}/`, allowNetworks: LOOPBACK },
            source: { path: 'a' },
            changing: { path: 'changing' },
            change: text => (page = text),
        };

        const commit = makeRepository(folder('git'), 'text of git');
        const git = gitServer(folder('git'));
        const url = `http://127.0.0.1:${await listen(git)}/repository.git`;
        this.kinds.git = {
            settings: { url, allowNetworks: LOOPBACK },
            source: { path: 'README.md' },
            changing: { path: 'changing.txt' },
            change: text => commit('changing.txt', text),
        };
        this.#servers = [http, git];

        writeFileSync(join(folder('s3/bucket'), 'a.txt'), 'text of s3');
        const built = process.env.CARGO_TARGET_DIR || resolve(import.meta.dirname, '../../target');
        this.#s3 = spawn(join(built, 'debug/examples/s3'), [folder('s3')], { stdio: ['pipe', 'pipe', 'inherit'] });
        const [port] = await once(this.#s3.stdout, 'data');
        const endpoint = `http://127.0.0.1:${String(port).trim()}`;
        this.kinds.s3 = {
            settings: { endpoint, bucket: 'bucket', pathStyle: true, allowNetworks: LOOPBACK },
            secrets: { accessKeyId: 'key', secretAccessKey: 'secret' },
            source: { path: 'a.txt' },
            changing: { path: 'changing.txt' },
            change: text => writeFileSync(join(this.root, 's3/bucket/changing.txt'), text),
        };

        const file = join(this.root, 'a.db');
        const run = sql => {
            const database = new DatabaseSync(file);
            database.exec(sql);
            database.close();
        };
        run(`create table a (text text); insert into a values ('text of sql'); create table changing (text text)`);
        const statements = { a: 'select text from a', changing: 'select text from changing' };
        this.kinds.sql = {
            settings: { url: `sqlite:${file}`, statements },
            source: { statement: '@a', format: 'text' },
            changing: { statement: '@changing', format: 'text' },
            change: text => run(`delete from changing; insert into changing values ('${text}')`),
        };
        for (const { change } of Object.values(this.kinds)) change('first');
    }

    stop() {
        for (const server of this.#servers) {
            server.close();
            server.closeAllConnections();
        }
        this.#s3?.stdin.end();
        rmSync(this.root, { recursive: true, force: true });
    }
}

/** Makes a connection of each kind, and an agent with a resource of each. */
export async function registerSources(gateway, upstreams, agent) {
    await gateway.admin('POST', '/agents', { id: agent, tenant: 'acme', name: agent, access: 'key' });
    const register = async (name, source) => {
        const uri = encodeURIComponent(`test://${name}`);
        await gateway.admin('PUT', `/agents/${agent}/resources?uri=${uri}`, { name, mimeType: 'text/plain', source });
    };
    for (const [kind, { settings, secrets = {}, source, changing }] of Object.entries(upstreams.kinds)) {
        const limits = { pollMs: 1000 };
        await gateway.admin('POST', '/connections', { id: kind, kind, tenants: ['acme'], settings, secrets, limits });
        await register(kind, { connection: kind, ...source });
        await register(`changing-${kind}`, { connection: kind, ...changing });
        const test = await gateway.admin('POST', `/connections/${kind}/test`, { source });
        assert.deepEqual([test.ok, test.bytes], [true, `text of ${kind}`.length]);
    }
    const { key } = await gateway.admin('POST', `/agents/${agent}/keys`, { name: 'good' });
    return { endpoint: `${gateway.url}/${agent}/mcp`, key };
}
