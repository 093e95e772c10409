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
  | "stop" // it may have happened, and asking again will not tell
  | "denied" // the caller was not let in: same key, other credentials
  | "stale" // older than answers are kept, and not on record: it may have been done and forgotten
  | "over"; // it was done, and its answer is gone: neither this key again nor a new one

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
  "caller-unknown": "denied",
  "request-too-old": "stale",
  "key-expired": "over",
  "answer-not-kept": "over",
};
/** Its member `retry` says whether one of them may have had an effect. */
const EXHAUSTED = "attempts-exhausted";
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
const BY_STATUS: Record<number, Verdict> = {
  401: "denied", 403: "denied", 407: "denied", 408: "later", 409: "busy", 425: "later", 429: "later",
};
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
  if (slug !== null) return byName(slug, errorOf(answer)) ?? "answer";
  return byBody(errorOf(answer)) ?? byHint(answer, is) ?? byStatus(answer.status);
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

/** What a problem means: by its name, or, where that is new to us, by its next step. */
function byName(slug: string, body: Members | undefined): Verdict | undefined {
  const retry = typeof body?.retry === "string" ? body.retry : "";
  if (slug === EXHAUSTED) return retry === "new-key-safe" ? "answer" : "stop";
  return own(BY_SLUG, slug) ?? own(BY_RETRY, retry);
}

function byBody(body: Members | undefined): Verdict | undefined {
  if (body === undefined) return undefined;
  if (typeof body.retry === "string" && own(BY_RETRY, body.retry)) {
    return byName(String(body.type ?? "").split("/").pop() ?? "", body);
  }
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
      const code = own(found, name);
      if (typeof code === "string" || typeof code === "number") yield String(code).split("#").pop() ?? "";
    }
  }
}

function byHint(answer: Answer, is: (name: string, wanted: string) => boolean): Verdict | undefined {
  if (is("transient-error", "true")) return "later";
  for (const name of ["stripe-should-retry", "x-should-retry"]) {
    const found = byStatus(answer.status);
    if (is(name, "true")) return found === "answer" || found === "denied" ? "unknown" : found;
    if (is(name, "false")) return answer.status >= 500 ? "stop" : found === "denied" ? found : "answer";
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
  if (/^[0-9]+$/.test(text)) return Math.min(Number(text), LONGEST);
  const until = instant(text);
  if (until === undefined) return undefined;
  // The server's own clock where it tells: two wrong clocks make no difference then.
  return Math.max(0, (until - (instant(answer.headers.get("date") ?? "") ?? now)) / 1000);
}

const LONGEST = 999_999_999;
const DATE = /^[A-Z][a-z]{2}, ([0-9]{2}) ([A-Z][a-z]{2}) ([0-9]{4}) ([0-9]{2}):([0-9]{2}):([0-9]{2}) GMT$/;
const MONTHS = ["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"];

/** An HTTP date in the form that is written today (IMF-fixdate), in milliseconds since 1970. */
function instant(text: string): number | undefined {
  const found = DATE.exec(text.trim());
  if (found === null) return undefined;
  const [day, year, hour, minute, second] = [1, 3, 4, 5, 6].map((place) => Number(found[place])) as [number, number, number, number, number];
  const month = MONTHS.indexOf(found[2]!);
  const made = new Date(0);
  made.setUTCFullYear(year, month, day);
  const real = month >= 0 && year > 0 && hour < 24 && minute < 60 && made.getUTCMonth() === month && made.getUTCDate() === day;
  return real ? made.setUTCHours(hour, minute, Math.min(second, 59)) : undefined;
}

/** The short name that the server's logs have for the operation, or an empty text. */
export function operationOf(answer: Answer): string {
  const named = errorOf(answer)?.operation;
  return typeof named === "string" ? named : "";
}
