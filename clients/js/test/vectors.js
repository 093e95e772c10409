/** What this client does with a case of clients/vectors, beside what it should do. Used in Node and in Chromium. */

import { Attempts, Budget, derived, judge, retries, retryAfter, toolKey } from "../dist/index.js";

const answer = (one) => ({ status: one.status, headers: new Headers(one.headers), body: one.body });

export function decision(one) {
  const found = { verdict: judge(answer(one)), retryAfter: retryAfter(answer(one), 0) };
  return { found, expected: { verdict: one.verdict, retryAfter: one.retry_after } };
}

const camel = (name) => name.replace(/_(.)/g, (_, letter) => letter.toUpperCase());

const told = (step) => {
  if (step.do === "send") return { send: step.number };
  if (step.do === "wait") return { wait: Math.round(step.seconds * 1e6) / 1e6 };
  if (step.do === "deliver") return { deliver: step.verdict };
  return { stop: step.reason, known: step.known, attempts: step.attempts };
};

export function conversation(one) {
  let clock = 0;
  const budget = one.budget ? new Budget(one.budget.size, 0.1, one.budget.refill_for) : null;
  const chosen = Object.fromEntries(Object.entries(one.retries).map(([name, value]) => [camel(name), value]));
  const attempts = new Attempts(retries({ ...chosen, budget }), one.age, () => one.chance, () => clock * 1000);
  const found = one.steps.map((step) => {
    clock = step.clock ?? clock;
    if (step.event === "next") return told(attempts.next(step.at));
    if (step.event === "answer") return told(attempts.answered(answer(step), step.at));
    return told(attempts.failed(step.sent, step.at));
  });
  return { found, expected: one.steps.map((step) => step.expect) };
}

export const keyOf = (one) => (one.kind === "derived" ? derived(...one.of) : toolKey(...one.of));
