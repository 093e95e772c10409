import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import test from "node:test";

import { conversation, decision, keyOf } from "./vectors.js";

const cases = (name) => JSON.parse(readFileSync(new URL(`../../vectors/${name}`, import.meta.url), "utf8"));

for (const one of cases("decisions.json")) test(one.name, () => assert.deepEqual(decision(one).found, decision(one).expected));
for (const one of cases("attempts.json")) test(one.name, () => assert.deepEqual(conversation(one).found, conversation(one).expected));
for (const one of cases("keys.json")) test(one.name, async () => assert.equal(await keyOf(one), one.key));
