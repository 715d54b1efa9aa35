// Runs the official suite at one revision, and compares its failures with the file of expected ones.

import assert from 'node:assert/strict';
import { execFile } from 'node:child_process';
import { readFile, readdir, rm } from 'node:fs/promises';
import { join } from 'node:path';

const SUITE = join(import.meta.dirname, 'node_modules/@modelcontextprotocol/conformance/dist/index.js');
/** The directory of the results of each check. */
const RESULTS = join(import.meta.dirname, '../../target/conformance');
/** The timeout of one run, in milliseconds. */
const TIMEOUT = 300_000;

/** Runs the scenarios that a revision requires against an endpoint; resolves to the number of expected failures. */
export async function conform(endpoint, revision) {
    const file = join(import.meta.dirname, `expected-failures-${revision}.yaml`);
    const expected = [...(await readFile(file, 'utf8')).matchAll(/^ +- (\S+)/gm)].map(([, entry]) => entry);
    const results = join(RESULTS, revision);
    await rm(results, { recursive: true, force: true });
    const { code, verdict } = await run(
        ['server', '--url', endpoint, '--requirements', revision, '--expected-failures', file, '-o', results],
    );
    if (code !== 0) assert.fail(`${verdict}\n${(await reasons(results, expected)).join('\n')}`);
    // The suite accepts an expectation whose check did not run: renamed, skipped or mistyped.
    const failed = [...verdict.matchAll(/^ {2}~ (\S+)$/gm)].map(([, entry]) => entry);
    assert.deepEqual(expected.toSorted(), failed.toSorted(), `${file} expects what did not run`);
    return failed.length;
}

/** Runs one scenario against an endpoint, all of whose checks must succeed; there must be some. */
export async function passes(endpoint, scenario, revision) {
    const results = join(RESULTS, `${revision}-${scenario}`);
    await rm(results, { recursive: true, force: true });
    await run(['server', '--url', endpoint, '--scenario', scenario, '--spec-version', revision, '-o', results]);
    const [folder] = await readdir(results);
    const checks = JSON.parse(await readFile(join(results, folder, 'checks.json'), 'utf8'));
    const failed = checks.filter(({ status }) => status !== 'SUCCESS');
    assert.deepEqual(failed, []);
    assert.ok(checks.length > 0);
}

/** Runs a scenario of an extension, none of whose checks may fail; some must succeed. */
export async function passesExtension(endpoint, scenario, revision) {
    const results = join(RESULTS, `${revision}-${scenario}`);
    await rm(results, { recursive: true, force: true });
    // Without --force a scenario that a revision does not know is skipped, and counts as passed.
    const which = ['--scenario', scenario, '--spec-version', revision, '--force'];
    await run(['server', '--url', endpoint, ...which, '-o', results]);
    const [folder] = await readdir(results);
    const checks = JSON.parse(await readFile(join(results, folder, 'checks.json'), 'utf8'));
    assert.deepEqual(checks.filter(({ status }) => !['SUCCESS', 'SKIPPED', 'INFO'].includes(status)), []);
    const passed = checks.filter(({ status }) => status === 'SUCCESS').length;
    assert.ok(passed > 0);
    return passed;
}

/** The messages of unexpected failures, including checks that the revision does not require. */
async function reasons(results, expected) {
    const lines = [];
    for (const folder of await readdir(results).catch(() => [])) {
        const [, scenario] = folder.match(/^server-(.*)-\d{4}-\d\d-\d\dT/);
        // Nothing is written if a scenario itself failed; then the verdict has the reason.
        const checks = await readFile(join(results, folder, 'checks.json'), 'utf8').catch(() => '[]');
        for (const { id, status, errorMessage } of JSON.parse(checks)) {
            const entry = `${scenario}:${id}`;
            const bad = status === 'FAILURE' || status === 'WARNING';
            if (bad && !expected.includes(entry)) lines.push(`${entry}: ${errorMessage ?? status}`);
        }
    }
    return lines;
}

/** The exit code of the suite and its summary; its whole output if it failed. */
function run(args) {
    const options = { timeout: TIMEOUT, maxBuffer: 64 * 1024 * 1024 };
    return new Promise(done => {
        execFile(process.execPath, [SUITE, ...args], options, (error, stdout, stderr) => {
            const output = stdout + stderr;
            const verdict = output.slice(Math.max(0, output.indexOf('\nTotal: ')));
            done({ code: error ? (error.code ?? error.signal) : 0, verdict });
        });
    });
}
