// Runs the official suite at one revision, and holds what fails to the file of what is expected to.

import assert from 'node:assert/strict';
import { execFile } from 'node:child_process';
import { readFile, readdir, rm } from 'node:fs/promises';
import { join } from 'node:path';

const SUITE = join(import.meta.dirname, 'node_modules/@modelcontextprotocol/conformance/dist/index.js');
/** What every check said, for who wants to look. */
const RESULTS = join(import.meta.dirname, '../../target/conformance');
/** How long one run may take, in milliseconds. */
const PATIENCE = 300_000;

/** Runs the scenarios that a revision requires against an endpoint; resolves to how many checks failed as expected. */
export async function conform(endpoint, revision) {
    const file = join(import.meta.dirname, `expected-failures-${revision}.yaml`);
    const expected = [...(await readFile(file, 'utf8')).matchAll(/^ +- (\S+)/gm)].map(([, entry]) => entry);
    const results = join(RESULTS, revision);
    await rm(results, { recursive: true, force: true });
    const { code, verdict } = await run(
        ['server', '--url', endpoint, '--requirements', revision, '--expected-failures', file, '-o', results],
    );
    if (code !== 0) assert.fail(`${verdict}\n${(await reasons(results, expected)).join('\n')}`);
    // The suite lets pass an expectation whose check did not run: renamed, skipped or mistyped.
    const failed = [...verdict.matchAll(/^ {2}~ (\S+)$/gm)].map(([, entry]) => entry);
    assert.deepEqual(expected.toSorted(), failed.toSorted(), `${file} expects what did not run`);
    return failed.length;
}

/** Why the checks failed that were not expected to, among them some that the revision does not require. */
async function reasons(results, expected) {
    const lines = [];
    for (const folder of await readdir(results).catch(() => [])) {
        const [, scenario] = folder.match(/^server-(.*)-\d{4}-\d\d-\d\dT/);
        // Nothing is written where a scenario itself broke; then the verdict says why.
        const checks = await readFile(join(results, folder, 'checks.json'), 'utf8').catch(() => '[]');
        for (const { id, status, errorMessage } of JSON.parse(checks)) {
            const entry = `${scenario}:${id}`;
            const bad = status === 'FAILURE' || status === 'WARNING';
            if (bad && !expected.includes(entry)) lines.push(`${entry}: ${errorMessage ?? status}`);
        }
    }
    return lines;
}

/** How the suite ended, and what it says at its end; everything it said where it broke. */
function run(args) {
    const options = { timeout: PATIENCE, maxBuffer: 64 * 1024 * 1024 };
    return new Promise(done => {
        execFile(process.execPath, [SUITE, ...args], options, (error, stdout, stderr) => {
            const output = stdout + stderr;
            const verdict = output.slice(Math.max(0, output.indexOf('\nTotal: ')));
            done({ code: error ? (error.code ?? error.signal) : 0, verdict });
        });
    });
}
