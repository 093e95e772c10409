/**
 * The client's memory: which operations were begun, under which keys, and how they ended. An operation is stored
 * before its first request leaves, so that a page that is closed at any moment finds its key again.
 */

import { ClientError, IntentOver, JournalUnusable, OutcomeUnknown, QueueFull } from "./errors.js";
import { newKey } from "./keys.js";

/** A request as the journal keeps it. Credentials are left out. */
export interface KeptRequest {
  method: string;
  url: string;
  headers: [string, string][];
  body: Uint8Array<ArrayBuffer>;
}

/** An answer as the journal keeps it. */
export interface KeptAnswer {
  status: number;
  headers: [string, string][];
  body?: Uint8Array<ArrayBuffer>;
}

/** One operation. Instants are milliseconds since 1970. */
export interface Entry {
  id: string;
  name: string;
  identity: string[];
  key: string;
  done: boolean;
  madeAt: number;
  endedAt?: number;
  queue: string;
  attempts: number;
  trouble: string;
  request?: KeptRequest;
  answer?: KeptAnswer;
}

/** Where entries are kept. Each promise resolves when the change survives the end of the program. */
export interface Storage {
  /** Store an entry unless its id is there already; return what is there now. */
  add(entry: Entry): Promise<Entry>;
  /** Change the entry with this key, in one step; null leaves it as it is. */
  change(key: string, how: (entry: Entry) => Entry | null): Promise<void>;
  look(key: string): Promise<Entry | undefined>;
  all(): Promise<Entry[]>;
  remove(id: string): Promise<boolean>;
}

export interface JournalOptions {
  /** Seconds for which the server keeps answers: what is open for longer is unresolved, and never sent again. */
  keepFor?: number;
  /** Seconds for which finished operations are remembered. */
  rememberFor?: number;
  /** How many operations may be open. */
  atMost?: number;
}

const DAY = 86_400;
const MOST_KEPT = 262_144;
/** Clocks are corrected by seconds; what was made later than this from now says that the clock was set back. */
const FUTURE = 300;
const SECRET = /auth|cookie|token|secret|password|api-?key|signature|session/i;

const open = (headers: [string, string][]) => headers.filter(([name]) => !SECRET.test(name));

/** A key, and whether this is the first time that its intent is begun. */
export interface Begun {
  entry: Entry;
  first: boolean;
}

export class Journal {
  readonly keepFor: number;
  readonly rememberFor: number;
  readonly atMost: number;
  private last = 0;

  constructor(
    private readonly storage: Storage,
    options: JournalOptions = {},
  ) {
    this.keepFor = options.keepFor ?? DAY;
    this.rememberFor = options.rememberFor ?? 90 * DAY;
    this.atMost = options.atMost ?? 10_000;
    if (!(this.keepFor > 0 && this.rememberFor >= this.keepFor && this.atMost >= 1)) {
      throw new RangeError("a journal needs keepFor above 0, rememberFor not below keepFor, and atMost of at least 1");
    }
  }

  /** The key of an intent: the same name and identity have the same key, over restarts too. */
  async begin(name: string, identity: (string | number)[]): Promise<Begun> {
    if (name === "" || identity.length === 0) {
      throw new TypeError("an intent needs a name and whose it is: intent('checkout', [orderId], ...)");
    }
    const begun = await this.added(name, identity.map(String), newKey());
    if (!begun.first && this.age(begun.entry) >= this.keepFor) throw tooOld(begun.entry);
    return begun;
  }

  /** Keep a request that `resume` sends later, in order within its queue. The same intent is put once. */
  async put(name: string, identity: (string | number)[], request: KeptRequest, queue = "default"): Promise<string> {
    return (await this.added(name, identity.map(String), newKey(), request, queue)).entry.key;
  }

  private async added(name: string, identity: string[], key: string, request?: KeptRequest, queue = ""): Promise<Begun> {
    await this.prune();
    const kept = request && { ...request, headers: open(request.headers) };
    this.last = Math.max(Date.now(), this.last + 1); // what is begun in one millisecond has an order, too
    const id = JSON.stringify([name, ...identity]);
    const made: Entry = { id, name, identity, key, done: false, madeAt: this.last, queue, attempts: 0, trouble: "" };
    const entry = await usable(this.storage.add(kept ? { ...made, request: kept } : made));
    return { entry, first: entry.key === key };
  }

