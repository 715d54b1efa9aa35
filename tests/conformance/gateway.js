// Starts a gateway on its own embedded database, calls its administration API, and stops it.

import assert from 'node:assert/strict';
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { existsSync, mkdtempSync } from 'node:fs';
import { chmod, readFile, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join, resolve } from 'node:path';
import { createInterface } from 'node:readline';
import { setTimeout as sleep } from 'node:timers/promises';

const ROOT = resolve(import.meta.dirname, '../..');
/** How long the gateway may take to start, and to stop, in milliseconds. */
const TIMEOUT = 60_000;

/** The binary under test: `WAGGLE_BIN`, else the one that `cargo build` made. */
function binary() {
    const built = join(process.env.CARGO_TARGET_DIR || 'target', 'debug/waggle');
    const path = resolve(ROOT, process.env.WAGGLE_BIN || built);
    assert.ok(existsSync(path), `there is no ${path}; \`cargo build\` makes it`);
    return path;
}

/** The environment without settings of Waggle, except the directory of PostgreSQL's programs. */
function environment() {
    const foreign = name => name === 'DATABASE_URL' || /^WAGGLE_(?!EMBEDDED__BIN_DIR$)/.test(name);
    const kept = Object.entries(process.env).filter(([name]) => !foreign(name));
    return { ...Object.fromEntries(kept), WAGGLE_LOG__FORMAT: 'json', WAGGLE_SERVER__DRAIN_SECONDS: '0' };
}

export class Gateway {
    #child;
    #folder;
    #operator;
    /** Its base URL, such as `http://127.0.0.1:4711`. */
    url;

    /** Resolves once the gateway is ready, with further settings. Call `stop` afterwards, also if this fails. */
    async start(settings = {}) {
        this.#folder = mkdtempSync(join(tmpdir(), 'waggle-conformance-'));
        // As root, PostgreSQL runs as another user, which needs search permission.
        await chmod(this.#folder, 0o711);
        const data = join(this.#folder, 'data');
        const args = ['serve', '--listen', '127.0.0.1:0', '--data-dir', data];
        this.#child = spawn(binary(), args, { env: { ...environment(), ...settings }, stdio: ['ignore', 'inherit', 'pipe'] });
        await once(this.#child, 'spawn');
        this.url = `http://${await this.#address()}`;
        this.#operator = (await readFile(join(data, 'operator.key'), 'utf8')).trim();
        await this.#ready();
    }

    /** The address in its log. Its warnings are printed while it runs. */
    async #address() {
        const lines = createInterface({ input: this.#child.stderr });
        const said = new Promise((serves, fails) => {
            lines.on('line', line => {
                const entry = line.startsWith('{') ? JSON.parse(line) : { level: 'ERROR' };
                if (entry.message === 'serving') serves(entry.address);
                if (entry.level === 'WARN' || entry.level === 'ERROR') console.error(line);
            });
            lines.on('close', () => fails(new Error('the gateway ended before it served')));
        });
        return within('the gateway did not say where it serves', said);
    }

    async #ready() {
        const signal = AbortSignal.timeout(TIMEOUT);
        while (!(await fetch(`${this.url}/readyz`, { signal })).ok) await sleep(20, undefined, { signal });
    }

    /** Calls the administration API as the operator; resolves to the JSON of the answer. */
    async admin(method, path, body) {
        const headers = { Authorization: `Bearer ${this.#operator}`, 'Content-Type': 'application/json' };
        const request = { method, headers, body: JSON.stringify(body), signal: AbortSignal.timeout(TIMEOUT) };
        const answer = await fetch(`${this.url}/admin/v1${path}`, request);
        const text = await answer.text();
        assert.ok(answer.ok, `${method} ${path}: ${answer.status} ${text}`);
        return text && JSON.parse(text);
    }

    /** Stops it and removes its database. */
    async stop() {
        if (this.#child?.pid && this.#child.exitCode === null && this.#child.signalCode === null) {
            const ended = once(this.#child, 'exit');
            this.#child.kill('SIGTERM');
            try {
                await within('the gateway did not stop', ended);
            } catch (error) {
                this.#child.kill('SIGKILL');
                throw error;
            }
        }
        await rm(this.#folder, { recursive: true, force: true });
    }
}

/** The result of a promise, or an error after the timeout. */
async function within(failure, promise) {
    const over = new AbortController();
    const late = sleep(TIMEOUT, undefined, { signal: over.signal }).then(() => assert.fail(failure));
    late.catch(() => {});
    try {
        return await Promise.race([promise, late]);
    } finally {
        over.abort();
    }
}
