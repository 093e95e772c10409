"""Where fuzzers begin: bytes that are good, one or more for each target, and what earlier runs have found."""

from __future__ import annotations

import json
from pathlib import Path

from oncekey.core import outcome, record
from oncekey.core.fingerprint import Fingerprinter, Parts
from oncekey.core.journal import Asked, Audit, Call, Form, Journal, Step, pack_journal
from oncekey.core.record import Guarantee, Label, Record, State
from oncekey.engine.sealing import Sealer
from oncekey.stores.redis import layout
from tests.fuzz.targets import ID, TARGETS

CORPUS = Path(__file__).parent / "corpus"

OPEN = Record(
    ID,
    State.EXECUTING,
    3,
    b"t" * 16,
    b"\x13" + b"f" * 32,
    Guarantee.TRANSACTIONAL,
    attempts=2,
    claimed_at=1_700_000_000_000,
    lease_until=1_700_000_030_000,
    due_at=1_700_000_060_000,
    waited=True,
    label=Label("0123456789ab", "POST /pay", "key-1"),
    note="the handler said \u00e4",
    outcome=b"\x10\x13",
)
DONE = OPEN._replace(state=State.COMPLETED, lease_until=None, expires_at=1_800_000_000_000)
AUDIT = Audit("ann", "the bank has it", 1_700_000_000_000, State.UNKNOWN, State.COMPLETED)
JOURNAL = Journal(
    (
        Call("charge", "k" * 36, "POST https://psp.example/charges"),
        Call("refund", "k" * 36, provider="stripe", reference="re_1", attempt=300),
        Step("price", b'{"a":1}', Form.JSON),
        Step("tax", b"x", Form.BYTES, given=b"d" * 8),
        AUDIT,
        Asked(3, 1_700_000_000_000, "it was away"),
    )
)
ANSWER = outcome.pack(
    201,
    [(b"content-type", b"application/json"), (b"Content-Length", b"8"), (b"x-part", b"1"), (b"location", b"/a")],
    b'{"id":1}',
)
OUTCOMES = [
    ANSWER,
    outcome.pack(777, [], b""),
    outcome.tombstone(200, "it was a stream"),
    outcome.pack_value(b"value"),
    pack_journal(JOURNAL),
    outcome.sign(ANSWER, [AUDIT]),
]
JSON = [
    b'{"b": [1.0, 1e0, 9007199254740993, -0, 1e-7], "a\\u0041": "\xc3\xa9\\ud83d\\ude00", "\xf0\x9f\x98\x80": null}',
    b'[true, {"a": {}, "": ""}]',
    b'{"\xee\x80\x80": 1, "\xf0\x90\x80\x80": 0.1}',
]
CONTENT = Parts("POST", "/pay", b"a=1", b"application/json", JSON[0])

SEEDS: dict[str, list[bytes]] = {
    "key": [b"abc", b'"abc"', b'"a\\"b";q=1', b"a,b", b"8e03978e-40d5-43dd-bc93-6894a57f9324", b'"a"\n"a"', b" a\t"],
    "key-in-a-body": [
        b'{"idempotency_key": "abc", "amount_money": {"amount": 1}}',
        b'{"idempotency_key": "a", "idempotency\\u005fkey": "b"}',
        b'{"idempotency_key": null}',
        b'{"idempotency_key"',
        b"[1]",
    ],
    "request": [
        b"idempotency-key: abc\nrepeatability-first-sent: Tue, 15 Nov 1994 08:12:31 GMT\n\n{}",
        b'idempotency-key: "019470aa-1c5f-7000-8000-000000000000"\ncontent-type: application/json\n\n{"a":1}',
        b'content-type: application/json\n\n{"idempotency_key": "abc"}',
        b"paypal-request-id: abc\nidempotency-first-sent: 5\n\n",
    ],
    "fingerprint": [b"POST\0/pay\0a=1\0application/json\0" + text for text in JSON] + [b"\0\0\0\0"],
    "stored-fingerprint": [
        Fingerprinter().encoded(CONTENT),
        Fingerprinter(canonical=False).encoded(CONTENT),
        Fingerprinter(secrets={7: b"s" * 16}).encoded(CONTENT),
    ],
    "canonical": [*JSON, json.dumps([10.0**power for power in range(-9, 24)]).encode()],
    "stored-record": [record.encode(OPEN), record.encode(DONE), record.encode(OPEN._replace(token=b"", note=""))],
    "redis-card": [
        bytes(6) + layout.encode(OPEN),
        layout.NO_END + layout.encode(DONE),
        layout.NO_END + layout.encode(DONE._replace(version=300, attempts=1, note="", due_at=None)),
    ],
    "stored-outcome": OUTCOMES,
    "stored-journal": [pack_journal(JOURNAL), pack_journal(Journal((AUDIT,)))],
    "sealed": [Sealer(compress_above=None).seal(ID, ANSWER), Sealer(compress_above=16).seal(ID, ANSWER * 9), ANSWER],
    "replayed": OUTCOMES,
}
assert SEEDS.keys() == TARGETS.keys()


def seeds(target: str) -> list[bytes]:
    """Those of one target: what is good first, then what has gone wrong once."""
    found = [path.read_bytes() for path in sorted((CORPUS / target).glob("*"))]
    return SEEDS[target] + found
