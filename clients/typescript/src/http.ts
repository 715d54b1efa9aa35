/** Requests to the administration API: sent, repeated where that is safe, and refused by name. */

import type { components } from './schema.js';

type Problem = components['schemas']['Problem'];

/** The statuses of a gateway that is busy or starting, or whose database is away. */
const BUSY = [429, 503];
/** The waits in ms before the second and later attempts, where the gateway names none: doubled from the first to the last. */
const FIRST_WAIT = 250;
const LAST_WAIT = 8_000;

/** A refusal of the gateway, or a gateway that cannot be reached. */
export class WaggleError extends Error {
    /** The stable name, such as `revision_mismatch`; `unreachable` if there is no answer. */
    readonly code: string;
    /** What was wrong, for people. */
    readonly detail: string;
    /** The status of the answer, if there is one. */
    readonly status: number | undefined;
    /** By which the operator finds the request in logs. */
    readonly requestId: string | undefined;

    constructor(code: string, detail: string, status?: number, requestId?: string, cause?: unknown) {
        super(`${detail} (${code})`, { cause });
        this.name = 'WaggleError';
        this.code = code;
        this.detail = detail;
        this.status = status;
        this.requestId = requestId;
    }
}

export interface Answer {
    status: number;
    headers: Headers;
    body: Uint8Array;
}

export interface Call {
    method: string;
    /** Below `/admin/v1`. */
    path: string;
    /** Bytes with their type, or JSON. */
    body?: unknown;
    contentType?: string;
    /** Preconditions. */
    condition?: Record<string, string> | undefined;
}

/** The address of a gateway, and a key. */
export class Transport {
    readonly #base: string;
    readonly #key: string;
    readonly #timeout: number;
    readonly #retry: number;

    constructor(url: string, key: string, timeout: number, retry: number) {
        const { protocol, search, hash, href } = new URL(url);
        if (!/^https?:$/.test(protocol) || search || hash) throw new TypeError(`expected a URL such as https://mcp.example.com, found ${url}`);
        if (!/^[!-~]+$/.test(key)) throw new TypeError('expected a key of the gateway');
        this.#base = `${href.replace(/\/+$/, '')}/admin/v1`;
        this.#key = key;
        this.#timeout = timeout;
        this.#retry = retry;
    }

    /**
     * Sends a request, and again while the gateway is busy, for the time of repetitions in all. A request whose answer was
     * lost is sent again too, unless it has a condition: the gateway may have carried it out, and would refuse the second.
     */
    async send(call: Call): Promise<Answer> {
        const deadline = performance.now() + this.#retry;
        for (let attempt = 0; ; attempt += 1) {
            let wait: number | undefined;
            try {
                const answer = await this.#exchange(call);
                if (BUSY.includes(answer.status)) wait = waitFor(attempt, deadline, answer.headers.get('retry-after'));
                // A database that was lost at the end of a write may have kept it.
                if (wait === undefined || (call.condition && answer.status !== 429)) return checked(answer);
            } catch (error) {
                if (error instanceof WaggleError) throw error;
                wait = waitFor(attempt, deadline, null);
                if (wait === undefined || (call.condition && !isRefused(error))) {
                    const reason = String((error as Error).cause ?? error);
                    throw new WaggleError('unreachable', `${call.method} ${call.path}: ${reason}`, undefined, undefined, error);
                }
            }
            await new Promise(resolve => setTimeout(resolve, wait));
        }
    }

    async #exchange({ method, path, body, contentType, condition }: Call): Promise<Answer> {
        const headers: Record<string, string> = { Authorization: `Bearer ${this.#key}`, Accept: 'application/json', ...condition };
        if (body !== undefined) headers['Content-Type'] = contentType ?? 'application/json';
        const answer = await fetch(this.#base + path, {
            method,
            headers,
            body: body === undefined ? null : contentType ? (body as BodyInit) : JSON.stringify(body),
            // The key would be sent to wherever a redirect leads.
            redirect: 'error',
            signal: AbortSignal.timeout(this.#timeout),
        });
        return { status: answer.status, headers: answer.headers, body: new Uint8Array(await answer.arrayBuffer()) };
    }
}

/** Whether nothing was sent, since no connection was made. */
function isRefused(error: unknown): boolean {
    const code = ((error as Error).cause as { code?: string } | undefined)?.code;
    return code === 'ECONNREFUSED' || code === 'ENOTFOUND';
}

/** Milliseconds before the next attempt; none if it would be too late. */
function waitFor(attempt: number, deadline: number, named: string | null): number | undefined {
    const own = Math.min(FIRST_WAIT * 2 ** attempt, LAST_WAIT) * (0.5 + Math.random() / 2);
    const wait = named && /^\d+$/.test(named) ? Math.max(Number(named) * 1000, own) : own;
    return performance.now() + wait < deadline ? wait : undefined;
}

function checked(answer: Answer): Answer {
    if (answer.status >= 200 && answer.status < 300) return answer;
    const requestId = answer.headers.get('x-request-id') ?? undefined;
    let problem: Partial<Problem> = {};
    try {
        problem = json<Problem>(answer);
    } catch {
        // Not an answer of the gateway, but of something before it.
    }
    const { code = 'unexpected_answer', detail = `the gateway answered ${answer.status}` } = problem;
    throw new WaggleError(code, detail, answer.status, requestId);
}

export function json<T>({ body }: Answer): T {
    return JSON.parse(new TextDecoder().decode(body)) as T;
}
