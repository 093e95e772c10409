import assert from "node:assert/strict";
import { mkdtempSync, readdirSync, readFileSync, statSync, writeFileSync } from "node:fs";
import { createServer } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";
import test from "node:test";

import {
  check, Client, GaveUp, IntentOver, IntentReused, Journal, JournalUnusable, MemoryStorage, Mismatch, NothingSent, OutcomeUnknown, QueueFull, Rejected,
} from "../dist/index.js";
import { FolderStorage } from "../dist/node.js";

const QUICK = { attempts: 5, waitFor: 0.001, longestWaitFor: 0.002, budget: null };
const PAY = { method: "POST", headers: { "Content-Type": "application/json" }, body: '{"amount":10}' };

const reply = (status, body = "", headers = {}) =>
  [`HTTP/1.1 ${status} Thing`, `Content-Length: ${Buffer.byteLength(body)}`, "Connection: close"]
    .concat(Object.entries(headers).map(([name, value]) => `${name}: ${value}`), "", body).join("\r\n");
const CREATED = reply(201, '{"id":"a"}', { "Content-Type": "application/json" });
const DROP = "";
const HANG = "never";
const CUT_IN_HEADERS = "HTTP/1.1 201 Created\r\nContent-Type: application/js";
const CUT_IN_BODY = 'HTTP/1.1 201 Created\r\nContent-Length: 50\r\n\r\n{"id": "a';

/** A server on a real socket that misbehaves by a script, and notes what it was sent. */
async function scripted(t, ...script) {
  const seen = [];
  const server = createServer((socket) => {
    let got = "";
    socket.on("error", () => undefined);
    socket.on("data", (data) => {
      got += data.toString("latin1");
      const [head, body] = got.split("\r\n\r\n");
      const length = Number(/content-length: (\d+)/i.exec(head)?.[1] ?? 0);
      if (body === undefined || body.length < length) return;
      const lines = head.split("\r\n");
      const headers = Object.fromEntries(lines.slice(1).map((line) => [line.split(": ")[0].toLowerCase(), line.slice(line.indexOf(": ") + 2)]));
      const answer = script[Math.min(seen.length, script.length - 1)];
      seen.push({ path: lines[0].split(" ")[1], headers, body });
      if (answer !== HANG) socket.end(answer);
    });
  });
  await new Promise((resolve) => server.listen(0, "127.0.0.1", resolve));
  const open = new Set();
  server.on("connection", (socket) => open.add(socket));
  t.after(() => (server.close(), open.forEach((socket) => socket.destroy())));
  return { url: `http://127.0.0.1:${server.address().port}`, seen, keys: () => seen.map((one) => one.headers["idempotency-key"]) };
}

const client = (options = {}) => new Client({ retries: QUICK, ...options });
const folder = () => mkdtempSync(join(tmpdir(), "oncekey-js-"));
const older = async (storage, seconds) => {
  for (const entry of await storage.all()) await storage.change(entry.key, (one) => ({ ...one, madeAt: one.madeAt - seconds * 1000 }));
};

for (const [name, trouble] of Object.entries({ DROP, CUT_IN_HEADERS, CUT_IN_BODY, 503: reply(503), 409: reply(409, "", { "Retry-After": "0" }) })) {
  test(`one key for all attempts: ${name}`, async (t) => {
    const server = await scripted(t, trouble, trouble, CREATED);
    const response = await client().fetch(`${server.url}/pay`, PAY);
    assert.deepEqual([response.status, await response.json()], [201, { id: "a" }]);
    assert.equal(server.seen.length, 3);
    assert.equal(new Set(server.keys()).size, 1);
    assert.match(server.keys()[0], /^[0-9a-f]{8}-[0-9a-f]{4}-7/);
    assert.ok(server.seen.every((one) => one.body === PAY.body));
  });
}

test("definite answers are returned at once", async (t) => {
  for (const status of [201, 204, 400, 404, 422]) {
    const server = await scripted(t, reply(status));
    assert.equal((await client().fetch(server.url, PAY)).status, status);
    assert.equal(server.seen.length, 1);
  }
});

