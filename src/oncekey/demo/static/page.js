"use strict";

const POLL = 1000;
const POLL_AFTER_ERROR = 3000;
const $ = (id) => document.getElementById(id);

/* ---- what each dialect's button sends ------------------------------------------------------------------------ */

const JSON_TYPE = { "Content-Type": "application/json" };

const DIALECTS = {
  ietf: async (key, note) => ({
    path: "/orders",
    headers: { ...JSON_TYPE, Authorization: "Bearer alice", "Idempotency-Key": key },
    body: JSON.stringify({ item: "tea", note }),
  }),
  stripe: async (key, note) => ({
    path: "/v1/charges",
    headers: { Authorization: "Bearer sk_test_alice", "Idempotency-Key": key },
    body: new URLSearchParams({ amount: "500", currency: "eur", description: note }),
  }),
  square: async (key, note) => ({
    path: "/v2/payments",
    headers: { ...JSON_TYPE, Authorization: "Bearer alice" },
    body: JSON.stringify({ idempotency_key: key, source_id: "cnon:ok", amount_money: { amount: 500, currency: "EUR" }, note }),
  }),
  adyen: async (key, note) => ({
    path: "/v72/payments",
    headers: { ...JSON_TYPE, "X-API-Key": "alice", "Idempotency-Key": key },
    body: JSON.stringify({ amount: { value: 500, currency: "EUR" }, reference: note }),
  }),
  paypal: async (key, note) => ({
    path: "/v2/checkout/orders",
    headers: { ...JSON_TYPE, Authorization: `Bearer ${await paypalToken()}`, "PayPal-Request-Id": key },
    body: JSON.stringify({ intent: "CAPTURE", note }),
  }),
};

async function paypalToken() {
  const answer = await fetch("/v1/oauth2/token", {
    method: "POST",
    headers: { Authorization: `Basic ${btoa("alice:any")}` },
    body: new URLSearchParams({ grant_type: "client_credentials" }),
  });
  return (await answer.json()).access_token;
}

/* ---- small helpers --------------------------------------------------------------------------------------------- */

function made(tag, className, text) {
  const element = document.createElement(tag);
  if (className) element.className = className;
  if (text !== undefined) element.textContent = text;
  return element;
}

function freshKey() {
  const bytes = crypto.getRandomValues(new Uint8Array(5));
  return "try-" + Array.from(bytes, (byte) => byte.toString(16).padStart(2, "0")).join("");
}

const clock = (at) => new Date(at).toTimeString().slice(0, 8);

/* ---- copyable lines -------------------------------------------------------------------------------------------- */

function fillLines() {
  const key = freshKey();
  for (const code of document.querySelectorAll("pre code")) {
    code.textContent = code.textContent.replaceAll("{base}", location.origin).replaceAll("{key}", key);
    const strip = made("span", "strip", "shell");
    const button = made("button", "", "Copy");
    button.type = "button";
    button.setAttribute("aria-label", "Copy these lines");
    button.addEventListener("click", () => copy(code, button));
    strip.append(button);
    code.before(strip);
  }
}

async function copy(code, button) {
  try {
    await navigator.clipboard.writeText(code.textContent);
    button.textContent = "Copied";
  } catch {
    // Without the clipboard (a page served in the clear from afar), select, so that one key press copies.
    getSelection().selectAllChildren(code);
    button.textContent = "Selected";
  }
  setTimeout(() => { button.textContent = "Copy"; }, 1500);
}

/* ---- send several times ---------------------------------------------------------------------------------------- */

function addButtons() {
  for (const card of document.querySelectorAll(".card[data-api]")) {
    const row = made("div", "send-row");
    const button = made("button", "send");
    const result = made("div", "result");
    button.type = "button";
    result.setAttribute("role", "status");
    result.append(made("p", "hint", "The answers will stand here."));
    button.addEventListener("click", () => sendMany(card.dataset.api, button, result));
    row.append(button, result);
    card.append(row);
  }
  $("times").addEventListener("change", nameButtons);
  nameButtons();
}

function nameButtons() {
  const words = $("times").selectedOptions[0].textContent;
  for (const button of document.querySelectorAll("button.send")) button.textContent = `Send it ${words}`;
}

async function sendMany(api, button, result) {
  const times = Number($("times").value);
  const key = freshKey();
  const note = `probe:ref=${key}` + ($("slow").checked ? " probe:delay=1500" : "");
  button.disabled = true;
  result.replaceChildren(made("p", "hint", "sending ..."));
  try {
    const { path, headers, body } = await DIALECTS[api](key, note);
    const requests = Array.from({ length: times }, () => fetch(path, { method: "POST", headers, body }));
    const answers = await Promise.all(requests.map(async (request) => told(await request)));
    const asked = await fetch(`/__probe__/executions?ref=${encodeURIComponent(key)}`);
    show(result, answers, (await asked.json()).executions);
  } catch (error) {
    result.replaceChildren(made("p", "unknown", `The demo did not answer (${error.message}). Is it still running?`));
  } finally {
    button.disabled = false;
    look();
  }
}

