// Starts one gateway, registers the manifest with two of its agents, and runs the suite and the SDKs against it.

import { readFile } from 'node:fs/promises';
import { join } from 'node:path';
import { after, test } from 'node:test';
import { CLIENTS, CREDENTIALS, isRefused, isNotified, reads } from './clients.js';
import { fillsForms, fillsFormsInPython, lacksArguments } from './forms.js';
import { Gateway } from './gateway.js';
import { pushSkills, readsSkills } from './skills.js';
import { KINDS, isNotifiedOfChange, readsEachKind, readsEachKindInPython } from './sources.js';
import { conform, passes, passesExtension } from './suite.js';
import { asks, asksInPython, skip } from './tools.js';
import { Upstreams, registerSources } from './upstreams.js';

const REVISIONS = ['2025-11-25', '2026-07-28'];
const TOOLS = ['resources', 'prompts', 'prompt_tools'];

/** Creates an agent with a manifest; resolves to its MCP endpoint. */
async function agent(gateway, id, access, file = join(import.meta.dirname, 'manifest.json'), tools = TOOLS) {
    await gateway.admin('POST', '/agents', { id, tenant: 'acme', name: id, access, tools });
    const manifest = JSON.parse(await readFile(file, 'utf8'));
    await gateway.admin('PUT', `/agents/${id}/manifest`, { ...manifest, agent: id });
    return `${gateway.url}/${id}/mcp`;
}

const DEMO = join(import.meta.dirname, '../../config/demo/research.json');

/** Starts the gateway and registers a public agent, one with a valid and a revoked key, one that changes, and the demo. */
async function register(gateway) {
    await upstreams.start();
    await gateway.start({ WAGGLE_SOURCES__FILE_ROOTS: upstreams.root });
    await gateway.admin('POST', '/tenants', { id: 'acme', name: 'Acme' });
    const open = await agent(gateway, 'conformance', 'public');
    const keyed = await agent(gateway, 'keyed', 'key');
    const { key } = await gateway.admin('POST', '/agents/keyed/keys', { name: 'good' });
    const { id, key: revoked } = await gateway.admin('POST', '/agents/keyed/keys', { name: 'revoked' });
    await gateway.admin('DELETE', `/keys/${id}`);
    const changing = await agent(gateway, 'changing', 'key');
    const { key: changingKey } = await gateway.admin('POST', '/agents/changing/keys', { name: 'good' });
    const demo = await agent(gateway, 'research', 'key', DEMO, ['search', ...TOOLS]);
    const { key: demoKey } = await gateway.admin('POST', '/agents/research/keys', { name: 'good' });
    const skilled = await agent(gateway, 'skilled', 'public', DEMO);
    const skills = await agent(gateway, 'skills', 'public');
    await pushSkills(gateway, 'skills');
    const sourced = await registerSources(gateway, upstreams, 'sourced');
    return { sourced, skilled, skills, open, keyed, key, revoked, changing, changingKey, demo, demoKey };
}

const gateway = new Gateway();
const upstreams = new Upstreams();

async function stop() {
    upstreams.stop();
    await gateway.stop();
}

for (const signal of ['SIGINT', 'SIGTERM']) {
    process.once(signal, () => stop().finally(() => process.exit(1)));
}
after(stop);
const registered = await register(gateway).catch(async error => {
    await stop();
    throw error;
});
const { sourced, skilled, skills, open, keyed, key, revoked, changing, changingKey, demo, demoKey } = registered;

for (const revision of REVISIONS) {
    test(`the official suite passes at ${revision}`, async t => {
        t.diagnostic(`${await conform(open, revision)} checks failed, as expected`);
    });
}

for (const scenario of ['enumeration', 'manifest', 'directory']) {
    for (const revision of REVISIONS) {
        test(`the scenario sep-2640-skills-${scenario} passes at ${revision}`, async t => {
            t.diagnostic(`${await passesExtension(skilled, `sep-2640-skills-${scenario}`, revision)} checks passed`);
        });
    }
}
for (const mode of ['legacy', 'auto']) {
    test(`SkillsClient, connecting as ${mode}, reads every file of three skills`, () => readsSkills(skills, mode));
}

// Not among the scenarios that a revision requires.
test('the scenario http-header-validation passes at 2026-07-28', () =>
    passes(open, 'http-header-validation', '2026-07-28'));

/** Writes the text of a resource of the changing agent. */
async function write(uri, text) {
    const body = { name: 'watched', mimeType: 'text/plain', contents: [{ text }] };
    await gateway.admin('PUT', `/agents/changing/resources?uri=${encodeURIComponent(uri)}`, body);
}

test('SDK v2 in the modern era fills in the form of a prompt', () =>
    fillsForms(keyed, CREDENTIALS.Authorization(key)));

for (const [name, client] of Object.entries(CLIENTS)) {
    test(`${name} without forms is told which argument is missing`, () =>
        lacksArguments(client, keyed, CREDENTIALS.Authorization(key)));
    for (const [header, headers] of Object.entries(CREDENTIALS)) {
        test(`${name} reads everything with its key in ${header}`, () => reads(client, keyed, headers(key)));
        test(`${name} is notified of what it subscribed to with its key in ${header}`, () =>
            isNotified(client, changing, headers(changingKey), write));
        test(`${name} is refused with a revoked key in ${header}`, () => isRefused(client, keyed, headers(revoked)));
    }
}

for (const [name, client] of Object.entries(CLIENTS)) {
    test(`${name} reads content from a connection of each kind`, () => readsEachKind(client, sourced));
    for (const kind of KINDS) {
        test(`${name} is notified of content of the kind ${kind} that changed`, async t => {
            const change = text => upstreams.kinds[kind].change(text);
            t.diagnostic(`notified after ${await isNotifiedOfChange(client, sourced, kind, change)} ms`);
        });
    }
    test(`${name} answers questions by tools alone`, () => asks(client, demo, CREDENTIALS['X-Agent-API-Key'](demoKey)));
}
for (const mode of ['legacy', 'auto', '2026-07-28']) {
    test(`SDK for Python, connecting as ${mode}, answers questions by tools alone`, { skip }, () =>
        asksInPython(mode, demo, demoKey));
    test(`SDK for Python, connecting as ${mode}, reads content from a connection of each kind`, { skip }, () =>
        readsEachKindInPython(mode, sourced));
    test(`SDK for Python, connecting as ${mode}, fills in the form of a prompt`, { skip }, () =>
        fillsFormsInPython(mode, keyed, key));
}
