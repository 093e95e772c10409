/** `fetch` that keeps one key for each thing that is wanted, and goes on until there is a definite answer. */

import { GaveUp, IntentReused, Mismatch, NothingSent, OutcomeUnknown, Redirected, Rejected } from "./errors.js";
import { type Entry, type Journal, type KeptRequest, tooOld } from "./journal.js";
import { type Answer, errorOf, judge, operationOf } from "./judging.js";
import { madeAt, newKey } from "./keys.js";
import { Attempts, type Retries, retries, type Sent, type Step } from "./machine.js";

export interface ClientOptions {
  retries?: Partial<Retries>;
  /** Where the key travels; with `member` it is a member of the JSON body instead. */
  header?: string;
  quoted?: boolean;
  member?: string;
  /** Methods that get a key by themselves. */
  methods?: string[];
  journal?: Journal;
  /** What sends: `fetch`, or something like it. */
  fetch?: typeof fetch;
}

/** What became of the open operations of a journal: the keys of each kind. */
export interface Report {
  done: string[];
  left: string[];
  waiting: string[];
  unresolved: string[];
  unsent: string[];
}

type Fetch = typeof fetch;

/** No connection was made: Node says why. */
const NOT_SENT = new Set(["ECONNREFUSED", "ENOTFOUND", "EAI_AGAIN", "ENETUNREACH", "EHOSTUNREACH", "UND_ERR_CONNECT_TIMEOUT"]);
const KEEPS_METHOD = [307, 308];
const MOST_HOPS = 5;

const sleep = (seconds: number, signal: AbortSignal | null | undefined) =>
  new Promise<void>((resolve, reject) => {
    signal?.throwIfAborted();
    const timer = setTimeout(resolve, seconds * 1000);
    signal?.addEventListener("abort", () => (clearTimeout(timer), reject(signal.reason as Error)), { once: true });
  });

/** One request with its key, as it is sent each time. */
interface Prepared {
  request: KeptRequest;
  key: string;
  /** Made for this request, so that nobody can have sent it before. */
  ours: boolean;
  entry?: Entry | undefined;
  signal: AbortSignal | null;
  init: RequestInit;
}

export class Client {
  readonly retries: Retries;
  readonly header: string;
  private readonly methods: string[];
  private readonly send: Fetch;

  constructor(private readonly options: ClientOptions = {}) {
    this.retries = retries(options.retries);
    this.header = options.header ?? "Idempotency-Key";
    this.methods = (options.methods ?? ["POST", "PATCH"]).map((method) => method.toUpperCase());
    this.send = options.fetch ?? ((input, init) => fetch(input, init));
  }

  /** `fetch`: what is definite is returned, whatever its status; what is not is thrown. */
  readonly fetch: Fetch = async (input, init) => this.guarded(new Request(input, init), init ?? {});

  /** One thing that somebody wants done: `work` gets a `fetch` that sends its key. It ends when `work` does. */
  async intent<T>(name: string, identity: (string | number)[], work: (fetch: Fetch, key: string) => Promise<T>): Promise<T> {
    const journal = this.journal();
    const { entry, first } = await journal.begin(name, identity);
    const done = await work(async (input, init) => this.guarded(new Request(input, init), init ?? {}, entry, first), entry.key);
    await journal.done(entry.key);
    return done;
  }

  /** Send every open operation of the journal again, each under its key, in order within its queue. */
  async resume(options: { headers?: Record<string, string>; queue?: string } = {}): Promise<Report> {
    const report: Report = { done: [], left: [], waiting: [], unresolved: [], unsent: [] };
    const blocked = new Set<string>();
    for (const entry of await this.journal().pending(options.queue)) {
      const word = blocked.has(entry.queue) ? "waiting" : await this.resumed(entry, options.headers ?? {});
      if (word !== "done" && entry.queue !== "") blocked.add(entry.queue);
      report[word].push(entry.key);
    }
    return report;
  }

  private async resumed(entry: Entry, headers: Record<string, string>): Promise<keyof Report> {
    if (this.journal().unresolved(entry)) return "unresolved";
    if (entry.request === undefined) return "unsent";
    const { method, url, headers: kept, body } = entry.request;
    const request = new Request(url, { method, headers: kept, ...(body.length ? { body } : {}) });
    for (const [name, value] of Object.entries(headers)) request.headers.set(name, value);
    try {
      await this.guarded(request, {}, entry, false);
      return "done";
    } catch (error) {
      if (error instanceof GaveUp) return "left";
      throw error;
    }
  }

