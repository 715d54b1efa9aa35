/** What one agent publishes. */

import { type Answer, Transport, WaggleError, json } from './http.js';
import type { components } from './schema.js';

type Schemas = components['schemas'];

/** How often a change is made again on what was written meanwhile. */
const MAX_CONFLICTS = 10;
/** Exponential backoff with jitter after a conflict, in ms: the wait is random, up to this times 2 to the number of conflicts. */
const CONFLICT_WAIT = 20;
/** Items that a list requests at once: the most that a gateway answers. */
const PAGE = 500;

/** A definition that was written. */
export interface Written {
    /** The revision that last changed it. A write of what is there already keeps it. */
    revision: number;
    /** Whether it is new. */
    created: boolean;
}

/** What was read, and the revision that last changed it. */
export interface Revised<T> {
    value: T;
    revision: number;
}

export interface Options {
    /** The URL of the gateway; that of `WAGGLE_URL` by default. */
    url?: string;
    /** The key, with the scope `registry`; that of `WAGGLE_KEY` by default. */
    key?: string;
    /** Milliseconds after which a request is given up. */
    timeout?: number;
    /** Milliseconds after which a request is no longer repeated. */
    retry?: number;
}

/** When a write proceeds: if this is the revision of what is there, or if nothing is. */
export interface Condition {
    ifRevision?: number;
    create?: boolean;
}

/** The definitions of one kind: resources by URI, templates by URI template, prompts by name. */
export class Definitions<Item, New> {
    protected readonly transport: Transport;
    readonly #base: string;
    readonly #query: string | undefined;

    constructor(transport: Transport, base: string, query?: string) {
        this.transport = transport;
        this.#base = base;
        this.#query = query;
    }

    protected path(key: string, below = ''): string {
        const name = encodeURIComponent(key);
        return this.#query ? `${this.#base}${below}?${this.#query}=${name}` : `${this.#base}/${name}`;
    }

    /** Writes a definition: what is there is replaced. A condition that does not hold is refused: `revision_mismatch`. */
    async put(key: string, definition: New, condition: Condition = {}): Promise<Written> {
        return written(await this.transport.send({ method: 'PUT', path: this.path(key), body: definition, condition: headers(condition) }));
    }

    /** Reads a definition with its content; `undefined` if it does not exist. */
    async get(key: string): Promise<Revised<Item> | undefined> {
        try {
            const answer = await this.transport.send({ method: 'GET', path: this.path(key) });
            return { value: json<Item>(answer), revision: revision(answer) };
        } catch (error) {
            if (isMissing(error)) return undefined;
            throw error;
        }
    }

    /** All definitions without their content, page by page. */
    async *list(): AsyncGenerator<Item, void, undefined> {
        let cursor: string | null | undefined;
        do {
            const more = cursor ? `&cursor=${encodeURIComponent(cursor)}` : '';
            const answer = await this.transport.send({ method: 'GET', path: `${this.#base}?limit=${PAGE}${more}` });
            const page = json<{ items: Item[]; nextCursor?: string | null }>(answer);
            yield* page.items;
            cursor = page.nextCursor;
        } while (cursor);
    }

    /** Replaces a definition by what `update` makes of it, and again if it was changed in between. */
    async change(key: string, update: (present: Item) => New): Promise<Written> {
        for (let attempt = 0; attempt < MAX_CONFLICTS; attempt += 1) {
            if (attempt > 0) await new Promise(resolve => setTimeout(resolve, Math.random() * CONFLICT_WAIT * 2 ** attempt));
            const found = await this.get(key);
            if (!found) throw new WaggleError('not_found', `there is no ${key}`, 404);
            // Answers have this member, and bodies do not.
            delete (found.value as { size?: unknown }).size;
            try {
                return await this.put(key, update(found.value), { ifRevision: found.revision });
            } catch (error) {
                if (!(error instanceof WaggleError && error.code === 'revision_mismatch')) throw error;
            }
        }
        throw new WaggleError('revision_mismatch', `${key} was changed by others ${MAX_CONFLICTS} times`, 412);
    }

