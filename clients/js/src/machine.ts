/**
 * The attempts of one request, without input or output: what to do next, given what just happened. Times are seconds
 * of one clock. The same machine as in src/oncekey/client/machine.py; clients/vectors/attempts.json holds both to it.
 */

import { type Answer, judge, retryAfter, type Verdict } from "./judging.js";

/** A bucket of retries that all requests of a program share: each retry takes one out. */
export class Budget {
  left: number;
  private lookedAt: number | undefined;

  constructor(
    readonly size = 100,
    readonly earned = 0.1,
    readonly refillFor = 10,
  ) {
    if (!(size >= 1 && earned >= 0 && refillFor > 0)) {
      throw new RangeError("a budget needs a size of at least 1, earned of at least 0, refillFor above 0");
    }
    this.left = size;
  }

  /** A request was answered at once. */
  earn(): void {
    this.left = Math.min(this.size, this.left + this.earned);
  }

  /** Take one retry out, if there is one. */
  spend(now: number): boolean {
    if (this.lookedAt !== undefined) {
      this.left = Math.min(this.size, this.left + Math.max(0, now - this.lookedAt) / this.refillFor);
    }
    this.lookedAt = now;
    if (this.left < 1) return false;
    this.left -= 1;
    return true;
  }
}

/** How long and how often one request is tried. Durations are seconds; null is no limit. */
export interface Retries {
  attempts: number | null;
  /** In all: an attempt that is still without an answer then is given up. */
  tryFor: number | null;
  waitFor: number;
  longestWaitFor: number;
  /** A longer Retry-After ends the attempts. */
  obeyFor: number;
  /** How long the server keeps answers: an operation that is older is never sent again. */
  keepFor: number | null;
  budget: Budget | null;
}

const SHARED = new Budget();

const DEFAULTS: Retries = {
  attempts: 8,
  tryFor: 120,
  waitFor: 0.25,
  longestWaitFor: 20,
  obeyFor: 60,
  keepFor: 86_400,
  budget: SHARED,
};

/** The defaults, with what was chosen; what makes no sense is refused. */
export function retries(chosen: Partial<Retries> = {}): Retries {
  const made = { ...DEFAULTS, ...chosen };
  if (made.attempts !== null && !(made.attempts >= 1)) {
    throw new RangeError(`attempts: ${made.attempts} sends nothing: write at least 1, or null for no limit`);
  }
  for (const name of ["tryFor", "waitFor", "longestWaitFor", "obeyFor", "keepFor"] as const) {
    const seconds = made[name];
    if (seconds === null && (name === "tryFor" || name === "keepFor")) continue;
    if (!(typeof seconds === "number" && seconds > 0 && Number.isFinite(seconds))) {
      throw new RangeError(`${name}: ${String(seconds)} is no duration: write seconds, more than 0`);
    }
  }
  return made;
}

/** What is known of a request that got no answer. */
export type Sent = "not-sent" | "maybe-sent";
/** The most that may have happened to an operation, over all its attempts. */
export type Known = "nothing-sent" | "turned-away" | "maybe-done";
/** Why no further attempt is made. */
export type Reason = "attempts" | "time" | "budget" | "age" | "wait" | "denied" | "told";

export type Step =
  | { do: "send"; number: number; left: number | null }
  | { do: "wait"; seconds: number }
  | { do: "deliver"; verdict: Verdict }
  | { do: "stop"; reason: Reason; known: Known; attempts: number };

const DEFINITE: Verdict[] = ["answer", "mismatch", "over"];
const ORDER: Known[] = ["nothing-sent", "turned-away", "maybe-done"];
/** Definite for this request; of an earlier attempt that may have arrived they say nothing. */
const TURNED_AWAY: Partial<Record<Verdict, Reason>> = { denied: "denied", stale: "age" };
const MEANING: Partial<Record<Verdict, Known>> = { "not-done": "turned-away", later: "turned-away" };

/** One request's attempts: `next`, then `answered` or `failed`, and after a wait `next` again. */
export class Attempts {
  number = 0;
  known: Known;
  private began: number | undefined;
  private beganAt = 0;

  constructor(
    readonly terms: Retries = retries(),
    /** How old the operation is, in seconds, if an earlier program may have sent it. */
    readonly age?: number,
    private readonly chance: () => number = Math.random,
    private readonly clock: () => number = Date.now,
  ) {
    this.known = age === undefined ? "nothing-sent" : "maybe-done";
  }

  /** Say whether it may be sent now. */
  next(now: number): Step {
    if (this.began === undefined) [this.began, this.beganAt] = [now, this.clock()];
    const limit = this.terms.keepFor;
    // A monotonic clock stands still while the machine sleeps; the server's memory does not.
    const passed = Math.max(now - this.began, (this.clock() - this.beganAt) / 1000);
    if (limit !== null && (this.age ?? 0) + passed >= limit) return this.stop("age");
    const left = this.terms.tryFor === null ? null : this.terms.tryFor - (now - this.began);
    if (left !== null && left <= 0) return this.stop("time");
    this.number += 1;
    return { do: "send", number: this.number, left };
  }

  /** An answer has come, whole. */
  answered(answer: Answer, now: number): Step {
    const verdict = judge(answer);
    const away = TURNED_AWAY[verdict];
    if (away !== undefined && this.known === "maybe-done") return this.stop(away);
    if (away !== undefined || DEFINITE.includes(verdict)) {
      if (this.number === 1) this.terms.budget?.earn();
      return { do: "deliver", verdict };
    }
    const meaning = MEANING[verdict] ?? "maybe-done";
    const more = ORDER.indexOf(meaning) > ORDER.indexOf(this.known);
    if (verdict === "not-done" || more) this.known = meaning;
    if (verdict === "stop") return this.stop("told");
    return this.wait(now, retryAfter(answer, this.clock()), verdict === "busy");
  }

  /** No answer has come, or a part of one. */
  failed(sent: Sent, now: number): Step {
    if (sent === "maybe-sent") this.known = "maybe-done";
    return this.wait(now, undefined, false);
  }

  private wait(now: number, asked: number | undefined, free: boolean): Step {
    const terms = this.terms;
    if (terms.attempts !== null && this.number >= terms.attempts) return this.stop("attempts");
    if (asked !== undefined && asked > terms.obeyFor) return this.stop("wait");
    // Full jitter, on top of what the server asks for: the clients of one outage do not come back together.
    const bound = Math.min(terms.longestWaitFor, terms.waitFor * 2 ** Math.min(this.number - 1, 60));
    const seconds = (asked ?? 0) + this.chance() * bound;
    if (terms.tryFor !== null && now - (this.began ?? now) + seconds > terms.tryFor) return this.stop("time");
    if (!free && terms.budget !== null && !terms.budget.spend(now)) return this.stop("budget");
    return { do: "wait", seconds };
  }

  private stop(reason: Reason): Step {
    return { do: "stop", reason, known: this.known, attempts: this.number };
  }
}