  private journal(): Journal {
    if (this.options.journal) return this.options.journal;
    throw new TypeError("no journal: new Client({ journal: new Journal(new IndexedDbStorage()) })");
  }

  private async guarded(request: Request, init: RequestInit, entry?: Entry, first = false): Promise<Response> {
    const body = new Uint8Array(await request.arrayBuffer());
    const given = this.given(request, body);
    if (given === "" && entry === undefined && !this.methods.includes(request.method)) return this.plain(request, body, init);
    const prepared = await this.prepared(request, body, init, given, entry, first);
    if (prepared.entry?.done) {
      const kept = this.kept(prepared.entry);
      if (kept) return kept;
    }
    await this.options.journal?.sending(prepared.key, prepared.request);
    return this.attempted(prepared);
  }

  private plain(request: Request, body: Uint8Array<ArrayBuffer>, init: RequestInit): Promise<Response> {
    return this.send(request.url, { ...init, method: request.method, headers: request.headers, signal: request.signal, ...(body.length ? { body } : {}) });
  }

  private async prepared(
    request: Request, body: Uint8Array<ArrayBuffer>, init: RequestInit, given: string, entry: Entry | undefined, first: boolean,
  ): Promise<Prepared> {
    const key = given || (entry?.key ?? newKey());
    const known = given !== "" || entry ? await this.options.journal?.look(key) : undefined;
    if (known && key === entry?.key) oneRequestOnly(known, request);
    const ours = known ? first && known.attempts === 0 : given === "";
    const headers = new Headers(request.headers);
    let sent = body;
    if (this.options.member) sent = withMember(body, this.options.member, key);
    else headers.set(this.header, this.options.quoted ? `"${key.replace(/["\\]/g, "\\$&")}"` : key);
    const kept = { method: request.method, url: request.url, headers: [...headers] as [string, string][], body: sent };
    return { request: kept, key, ours, entry: known, signal: request.signal, init };
  }

