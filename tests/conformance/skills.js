// The client for skills of the official SDK: lists, gets and reads every file of three skills, each verified by its digest.

import assert from 'node:assert/strict';
import { randomBytes } from 'node:crypto';
import { Client, StreamableHTTPClientTransport } from '@modelcontextprotocol/client';
import { SkillsClient } from '@modelcontextprotocol/client/ext/skills';

/** The limits of a skill. */
const FILES = 512;
const BYTES = 16 * 1024 * 1024;

const skillMd = (name, description) => `---\nname: ${name}\ndescription: ${description}\n---\n# ${name}\n`;

/** The skills by their paths, each with its files. */
function skills() {
    const many = Array.from({ length: FILES - 1 }, (_, n) => ({ path: `parts/${n % 7}/${n}.txt`, text: `Part ${n}` }));
    const largeMd = skillMd('large', 'Has as many bytes as there may be');
    const large = randomBytes(BYTES - Buffer.byteLength(largeMd)).toString('base64');
    return {
        'acme/many': [{ path: 'SKILL.md', text: skillMd('many', 'Has as many files as there may be') }, ...many],
        large: [{ path: 'SKILL.md', text: largeMd }, { path: 'data.bin', blob: large }],
        'acme/chinese': [
            { path: 'SKILL.md', text: skillMd('chinese', '“退款” 的处理方法') },
            { path: '参考/政策 1.md', text: '# 政策\n' },
            { path: 'Q&A #1.md', text: 'Q' },
        ],
    };
}

/** Registers the three skills with an agent. */
export async function pushSkills(gateway, agent) {
    for (const [path, files] of Object.entries(skills())) {
        await gateway.admin('PUT', `/agents/${agent}/skills?path=${encodeURIComponent(path)}`, { files });
    }
}

/** Reads everything of the three skills, with a client that negotiates in a mode. */
export async function readsSkills(endpoint, mode) {
    const client = new Client({ name: 'waggle-tests', version: '1.0.0' }, {
        enforceStrictCapabilities: true,
        versionNegotiation: { mode },
    });
    await client.connect(new StreamableHTTPClientTransport(new URL(endpoint)));
    try {
        const reader = new SkillsClient(client);
        assert.ok(reader.supported && reader.directoryRead);
        const { skills: listed } = await reader.list();
        const uris = ['skill://acme/chinese/SKILL.md', 'skill://acme/many/SKILL.md', 'skill://large/SKILL.md'];
        assert.deepEqual(listed.map(({ uri }) => uri), uris);
        let files = 0;
        for (const entry of listed) {
            assert.deepEqual((await reader.get(entry.uri)).skill, entry);
            for (const { uri } of entry.resources) {
                assert.equal((await reader.read(entry, uri)).verified, true);
                files += 1;
            }
        }
        assert.equal(files, FILES + 2 + 3);
        const { resources } = await reader.readDirectory('skill://acme');
        assert.deepEqual(resources.map(({ name, mimeType }) => [name, mimeType]), [
            ['chinese', 'inode/directory'],
            ['many', 'inode/directory'],
        ]);
    } finally {
        await client.close();
    }
}