    /** Deletes a definition. One that does not exist is deleted already. */
    async delete(key: string, condition: Pick<Condition, 'ifRevision'> = {}): Promise<void> {
        try {
            await this.transport.send({ method: 'DELETE', path: this.path(key), condition: headers(condition) });
        } catch (error) {
            if (!isMissing(error)) throw error;
        }
    }
}

/** The resources of an agent, by URI. */
export class Resources extends Definitions<Schemas['Resource'], Schemas['NewResource']> {
    /** Writes the content of a resource alone, as it is; a new resource is named after its URI. */
    async putContent(uri: string, content: Uint8Array | string, mimeType: string, condition: Pick<Condition, 'ifRevision'> = {}): Promise<Written> {
        const path = this.path(uri, '/content');
        return written(await this.transport.send({ method: 'PUT', path, body: content, contentType: mimeType, condition: headers(condition) }));
    }

    /** The content of a resource, as it is. */
    async content(uri: string): Promise<Uint8Array> {
        return (await this.transport.send({ method: 'GET', path: this.path(uri, '/content') })).body;
    }

    /** Notifies the subscribers of a resource without new content; resolves to the revision. */
    async touch(uri: string): Promise<number> {
        return revision(await this.transport.send({ method: 'POST', path: this.path(uri, '/touch') }));
    }
}

/** An agent of a gateway, whose catalog is changed with a key that has the scope `registry`. */
export class Agent {
    readonly #transport: Transport;
    readonly #base: string;
    readonly resources: Resources;
    readonly templates: Definitions<Schemas['Template'], Schemas['NewTemplate']>;
    readonly prompts: Definitions<Schemas['Prompt'], Schemas['NewPrompt']>;

    constructor(name: string, { url, key, timeout = 60_000, retry = 60_000 }: Options = {}) {
        this.#transport = new Transport(url ?? variable('WAGGLE_URL'), key ?? variable('WAGGLE_KEY'), timeout, retry);
        this.#base = `/agents/${encodeURIComponent(name)}`;
        this.resources = new Resources(this.#transport, `${this.#base}/resources`, 'uri');
        this.templates = new Definitions(this.#transport, `${this.#base}/templates`, 'uriTemplate');
        this.prompts = new Definitions(this.#transport, `${this.#base}/prompts`);
    }

    /** The whole catalog. */
    async manifest(): Promise<Revised<Schemas['Manifest']>> {
        const answer = await this.#transport.send({ method: 'GET', path: `${this.#base}/manifest` });
        return { value: json(answer), revision: revision(answer) };
    }

    /** Makes the catalog equal to a manifest, in one revision; with `dryRun`, says what that would change. */
    async apply(manifest: Schemas['NewManifest'], options: { dryRun?: boolean; ifRevision?: number } = {}): Promise<Schemas['Applied']> {
        const path = `${this.#base}/manifest${options.dryRun ? '?dryRun=true' : ''}`;
        return json(await this.#transport.send({ method: 'PUT', path, body: manifest, condition: headers(options) }));
    }
}

function variable(name: string): string {
    const value = process.env[name];
    if (!value) throw new TypeError(`the environment variable ${name} is not set`);
    return value;
}

function headers({ ifRevision, create }: Condition): Record<string, string> | undefined {
    if (create) return { 'If-None-Match': '*' };
    return ifRevision === undefined ? undefined : { 'If-Match': `"${ifRevision}"` };
}

function isMissing(error: unknown): boolean {
    return error instanceof WaggleError && error.code === 'not_found';
}

function written(answer: Answer): Written {
    return { revision: revision(answer), created: answer.status === 201 };
}

function revision(answer: Answer): number {
    // A compressed answer has a suffix after the revision.
    return Number.parseInt((answer.headers.get('etag') ?? '').replace(/^(?:W\/)?"/, ''), 10);
}
