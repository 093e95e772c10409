/** The client's half of idempotency: one key for each thing that is wanted, kept until there is a definite answer. */

export { check, Client, type ClientOptions, type Report } from "./client.js";
export * from "./errors.js";
export { type Entry, Journal, type JournalOptions, type KeptAnswer, type KeptRequest, type Storage } from "./journal.js";
export { type Answer, judge, retryAfter, type Verdict } from "./judging.js";
export { canonical, derived, newKey, randomKey, toolKey } from "./keys.js";
export { Attempts, Budget, type Known, type Reason, type Retries, retries, type Sent, type Step } from "./machine.js";
export { IndexedDbStorage, MemoryStorage } from "./storage.js";