test("a given key is kept, and a GET gets none", async (t) => {
  const server = await scripted(t, DROP, CREATED, reply(503));
  await client().fetch(server.url, { ...PAY, headers: { "Idempotency-Key": "order-17" } });
  assert.equal((await client().fetch(server.url)).status, 503);
  assert.deepEqual(server.keys(), ["order-17", "order-17", undefined]);
});

test("redirects keep the key within the origin, and drop it beyond", async (t) => {
  const stranger = await scripted(t, CREATED);
  const server = await scripted(t, reply(307, "", { Location: "/there" }), CREATED, reply(307, "", { Location: `${stranger.url}/there` }));
  assert.equal((await client().fetch(`${server.url}/pay`, PAY)).status, 201);
  assert.equal(new Set(server.keys()).size, 1);
  assert.equal((await client().fetch(`${server.url}/pay`, { ...PAY, headers: { Authorization: "Bearer t" } })).status, 201);
  assert.deepEqual([stranger.keys(), stranger.seen[0].headers.authorization], [[undefined], undefined]);
});

test("what is known is thrown", async (t) => {
  const server = await scripted(t, reply(409, JSON.stringify({ type: "x/outcome-unknown", retry: "same-key-later", operation: "ok_12" })));
  const unknown = await client().fetch(server.url, PAY).catch((error) => error);
  assert.ok(unknown instanceof OutcomeUnknown);
  assert.deepEqual([unknown.key, unknown.operation, unknown.attempts], [server.keys()[0], "ok_12", 5]);
  const nowhere = await new Promise((resolve) => {
    const closed = createServer().listen(0, "127.0.0.1", () => {
      const url = `http://127.0.0.1:${closed.address().port}/`;
      closed.close(() => resolve(url));
    });
  });
  await assert.rejects(client().fetch(nowhere, PAY), NothingSent);
  const given = await client().fetch(nowhere, { ...PAY, headers: { "Idempotency-Key": "mine" } }).catch((error) => error);
  assert.ok(given instanceof GaveUp && !(given instanceof NothingSent) && !(given instanceof OutcomeUnknown));
});

test("an abort is an abort", async (t) => {
  const server = await scripted(t, DROP);
  const slow = client({ retries: { waitFor: 30, longestWaitFor: 30 } });
  await assert.rejects(slow.fetch(server.url, { ...PAY, signal: AbortSignal.timeout(100) }), { name: "TimeoutError" });
});

test("the key in the body, and quoted", async (t) => {
  const server = await scripted(t, DROP, CREATED);
  await client({ member: "idempotency_key" }).fetch(server.url, PAY);
  assert.equal(server.seen[0].body, server.seen[1].body);
  assert.deepEqual(Object.keys(JSON.parse(server.seen[0].body)), ["amount", "idempotency_key"]);
  await client({ quoted: true }).fetch(server.url, PAY);
  assert.match(server.keys().at(-1), /^".*"$/);
});

test("check says what a refusal is", async () => {
  const taken = new Response("{}", { status: 422, headers: { "Idempotency-Problem": "key-reused" } });
  await assert.rejects(check(taken), Mismatch);
  await assert.rejects(check(new Response('{"detail":"no money"}', { status: 402 })), (error) => error instanceof Rejected && /no money/.test(error.message));
  assert.equal((await check(new Response("", { status: 201 }))).status, 201);
});

test("an intent has one key over restarts, and its answer afterwards", async (t) => {
  const place = folder();
  const server = await scripted(t, DROP, DROP, CREATED);
  const run = () => client({ journal: new Journal(new FolderStorage(place)), retries: { ...QUICK, attempts: 2 } })
    .intent("checkout", ["order-17"], async (fetch) => (await fetch(`${server.url}/pay`, PAY)).json());
  await assert.rejects(run(), OutcomeUnknown);
  assert.deepEqual(await run(), { id: "a" });
  assert.deepEqual(await run(), { id: "a" });
  assert.equal(server.seen.length, 3);
  assert.equal(new Set(server.keys()).size, 1);
});