async function told(answer) {
  const problem = answer.headers.get("idempotency-problem");
  const value = await answer.json().catch(() => ({}));
  const id = value.id || value.pspReference || (value.payment && value.payment.id) || "";
  return { status: answer.status, problem, id };
}

function show(result, answers, executions) {
  const chips = made("p", "chips");
  for (const { status, problem } of answers) {
    chips.append(made("span", `chip ${problem ? "conflict" : "executed"}`, problem ? `${status} ${problem}` : status));
  }
  const charges = executions === 1 ? "1 charge" : `${executions} charges`;
  const ids = [...new Set(answers.map((answer) => answer.id).filter(Boolean))];
  const line = made("p", "", ids.length === 1 ? "One answer: " : "Answers: ");
  line.append(made("code", "", ids.join(", ") || "none"));
  result.replaceChildren(made("p", "sum", `${answers.length} requests, ${charges}`), chips, line);
}

/* ---- live ------------------------------------------------------------------------------------------------------ */

const TONES = {
  executed: "executed", "executed again": "executed", failed: "unknown", replayed: "replayed", unknown: "unknown", "no key": "",
};
let seen = { requests: 0, runs: 0 };
let timer = 0;

async function look() {
  clearTimeout(timer);
  let pause = POLL;
  try {
    const answer = await fetch("/__probe__/recent", { cache: "no-store" });
    if (!answer.ok) throw new Error(String(answer.status));
    draw(await answer.json());
    $("state").className = "state on";
  } catch {
    $("state").className = "state";
    $("state").textContent = "no answer; trying again";
    pause = POLL_AFTER_ERROR;
  }
  timer = setTimeout(look, document.hidden ? 5 * POLL : pause);
}

function draw(told) {
  const count = (name) => told.counters[`api.idempotency.${name}.count`] || 0;
  $("n-requests").textContent = told.counters["oncekey.demo.requests.count"] || 0;
  $("n-executed").textContent = count("reserve.created") + count("reserve.failed_retry");
  $("n-replayed").textContent = count("reserve.replay");
  $("n-conflicts").textContent = count("reserve.in_progress") + count("reserve.key_misuse");
  $("n-unknown").textContent = count("reserve.unknown");
  const workers = told.workers === 1 ? "1 worker" : `${told.workers} workers`;
  setText($("state"), `live: ${workers}, keys in ${told.store.split(":")[0]}, ${told.executions} charges in the ledger`);
  rows($("requests"), told.requests, requestRow, (request) => request.at, "requests");
  rows($("runs"), told.runs, runRow, (run) => run.begun_at, "runs");
}

function setText(element, text) {
  // A status region is read aloud when it changes, so it is left alone when it does not.
  if (element.textContent !== text) element.textContent = text;
}

function rows(body, items, row, at, which) {
  if (!items.length) return;
  const newest = at(items[0]);
  if (newest === seen[which] && body.childElementCount === items.length) return;
  const before = seen[which];
  body.replaceChildren(...items.map((item) => {
    const made = row(item);
    if (before && at(item) > before) made.className = "new";
    return made;
  }));
  seen[which] = Math.max(newest, before);
}

function cells(...contents) {
  const row = made("tr");
  for (const content of contents) {
    const cell = made("td");
    cell.append(content);
    row.append(cell);
  }
  return row;
}

function identifier(text) {
  const cell = made("span", "", text);
  cell.title = text;
  return cell;
}

function requestRow(request) {
  const tone = request.verdict in TONES ? TONES[request.verdict] : "conflict";
  const answer = made("span", tone, `${request.status} ${request.verdict}`);
  const more = made("small", "", (request.held ? " after waiting" : "") + ` ${request.took} ms`);
  const both = made("span");
  both.append(answer, more);
  const row = cells(clock(request.at), request.what, identifier(request.ref || "\u2013"), both);
  row.children[2].className = "id";
  return row;
}

function runRow(run) {
  const effect = made("span");
  effect.append(`${run.api} ${run.kind}`);
  if (run.fails_with) effect.append(made("small", "unknown", ` then ${run.fails_with}`));
  if (run.delay_for) effect.append(made("small", "", ` ${run.delay_for / 1000} s`));
  const row = cells(clock(run.begun_at), effect, String(run.worker), identifier(run.ref));
  row.children[3].className = "id";
  return row;
}

document.addEventListener("visibilitychange", () => { if (!document.hidden) look(); });
fillLines();
addButtons();
look();
