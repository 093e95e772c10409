/**
 * What an answer says about the operation. The first rule that knows the answer decides: a replay, OnceKey's own
 * header, the problem's member `retry`, a provider's error code, a hint, the status. The same table as in
 * src/oncekey/client/judging.py; clients/vectors/decisions.json holds both to it.
 */

/** What one answer means for the operation. */
export type Verdict =
  | "answer" // definite, whatever its status
  | "mismatch" // the key belongs to another request
  | "busy" // the first attempt is running
  | "not-done" // the keeper of the key says that nothing has happened
  | "later" // this request was turned away; of earlier ones it says nothing
  | "unknown" // it may have happened: same key, later
  | "stop"; // it may have happened, and asking again will not tell

/** The parts of a response that decide. */
export interface Answer {
  status: number;
  headers: { get(name: string): string | null };
  body: string;
}

const BY_SLUG: Record<string, Verdict> = {
  "key-reused": "mismatch",
  "in-progress": "busy",
  "lease-lost": "busy",
  "outcome-unknown": "unknown",
  "retry-later": "not-done",
  "not-executed": "not-done",
  "store-unavailable": "later",
  "record-unreadable": "unknown",
  "body-incomplete": "later",
};
const BY_RETRY: Record<string, Verdict> = { "same-key-later": "unknown", "new-key-safe": "answer", never: "answer" };
const BY_CODE: Record<string, Verdict> = {
  idempotency_key_in_use: "busy",
  idempotency_error: "mismatch",
  IDEMPOTENCY_KEY_REUSED: "mismatch",
  PREVIOUS_REQUEST_IN_PROGRESS: "busy",
  DUPLICATE_REQUEST_ID: "mismatch",
  "704": "busy",
  "703": "later",
  IdempotentParameterMismatch: "mismatch",
  IdempotentParameterMismatchException: "mismatch",
  IdempotencyParameterMismatch: "mismatch",
  TransactionInProgressException: "busy",
  IdempotentCallInProgressFault: "busy",
};
const CODE_MEMBERS = ["code", "type", "name", "issue", "errorCode", "__type", "Code"];
const BY_STATUS: Record<number, Verdict> = { 408: "later", 409: "busy", 425: "later", 429: "later" };
const HOPELESS = [501, 505, 510, 511];
const MOST_READ = 65_536;

type Members = Record<string, unknown>;

const own = <T>(table: Record<string, T>, name: string): T | undefined =>
  Object.prototype.hasOwnProperty.call(table, name) ? table[name] : undefined;

const members = (value: unknown): Members | undefined =>
  typeof value === "object" && value !== null && !Array.isArray(value) ? (value as Members) : undefined;

/** What this answer means. */
export function judge(answer: Answer): Verdict {
  if (answer.status >= 200 && answer.status < 400) return "answer";
  const is = (name: string, wanted: string) => answer.headers.get(name)?.toLowerCase() === wanted;
  if (is("idempotency-replayed", "true") || is("idempotent-replayed", "true")) {
    return answer.status >= 500 ? "stop" : "answer";
  }
  const slug = answer.headers.get("idempotency-problem");
  if (slug !== null) return own(BY_SLUG, slug) ?? "answer";
  return byBody(answer) ?? byHint(answer, is) ?? byStatus(answer.status);
}

/** The JSON object of an error's body, if it is one. */
export function errorOf(answer: Answer): Members | undefined {
  if (answer.body === "" || answer.body.length > MOST_READ) return undefined;
  try {
    return members(JSON.parse(answer.body));
  } catch {
    return undefined;
  }
}

function byBody(answer: Answer): Verdict | undefined {
  const body = errorOf(answer);
  if (body === undefined) return undefined;
  const retry = typeof body.retry === "string" ? own(BY_RETRY, body.retry) : undefined;
  if (retry !== undefined) return own(BY_SLUG, String(body.type ?? "").split("/").pop() ?? "") ?? retry;
  for (const code of codes(body)) {
    const verdict = own(BY_CODE, code);
    if (verdict !== undefined) return verdict;
  }
  return undefined;
}

/** The error codes in the few places where providers put them. */
function* codes(body: Members): Generator<string> {
  const places: unknown[] = [body, body.error, body.Error];
  for (const inner of [body.errors, body.details]) if (Array.isArray(inner)) places.push(...inner);
  for (const place of places) {
    const found = members(place);
    if (found === undefined) continue;
    for (const name of CODE_MEMBERS) {
      // AWS writes `namespace#Name`.
      if (name in found) yield String(found[name]).split("#").pop() ?? "";
    }
  }
}

function byHint(answer: Answer, is: (name: string, wanted: string) => boolean): Verdict | undefined {
  if (is("transient-error", "true")) return "later";
  for (const name of ["stripe-should-retry", "x-should-retry"]) {
    if (is(name, "true")) return BY_STATUS[answer.status] ?? "unknown";
    if (is(name, "false")) return answer.status >= 500 ? "stop" : "answer";
  }
  return undefined;
}

function byStatus(status: number): Verdict {
  if (status >= 500 && !HOPELESS.includes(status)) return "unknown";
  return BY_STATUS[status] ?? "answer";
}

/** How many seconds the server asks to wait. `now` is in milliseconds, for servers that name a date. */
export function retryAfter(answer: Answer, now: number): number | undefined {
  const text = (answer.headers.get("retry-after") ?? "").trim();
  if (/^[0-9]+$/.test(text)) return Number(text.slice(0, 9));
  const until = /[a-z]/i.test(text) ? Date.parse(text) : NaN;
  if (Number.isNaN(until)) return undefined;
  // The server's own clock where it tells: two wrong clocks make no difference then.
  const moment = Date.parse(answer.headers.get("date") ?? "");
  return Math.max(0, (until - (Number.isNaN(moment) ? now : moment)) / 1000);
}

/** The short name that the server's logs have for the operation, or an empty text. */
export function operationOf(answer: Answer): string {
  const named = errorOf(answer)?.operation;
  return typeof named === "string" ? named : "";
}