test("what is left is resumed, in order, and never when it is too old", async (t) => {
  const storage = new MemoryStorage();
  const journal = new Journal(storage);
  const server = await scripted(t, DROP, CREATED);
  const order = (number) => ({ method: "POST", url: `${server.url}/${number}`, headers: [], body: new TextEncoder().encode("{}") });
  const keys = [await journal.put("pay", [1], order(1), "a"), await journal.put("pay", [2], order(2), "a")];
  const one = client({ journal, retries: { ...QUICK, attempts: 1 } });
  assert.deepEqual(await one.resume(), { done: [], refused: [], left: [keys[0]], waiting: [keys[1]], unresolved: [], unsent: [] });
  assert.deepEqual((await one.resume({ headers: { Authorization: "Bearer t" } })).done, keys);
  assert.deepEqual(server.seen.map((seen) => seen.path), ["/1", "/1", "/2"]);
  assert.equal(server.seen[2].headers.authorization, "Bearer t");
  const late = await journal.put("pay", [3], order(3));
  await older(storage, journal.keepFor);
  assert.deepEqual((await one.resume()).unresolved, [late]);
  await assert.rejects(one.intent("pay", [3], async () => undefined), OutcomeUnknown);
  await assert.rejects(one.intent("pay", [1], async () => undefined), IntentOver);
  assert.equal(server.seen.length, 3);
});

test("one intent, one request; a journal has a bound; a block that fails leaves it open", async (t) => {
  const server = await scripted(t, CREATED);
  const journal = new Journal(new MemoryStorage(), { atMost: 2 });
  const one = client({ journal });
  await one.intent("pay", [1], async (fetch) => {
    await fetch(`${server.url}/pay`, PAY);
    await assert.rejects(fetch(`${server.url}/receipt`, PAY), IntentReused);
  }).catch((error) => assert.fail(error));
  await assert.rejects(one.intent("pay", [2], async () => Promise.reject(new Error("mine"))), /mine/);
  assert.deepEqual((await journal.pending()).map((entry) => entry.identity), [["2"]]);
  await journal.begin("pay", [3]);
  await assert.rejects(journal.begin("pay", [4]), QueueFull);
});

test("credentials are not kept, and the folder is private", async (t) => {
  const place = folder();
  const server = await scripted(t, reply(500));
  const one = client({ journal: new Journal(new FolderStorage(place)), retries: { ...QUICK, attempts: 1 } });
  const secret = { ...PAY, headers: { Authorization: "Bearer s3cret", "X-Api-Key": "s3cret" } };
  await assert.rejects(one.fetch(server.url, secret), OutcomeUnknown);
  const [name] = readdirSync(place);
  assert.doesNotMatch(readFileSync(join(place, name), "utf8"), /s3cret/);
  assert.equal(statSync(join(place, name)).mode & 0o777, 0o600);
});

test("a redirect is followed with a journal, and a stranger is asked once, without the key", async (t) => {
  const journal = new Journal(new MemoryStorage());
  const one = client({ journal });
  const server = await scripted(t, reply(307, "", { Location: "/there" }), CREATED, reply(303, "", { Location: "/seen" }), CREATED);
  await one.intent("pay", [1], async (fetch) => assert.equal((await fetch(`${server.url}/pay`, PAY)).status, 201));
  assert.equal((await one.fetch(`${server.url}/pay`, PAY)).status, 201);
  assert.deepEqual(server.seen.map((seen) => seen.path), ["/pay", "/there", "/pay", "/seen"]);
  assert.deepEqual([new Set(server.keys().slice(0, 2)).size, server.keys()[3]], [1, undefined]);
  assert.deepEqual(await journal.pending(), []);
  const stranger = await scripted(t, DROP);
  const mover = await scripted(t, reply(307, "", { Location: `${stranger.url}/there` }));
  await assert.rejects(client({ member: "idempotency_key" }).fetch(mover.url, PAY), TypeError);
  assert.deepEqual(stranger.seen.map((seen) => seen.body), [PAY.body]);
  const round = await scripted(t, reply(307, "", { Location: "/again" }));
  assert.equal((await one.fetch(round.url, PAY)).status, 307);
  assert.equal(new Set(round.keys()).size, 1);
});

