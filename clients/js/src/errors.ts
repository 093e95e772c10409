/** What the client throws. Each error says what is known, and what the caller may do. */

import type { Reason } from "./machine.js";

const ADVICE: Record<Reason, string> = {
  attempts: "all attempts are used up",
  time: "there is no time left for another attempt",
  budget: "the retry budget of this program is used up",
  age: "it is older than the server keeps answers, so sending it again could run it anew: it is unresolved",
  wait: "the server asks to wait longer than `obeyFor`",
  denied: "the server does not let this caller in any more: bring other credentials",
  told: "the server says that asking again does not help",
};

/** The root of what the client throws. */
export class ClientError extends Error {
  override name = "ClientError";
}

/** No attempt was taken on. The same key may be used again later. */
export class GaveUp extends ClientError {
  override name = "GaveUp";

  constructor(
    readonly key: string,
    readonly attempts: number,
    readonly reason: Reason,
    /** What the server's people call the operation, or an empty text. */
    readonly operation = "",
    /** The last answer, if there was one. */
    readonly response?: Response,
    state = "the server took on none of them",
    next = "Send it again later, with the same key.",
    options?: ErrorOptions,
  ) {
    const named = operation === "" ? "" : ` (the server calls it ${operation})`;
    const times = attempts === 1 ? "one attempt" : `${attempts} attempts`;
    super(`gave up on the operation with the key ${key}${named} after ${times}: ${ADVICE[reason]}; ${state}. ${next}`, options);
  }
}

/** No attempt left this machine: it has certainly not happened. */
export class NothingSent extends GaveUp {
  override name = "NothingSent";
}

/** It may have happened. Keep the key and ask again later with it, never with another. */
export class OutcomeUnknown extends GaveUp {
  override name = "OutcomeUnknown";
}

/** The server has refused, for good: correct the request, and send it as a new operation with a new key. */
export class Rejected extends ClientError {
  override name = "Rejected";

  constructor(
    message: string,
    readonly status: number,
    readonly response: Response,
  ) {
    super(message);
  }
}

/** The key was used for another request, and nothing was done for this one. */
export class Mismatch extends Rejected {
  override name = "Mismatch";
}

/** One intent was used for two different requests: each needs an intent of its own. */
export class IntentReused extends ClientError {
  override name = "IntentReused";
}

/** It was done, and nobody keeps its answer any more: neither this key again nor a new one. */
export class IntentOver extends ClientError {
  override name = "IntentOver";
}

/** The journal holds as many operations as it may. */
export class QueueFull extends ClientError {
  override name = "QueueFull";
}

/** What keeps the journal cannot be read or written. What cannot be remembered is not sent. */
export class JournalUnusable extends ClientError {
  override name = "JournalUnusable";
}

/** The server redirects the request, and the browser does not say where: the key must not go to strangers. */
export class Redirected extends ClientError {
  override name = "Redirected";
}
