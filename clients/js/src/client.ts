/** `fetch` that keeps one key for each thing that is wanted, and goes on until there is a definite answer. */

import { GaveUp, IntentOver, IntentReused, Mismatch, NothingSent, OutcomeUnknown, Redirected, Rejected } from "./errors.js";
import { type Entry, type Journal, type KeptRequest, tooOld } from "./journal.js";
import { type Answer, errorOf, judge, operationOf, type Verdict } from "./judging.js";
import { madeAt, newKey } from "./keys.js";
import { Attempts, type Known, type Retries, retries, type Sent, type Step } from "./machine.js";

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
  /** There is a definite answer, and in `refused` it is no success. */
  done: string[];
  refused: string[];
  left: string[];
  waiting: string[];
  unresolved: string[];
  unsent: string[];
}

type Fetch = typeof fetch;

/** No connection was made: Node says why. */
const NOT_SENT = new Set(["ECONNREFUSED", "ENOTFOUND", "EAI_AGAIN", "ENETUNREACH", "EHOSTUNREACH", "UND_ERR_CONNECT_TIMEOUT"]);
const REDIRECTS = [301, 302, 303, 307, 308];
const KEEPS_METHOD = [307, 308];
/** Definite for the caller, and no end of the operation. */
const NO_END: Partial<Record<Verdict, string>> = { denied: "denied", stale: "older than the server keeps answers" };
const MOST_HOPS = 5;
const UNKNOWN = ["it may have happened", "Keep the key and ask again later with it; a new key could do it twice."] as const;

/** Timers take no more milliseconds, and fire at once if they get more. */
const LONGEST = 2 ** 31 - 1;