test("a caller who is not let in comes back with the same key; after a lost attempt it is unknown", async (t) => {
  const journal = new Journal(new MemoryStorage());
  const server = await scripted(t, reply(401), CREATED);
  const pay = () => client({ journal }).intent("pay", [1], async (fetch) => (await fetch(server.url, PAY)).status);
  assert.equal(await pay(), 401);
  assert.equal((await journal.pending())[0].trouble, "denied, with 401");
  assert.equal(await pay(), 201);
  assert.equal(new Set(server.keys()).size, 1);
  assert.deepEqual(await journal.pending(), []);
  const lost = await scripted(t, DROP, reply(403));
  await assert.rejects(client().fetch(lost.url, PAY), (error) => error instanceof OutcomeUnknown && error.reason === "denied");
});

test("an error that was caught leaves the intent open", async (t) => {
  const journal = new Journal(new MemoryStorage());
  const server = await scripted(t, DROP);
  await client({ journal }).intent("pay", [1], (fetch) => fetch(server.url, PAY).catch(() => undefined));
  assert.equal((await journal.pending()).length, 1);
});

test("a refusal is told apart by resume, and wrong credentials stop a queue", async (t) => {
  const journal = new Journal(new MemoryStorage());
  const server = await scripted(t, reply(401), reply(404), CREATED);
  const order = { method: "POST", url: server.url, headers: [], body: new TextEncoder().encode("{}") };
  const keys = [await journal.put("pay", [1], order), await journal.put("pay", [2], order)];
  const one = client({ journal });
  const first = await one.resume();
  assert.deepEqual([first.left, first.waiting], [[keys[0]], [keys[1]]]);
  const second = await one.resume();
  assert.deepEqual([second.refused, second.done], [[keys[0]], [keys[1]]]);
});

test("check never advises a second effect", async () => {
  const said = async (status, problem) =>
    (await check(new Response("{}", { status, headers: problem ? { "Idempotency-Problem": problem } : {} })).catch((error) => error)).message;
  assert.match(await said(402), /with a new key$/);
  for (const [status, problem] of [[401], [410, "answer-not-kept"], [412, "request-too-old"], [500], [429], [409]]) {
    assert.doesNotMatch(await said(status, problem), /with a new key$/);
  }
});

test("a journal that cannot be written sends nothing, and hides no answer", async (t) => {
  const server = await scripted(t, CREATED);
  const storage = new MemoryStorage();
  const one = client({ journal: new Journal(storage) });
  t.mock.method(console, "warn", () => undefined);
  let left = 1;
  storage.change = () => (left-- > 0 ? Promise.resolve() : Promise.reject(new Error("QuotaExceededError")));
  assert.equal((await one.fetch(server.url, PAY)).status, 201);
  assert.equal(console.warn.mock.callCount(), 1);
  await assert.rejects(one.fetch(server.url, PAY), (error) => error instanceof JournalUnusable && /make room/.test(error.message));
  assert.equal(server.seen.length, 1);
});

test("a clock that was set back is no reason to send late", async () => {
  const storage = new MemoryStorage();
  const journal = new Journal(storage);
  await journal.begin("pay", [1]);
  await older(storage, -86_400);
  await assert.rejects(journal.begin("pay", [1]), OutcomeUnknown);
  assert.equal(journal.unresolved((await journal.pending())[0]), true);
});

test("programs that share a folder agree on a key, and a damaged file is named", async () => {
  const place = folder();
  const begun = await Promise.all(Array.from({ length: 8 }, () => new Journal(new FolderStorage(place)).begin("pay", [1])));
  assert.equal(new Set(begun.map(({ entry }) => entry.key)).size, 1);
  assert.equal(begun.filter(({ first }) => first).length, 1);
  const [name] = readdirSync(place);
  assert.equal(readdirSync(place).length, 1);
  writeFileSync(join(place, name), "{");
  await assert.rejects(new Journal(new FolderStorage(place)).pending(), (error) => error instanceof JournalUnusable && error.message.includes(name));
});

test("a server that never answers is given up at the deadline", async (t) => {
  const server = await scripted(t, HANG);
  const one = client({ retries: { ...QUICK, tryFor: 0.2 } });
  await assert.rejects(one.fetch(server.url, PAY), (error) => error instanceof OutcomeUnknown && error.reason === "time");
  const long = client({ retries: { ...QUICK, tryFor: 1e9 } });
  const signal = AbortSignal.timeout(100);
  await assert.rejects(long.fetch(server.url, { ...PAY, signal }), { name: "TimeoutError" });
  assert.equal(server.seen.length, 2);
});