  private given(request: Request, body: Uint8Array): string {
    if (this.options.member) {
      if (!this.methods.includes(request.method)) return "";
      const found = objectIn(body)[this.options.member];
      return typeof found === "string" ? found : "";
    }
    const text = request.headers.get(this.header) ?? "";
    return this.options.quoted && /^".*"$/.test(text) ? text.slice(1, -1).replace(/\\(["\\])/g, "$1") : text;
  }

  private kept(entry: Entry): Response | undefined {
    const answer = entry.answer;
    if (answer?.body) {
      const empty = [204, 205, 304].includes(answer.status);
      const headers = answer.headers.filter(([name]) => !["content-encoding", "content-length"].includes(name));
      return new Response(empty ? null : answer.body, { status: answer.status, headers });
    }
    if (Date.now() - entry.madeAt >= this.journal().keepFor * 1000) throw tooOld(entry);
    return undefined;
  }

  private async attempted(prepared: Prepared): Promise<Response> {
    const made = prepared.ours ? undefined : madeAt(prepared.key);
    const since = prepared.entry?.madeAt ?? made;
    const attempts = new Attempts(this.retries, since === undefined ? undefined : Math.max(0, Date.now() - since) / 1000);
    attempts.known = prepared.ours || prepared.entry === undefined ? "nothing-sent" : "maybe-done";
    let response: Response | undefined;
    let cause: unknown;
    for (;;) {
      let step: Step = attempts.next(performance.now() / 1000);
      if (step.do === "send") {
        const outcome = await this.once(prepared);
        if ("answer" in outcome) {
          response = outcome.response;
          step = attempts.answered(outcome.answer, performance.now() / 1000);
          if (step.do === "deliver") return this.delivered(prepared.key, outcome.response, outcome.bytes);
        } else {
          cause = outcome.error;
          step = attempts.failed(outcome.sent, performance.now() / 1000);
        }
      }
      if (step.do === "stop") throw await this.gaveUp(prepared, step, response, cause);
      if (step.do === "wait") await sleep(step.seconds, prepared.signal);
    }
  }

  private async once(prepared: Prepared): Promise<{ answer: Answer; response: Response; bytes: Uint8Array<ArrayBuffer> } | { sent: Sent; error: unknown }> {
    if (globalThis.navigator?.onLine === false) return { sent: "not-sent", error: new TypeError("offline") };
    try {
      const response = await this.followed(prepared);
      const streams = response.headers.get("content-type")?.startsWith("text/event-stream");
      const bytes = new Uint8Array(streams ? [] : await response.clone().arrayBuffer());
      const body = response.ok ? "" : new TextDecoder().decode(bytes);
      return { answer: { status: response.status, headers: response.headers, body }, response, bytes };
    } catch (error) {
      prepared.signal?.throwIfAborted();
      if (!(error instanceof TypeError)) throw error;
      const cause = error.cause as { code?: string } | undefined;
      return { sent: NOT_SENT.has(cause?.code ?? "") ? "not-sent" : "maybe-sent", error };
    }
  }

  /** Redirects by hand: within the origin with the key, to another one without it. */
  private async followed(prepared: Prepared): Promise<Response> {
    let { url } = prepared.request;
    const headers = new Headers(prepared.request.headers);
    const { method, body } = prepared.request;
    for (let hop = 0; ; hop++) {
      const init = { ...prepared.init, method, headers, signal: prepared.signal, redirect: "manual" as const };
      const response = await this.send(url, body.length ? { ...init, body } : init);
      if (response.type === "opaqueredirect") {
        throw new Redirected(`${url} redirects, and the browser does not say where to: send to the final address`);
      }
      const where = response.headers.get("location");
      if (!KEEPS_METHOD.includes(response.status) || where === null || hop === MOST_HOPS) return response;
      const next = new URL(where, url);
      if (next.origin !== new URL(url).origin) for (const name of [this.header, "authorization", "cookie"]) headers.delete(name);
      url = next.href;
    }
  }

  private async delivered(key: string, response: Response, body: Uint8Array<ArrayBuffer>): Promise<Response> {
    await this.options.journal?.done(key, { status: response.status, headers: [...response.headers] as [string, string][], body });
    return response;
  }

  private async gaveUp(prepared: Prepared, step: Step & { do: "stop" }, response: Response | undefined, cause: unknown): Promise<GaveUp> {
    await this.options.journal?.troubled(prepared.key, `${step.reason} after ${step.attempts} attempts`);
    const body = response ? await response.clone().text().catch(() => "") : "";
    const operation = response ? operationOf({ status: response.status, headers: response.headers, body }) : "";
    const facts = [prepared.key, step.attempts, step.reason, operation, response] as const;
    if (step.known === "maybe-done") {
      return new OutcomeUnknown(...facts, "it may have happened", "Keep the key and ask again later with it; a new key could do it twice.", { cause });
    }
    if (step.known === "nothing-sent" && prepared.ours) {
      return new NothingSent(...facts, "no connection was made, so it has not happened", undefined, { cause });
    }
    return new GaveUp(...facts, undefined, undefined, { cause });
  }
}

function oneRequestOnly(entry: Entry, request: Request): void {
  const known = entry.request;
  if (known && (known.method !== request.method || new URL(known.url).pathname !== new URL(request.url).pathname)) {
    throw new IntentReused(
      `this intent has sent ${known.method} ${known.url}, and cannot send ${request.method} ${request.url} too: open another intent for it`,
    );
  }
}

function objectIn(body: Uint8Array): Record<string, unknown> {
  let found: unknown;
  try {
    found = JSON.parse(new TextDecoder().decode(body) || "{}");
  } catch {
    found = undefined;
  }
  if (typeof found === "object" && found !== null && !Array.isArray(found)) return found as Record<string, unknown>;
  throw new TypeError("the key travels in the body, and this body is no JSON object: send an object, or name a header instead");
}

function withMember(body: Uint8Array, member: string, key: string): Uint8Array<ArrayBuffer> {
  return new TextEncoder().encode(JSON.stringify({ ...objectIn(body), [member]: key }));
}

/** Return a success as it is; throw Mismatch or Rejected for a refusal. */
export async function check(response: Response): Promise<Response> {
  if (response.status < 400) return response;
  const answer = { status: response.status, headers: response.headers, body: await response.clone().text() };
  const body = errorOf(answer);
  const said = String(body?.detail ?? body?.title ?? body?.message ?? "without a reason");
  if (judge(answer) === "mismatch") {
    throw new Mismatch(`the key belongs to another request, and nothing was done for this one (${said})`, response.status, response);
  }
  throw new Rejected(`the server refused with ${response.status} (${said}): correct the request and send it as a new operation`, response.status, response);
}