  private async prune(): Promise<void> {
    const entries = await usable(this.storage.all());
    const before = Date.now() - this.rememberFor * 1000;
    for (const entry of entries) if (entry.done && (entry.endedAt ?? 0) < before) await usable(this.storage.remove(entry.id));
    if (entries.filter((entry) => !entry.done).length >= this.atMost) {
      throw new QueueFull(`the journal holds ${this.atMost} open operations: resume them, or raise atMost`);
    }
  }

  /** A request is about to leave. */
  async sending(key: string, request: KeptRequest): Promise<void> {
    if ((await this.look(key)) === undefined) {
      await this.added(`${request.method} ${new URL(request.url).pathname}`, [key], key);
    }
    const kept = { ...request, headers: open(request.headers) };
    await this.changed(key, (entry) => ({ ...entry, attempts: entry.attempts + 1, request: entry.request ?? kept }));
  }

  /** The attempts ended without a definite answer. */
  troubled(key: string, trouble: string): Promise<void> {
    return this.changed(key, (entry) => ({ ...entry, trouble }));
  }

  /** There is a definite answer. */
  done(key: string, answer?: KeptAnswer): Promise<void> {
    return this.changed(key, (entry) => {
      const { request, ...rest } = entry;
      // Where it went is remembered, what was in it is not.
      const went = request && { request: { ...request, headers: [], body: new Uint8Array() } };
      const ended: Entry = { ...rest, ...went, done: true, endedAt: Date.now(), trouble: "" };
      if (answer === undefined) return ended;
      const { body, ...head } = answer;
      const kept: KeptAnswer = { ...head, headers: open(answer.headers) };
      return { ...ended, answer: body && body.length <= MOST_KEPT ? { ...kept, body } : kept };
    });
  }

  /** The work has ended well: that is the end, unless `fetch` knows better. */
  async left(key: string): Promise<void> {
    const entry = await this.look(key);
    if (entry?.trouble === "") await this.done(key);
  }

  /** What is written after the answer. If that fails, the operation stays open: safe, and no reason to throw. */
  async kept(write: Promise<void>): Promise<void> {
    await write.catch((error: unknown) => {
      if (!(error instanceof JournalUnusable)) throw error;
      console.warn(`an operation stays open although it has ended, and is asked for again later: ${error.message}`);
    });
  }

  private changed(key: string, how: (entry: Entry) => Entry): Promise<void> {
    return usable(this.storage.change(key, (entry) => (entry.done ? null : how(entry))));
  }

  /** The operation with this key. */
  look(key: string): Promise<Entry | undefined> {
    return usable(this.storage.look(key));
  }

  /** The operations without a definite answer, in the order in which they were begun. */
  async pending(queue?: string): Promise<Entry[]> {
    const entries = (await usable(this.storage.all())).filter((entry) => !entry.done && (queue ?? entry.queue) === entry.queue);
    return entries.sort((one, other) => one.madeAt - other.madeAt || (one.key < other.key ? -1 : 1));
  }

  /** Older than the server keeps answers: sending it again could run it as new. */
  unresolved(entry: Entry): boolean {
    return !entry.done && this.age(entry) >= this.keepFor;
  }

  /** How many seconds ago it was made; without an end, where the clock was set back since. */
  age(entry: Entry): number {
    const passed = (Date.now() - entry.madeAt) / 1000;
    return passed < -FUTURE ? Infinity : Math.max(0, passed);
  }

  /** Drop an operation that was settled by other means. */
  async forget(key: string): Promise<boolean> {
    const entry = await this.look(key);
    return entry !== undefined && usable(this.storage.remove(entry.id));
  }
}

/** The troubles of a storage, with what to do. */
async function usable<T>(work: Promise<T>): Promise<T> {
  try {
    return await work;
  } catch (error) {
    if (error instanceof ClientError) throw error;
    const said = error instanceof Error ? error.message : String(error);
    throw new JournalUnusable(`the journal cannot be used (${said}): what cannot be remembered is not sent; make room, or let this program write there`, { cause: error });
  }
}

/** What is thrown for an intent that the server may have forgotten. */
export function tooOld(entry: Entry): Error {
  if (!entry.done) return new OutcomeUnknown(entry.key, entry.attempts, "age", "", undefined, "it may have happened", "Find out by other means.");
  return new IntentOver(
    `the intent ${entry.name} of ${entry.identity.join(", ")} has ended, and the server no longer keeps its answer: ` +
      "read what it made by other means; for a new operation, use another identity",
  );
}