const sleep = (seconds: number, signal: AbortSignal | null | undefined) =>
  new Promise<void>((resolve, reject) => {
    signal?.throwIfAborted();
    const timer = setTimeout(resolve, Math.min(seconds * 1000, LONGEST));
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
  redirect: RequestRedirect;
  /** The most that may have happened until now. */
  known: Known;
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

  /**
   * One thing that somebody wants done: `work` gets a `fetch` that sends its key. It ends with a definite answer, or
   * when `work` ends well; where the `fetch` gave up, it stays open, whatever `work` does with the error.
   */
  async intent<T>(name: string, identity: (string | number)[], work: (fetch: Fetch, key: string) => Promise<T>): Promise<T> {
    const journal = this.journal();
    const { entry, first } = await journal.begin(name, identity);
    const done = await work(async (input, init) => this.guarded(new Request(input, init), init ?? {}, entry, first), entry.key);
    await journal.kept(journal.left(entry.key));
    return done;
  }

  /** Send every open operation of the journal again, each under its key, in order within its queue. */
  async resume(options: { headers?: Record<string, string>; queue?: string } = {}): Promise<Report> {
    const report: Report = { done: [], refused: [], left: [], waiting: [], unresolved: [], unsent: [] };
    const blocked = new Set<string>();
    for (const entry of await this.journal().pending(options.queue)) {
      const word = blocked.has(entry.queue) ? "waiting" : await this.resumed(entry, options.headers ?? {});
      if (word !== "done" && word !== "refused" && entry.queue !== "") blocked.add(entry.queue);
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
      await this.guarded(request, {}, entry, false, true);
    } catch (error) {
      if (error instanceof Redirected) await this.journal().troubled(entry.key, error.message);
      if (error instanceof GaveUp || error instanceof Redirected) return "left";
      throw error;
    }
    const now = await this.journal().look(entry.key);
    if (!now?.done) return "left";
    return (now.answer?.status ?? 0) >= 400 ? "refused" : "done";
  }

  private journal(): Journal {
    if (this.options.journal) return this.options.journal;
    throw new TypeError("no journal: new Client({ journal: new Journal(new IndexedDbStorage()) })");
  }

  private async guarded(request: Request, init: RequestInit, entry?: Entry, first = false, within = false): Promise<Response> {
    const body = new Uint8Array(await request.arrayBuffer());
    const given = this.given(request, body);
    if (given === "" && entry === undefined && !this.methods.includes(request.method)) return this.plain(request, body, init);
    const prepared = await this.prepared(request, body, init, given, entry, first);
    const kept = prepared.entry?.done ? this.kept(prepared.entry) : undefined;
    if (kept) return this.onward(kept, prepared, within);
    await this.options.journal?.sending(prepared.key, prepared.request);
    for (let hop = 0; ; hop++) {
      const response = await this.attempted(prepared);
      const next = redirected(response, prepared);
      if (hop === MOST_HOPS || next?.origin !== new URL(prepared.request.url).origin || !KEEPS_METHOD.includes(response.status)) {
        return this.onward(response, prepared, within);
      }
      // The same operation at another place.
      prepared.request = { ...prepared.request, url: next.href };
    }
  }

  /** Follow a redirect to another origin, or to what a POST has led to: without the key, and once. */
  private onward(response: Response, prepared: Prepared, within: boolean): Promise<Response> | Response {
    const { url, method, body } = prepared.request;
    const next = redirected(response, prepared);
    if (next === undefined) return response;
    const away = next.origin !== new URL(url).origin;
    const keeps = KEEPS_METHOD.includes(response.status);
    if (keeps && !away) return response; // too many of them
    if (within && away) throw new Redirected(`${url} redirects to ${next.host}, another server: it was not sent there`);
    if (within && !keeps) return response;
    const headers = new Headers(prepared.request.headers);
    const dropped = [this.header, ...(away ? ["authorization", "cookie"] : []), ...(keeps ? [] : ["content-type"])];
    for (const name of dropped) headers.delete(name);
    const init = { ...prepared.init, headers, signal: prepared.signal, redirect: "follow" as const };
    const { body: _, ...bare } = init;
    if (!keeps) return this.send(next.href, { ...bare, method: "GET" });
    const sent = this.options.member && body.length ? withoutMember(body, this.options.member) : body;
    return this.send(next.href, { ...bare, method, ...(sent.length ? { body: sent } : {}) });
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
    return { request: kept, key, ours, entry: known, signal: request.signal, init, redirect: request.redirect, known: ours || !known ? "nothing-sent" : "maybe-done" };
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
    if (this.journal().age(entry) >= this.journal().keepFor) throw tooOld(entry);
    return undefined;
  }

  private async attempted(prepared: Prepared): Promise<Response> {
    const made = prepared.ours ? undefined : madeAt(prepared.key);
    const age = prepared.entry ? this.journal().age(prepared.entry) : made === undefined ? undefined : Math.max(0, Date.now() - made) / 1000;
    const attempts = new Attempts(this.retries, age);
    attempts.known = prepared.known;
    let response: Response | undefined;
    let cause: unknown;
    for (;;) {
      let step: Step = attempts.next(performance.now() / 1000);
      if (step.do === "send") {
        const outcome = await this.once(prepared, step.left);
        if ("answer" in outcome) {
          response = outcome.response;
          step = attempts.answered(outcome.answer, performance.now() / 1000);
          prepared.known = attempts.known;
          if (step.do === "deliver") return this.delivered(prepared.key, outcome.response, outcome.bytes, step.verdict);
        } else {
          cause = outcome.error;
          step = attempts.failed(outcome.sent, performance.now() / 1000);
        }
      }
      if (step.do === "stop") throw await this.gaveUp(prepared, step, response, cause);
      if (step.do === "wait") await sleep(step.seconds, prepared.signal);
    }
  }

  private async once(prepared: Prepared, left: number | null): Promise<{ answer: Answer; response: Response; bytes: Uint8Array<ArrayBuffer> } | { sent: Sent; error: unknown }> {
    if (globalThis.navigator?.onLine === false) return { sent: "not-sent", error: new TypeError("offline") };
    const deadline = new AbortController();
    const stop = () => deadline.abort(prepared.signal?.reason);
    prepared.signal?.addEventListener("abort", stop);
    const timer = left === null ? undefined : setTimeout(() => deadline.abort(new DOMException("no time is left", "TimeoutError")), Math.min(left * 1000, LONGEST));
    let streams: boolean | undefined;
    try {
      prepared.signal?.throwIfAborted();
      const response = await this.sent(prepared, deadline.signal);
      streams = response.headers.get("content-type")?.startsWith("text/event-stream");
      const bytes = new Uint8Array(streams ? [] : await response.clone().arrayBuffer());
      const body = response.ok ? "" : new TextDecoder().decode(bytes);
      return { answer: { status: response.status, headers: response.headers, body }, response, bytes };
    } catch (error) {
      prepared.signal?.throwIfAborted();
      if (error instanceof Redirected || !(error instanceof TypeError || deadline.signal.aborted)) throw error;
      const cause = (error as Error).cause as { code?: string } | undefined;
      return { sent: NOT_SENT.has(cause?.code ?? "") ? "not-sent" : "maybe-sent", error };
    } finally {
      clearTimeout(timer);
      if (!streams) prepared.signal?.removeEventListener("abort", stop);
    }
  }

  /** Redirects are followed by hand: the key is not for strangers. */
  private async sent(prepared: Prepared, signal: AbortSignal): Promise<Response> {
    const { url, method, body, headers } = prepared.request;
    const init = { ...prepared.init, method, headers, signal, redirect: "manual" as const };
    const response = await this.send(url, body.length ? { ...init, body } : init);
    if (response.type === "opaqueredirect") {
      throw new Redirected(`${url} redirects, and the browser does not say where to: send to the final address`);
    }
    return response;
  }

  private async delivered(key: string, response: Response, body: Uint8Array<ArrayBuffer>, verdict: Verdict): Promise<Response> {
    const { journal } = this.options;
    const { status, headers } = response;
    const words = NO_END[verdict];
    if (!journal || (KEEPS_METHOD.includes(status) && headers.has("location"))) return response;
    if (words) await journal.kept(journal.troubled(key, `${words}, with ${status}`));
    else await journal.kept(journal.done(key, { status, headers: [...headers] as [string, string][], body }));
    return response;
  }

  private async gaveUp(prepared: Prepared, step: Step & { do: "stop" }, response: Response | undefined, cause: unknown): Promise<GaveUp> {
    const { journal } = this.options;
    await journal?.kept(journal.troubled(prepared.key, `${step.reason} after ${step.attempts} attempts`));
    const body = response ? await response.clone().text().catch(() => "") : "";
    const operation = response ? operationOf({ status: response.status, headers: response.headers, body }) : "";
    const facts = [prepared.key, step.attempts, step.reason, operation, response] as const;
    if (step.known === "maybe-done") {
      return new OutcomeUnknown(...facts, ...UNKNOWN, { cause });
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

/** Where a response leads to, if it is to be followed. */
function redirected(response: Response, prepared: Prepared): URL | undefined {
  const where = response.headers.get("location");
  if (where === null || !REDIRECTS.includes(response.status) || prepared.redirect === "manual") return undefined;
  if (!URL.canParse(where, prepared.request.url) || prepared.redirect === "error") {
    throw new Redirected(`${prepared.request.url} redirects to ${where}: send to the final address`);
  }
  return new URL(where, prepared.request.url);
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

function withoutMember(body: Uint8Array, member: string): Uint8Array<ArrayBuffer> {
  return new TextEncoder().encode(JSON.stringify({ ...objectIn(body), [member]: undefined }));
}

/** Return a success as it is; throw Mismatch or Rejected for a refusal, and for the rest what is known. */
export async function check(response: Response, key = ""): Promise<Response> {
  if (response.status < 400) return response;
  const answer = { status: response.status, headers: response.headers, body: await response.clone().text() };
  const body = errorOf(answer);
  const inner = body?.error as Record<string, unknown> | null | undefined;
  const said = String(body?.detail ?? body?.title ?? body?.message ?? inner?.message ?? "without a reason").slice(0, 300);
  const verdict = judge(answer);
  switch (verdict) {
    case "mismatch":
      throw new Mismatch(`the key belongs to another request, and nothing was done for this one (${said})`, response.status, response);
    case "denied":
      throw new Rejected(`the server did not let this caller in, with ${response.status} (${said}): bring other credentials, and send it again with the same key`, response.status, response);
    case "answer":
      throw new Rejected(`the server refused with ${response.status} (${said}): correct the request and send it as a new operation, with a new key`, response.status, response);
    case "over":
      throw new IntentOver(`it was done, and its answer is not kept (${said}): read what it made by other means, and send it neither with this key nor with a new one`);
    case "later":
    case "not-done":
      throw new GaveUp(key, 1, "attempts", operationOf(answer), response);
    default: {
      const reason = verdict === "stale" ? "age" : verdict === "stop" ? "told" : "attempts";
      throw new OutcomeUnknown(key, 1, reason, operationOf(answer), response, ...UNKNOWN);
    }
  }
}
