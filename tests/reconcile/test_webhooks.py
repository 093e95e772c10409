"""Webhooks settle what is unknown, once, and answer everything else."""

from __future__ import annotations

import base64
import hashlib
import hmac
import io
import json
import time
from collections.abc import Callable
from typing import Any

import pytest

from oncekey import SHARED, OnceKey
from oncekey.core.journal import Journal
from oncekey.core.keys import endpoint_of, scope_of
from oncekey.core.outcome import Answer, unpack
from oncekey.core.record import Record, State
from oncekey.engine.journals import sealed
from oncekey.http.messages import Request
from oncekey.operations import Desk, Signature, history
from oncekey.reconcile import About, Finding, Inquiry, Known, Message, StandardWebhooks, about_key
from oncekey.stores.memory import AsyncMemoryStore, MemoryStore
from oncekey.testing.bench import a_claim, a_settlement
from tests.adapters.asgi_kit import Answer as Told
from tests.adapters.asgi_kit import call, chunks, http
from tests.reconcile.kit import CALL, SEALER, not_there, paid, silent, unknown

SECRET = "whsec_" + base64.b64encode(b"k" * 24).decode()


@pytest.fixture
def once() -> OnceKey:
    """An installation in memory."""
    return OnceKey("memory://", scope=SHARED)


@pytest.fixture
def store(once: OnceKey) -> MemoryStore:
    """Its records."""
    found = once.async_engine.store
    assert isinstance(found, AsyncMemoryStore)
    return found.sync


def record(store: MemoryStore, id_: bytes) -> Record:
    """What stands there."""
    return store._records[id_]


def read(message: Message) -> About | None:
    """The bank's messages: what happened, and to which operation."""
    event = message.json
    if event["type"] == "other":
        return None
    answers: dict[str, Callable[[Inquiry], Finding]] = {"paid": paid, "cancelled": not_there, "pending": silent}
    return About(event["operation"], answers[event["type"]])


async def send(once: OnceKey, body: bytes, *, wsgi: MemoryStore | None = None, secret: str = SECRET) -> Told:
    """A signed message to the endpoint."""
    at = str(int(time.time()))
    mac = hmac.new(base64.b64decode(secret.removeprefix("whsec_")), f"msg_1.{at}.".encode() + body, hashlib.sha256)
    signature = "v1," + base64.b64encode(mac.digest()).decode()
    headers = {"webhook-id": "msg_1", "webhook-timestamp": at, "webhook-signature": signature}
    check = StandardWebhooks(SECRET)
    if wsgi is None:
        pairs = [(name.encode(), value.encode()) for name, value in headers.items()]
        return await call(once.webhook(check, read), http(headers=pairs), chunks(body))
    once.engine.store = wsgi
    environ = {
        "REQUEST_METHOD": "POST",
        "PATH_INFO": "/",
        "wsgi.input": io.BytesIO(body),
        "CONTENT_LENGTH": str(len(body)),
    }
    environ |= {"HTTP_" + name.upper().replace("-", "_"): value for name, value in headers.items()}
    started: list[Any] = []

    def start_response(*head: Any) -> Callable[[bytes], object]:
        started.append(head)
        return started.append

    answer = b"".join(once.webhook_wsgi(check, read)(environ, start_response))
    return Told(int(started[0][0].split()[0]), [], answer)


def message(kind: str, operation: str) -> bytes:
    """One of the bank's messages."""
    return json.dumps({"type": kind, "operation": operation}).encode()


@pytest.mark.parametrize("gateway", ["asgi", "wsgi"])
async def test_a_webhook_settles_an_unknown_outcome_once(once: OnceKey, store: MemoryStore, gateway: str) -> None:
    """The first delivery settles and signs; the second finds it known and changes nothing."""
    id_ = unknown(store)
    wsgi = store if gateway == "wsgi" else None
    first = await send(once, message("paid", id_.hex()), wsgi=wsgi)
    assert (first.status, json.loads(first.body)) == (200, {"outcome": "settled"})
    settled = record(store, id_)
    outcome = unpack(SEALER.open(id_, settled.outcome))
    assert isinstance(outcome, Answer)
    assert (settled.state, outcome.status) == (State.COMPLETED, 201)
    assert [line.by for line in history(settled)] == ["webhook"]
    again = await send(once, message("paid", id_.hex()), wsgi=wsgi)
    assert json.loads(again.body) == {"outcome": "known"}
    assert record(store, id_) is settled


@pytest.mark.parametrize("gateway", ["asgi", "wsgi", "settle", "asettle"])
async def test_what_a_message_settles_is_told_once(gateway: str) -> None:
    """Counters see it like what a reconciler finds out; what was known already, or stays unclear, is not counted."""
    said: list[tuple[str, str]] = []
    once = OnceKey("memory://", scope=SHARED, sinks=(lambda event: said.append((event.name, event.detail)),))
    memory = once.engine.store if gateway in {"wsgi", "settle"} else once.async_engine.store
    store = memory.sync if isinstance(memory, AsyncMemoryStore) else memory
    assert isinstance(store, MemoryStore)
    id_ = unknown(store)
    for kind in ("pending", "paid", "paid"):
        about = read(Message(message(kind, id_.hex()), "msg_1", Request("POST", "/", b"", [], b"")))
        assert about is not None
        if gateway == "settle":
            once.settle(about)
        elif gateway == "asettle":
            await once.asettle(about)
        else:
            await send(once, message(kind, id_.hex()), wsgi=store if gateway == "wsgi" else None)
    assert said == [("resolved", "landed")]


async def test_a_dead_letter_is_settled_too(once: OnceKey, store: MemoryStore) -> None:
    """However late the message comes; a cancellation frees the key with its proof."""
    id_ = unknown(store, due_for=None)
    await send(once, message("cancelled", id_.hex()))
    assert record(store, id_).state is State.FAILED_RETRYABLE


async def test_what_was_sent_to_the_provider_finds_the_operation(once: OnceKey, store: MemoryStore) -> None:
    """The key of a call, or the reference that the handler noted of it, stand in the journal."""
    ids = []
    for call_ in (CALL._replace(key="key-of-the-call"), CALL._replace(key="x" * 36, reference="ch_77")):
        claim = a_claim()
        store.claim([claim])
        journal = sealed(claim.id, Journal((call_,)), SEALER)
        store.settle([a_settlement(claim, State.UNKNOWN, outcome=journal, keep_for=None, due_for=1)])
        ids.append(claim.id)
    for reference in ("key-of-the-call", "ch_77"):
        assert json.loads((await send(once, message("paid", reference))).body) == {"outcome": "settled"}
    assert {record(store, id_).state for id_ in ids} == {State.COMPLETED}


async def test_while_its_own_attempt_works_a_message_has_to_come_again(once: OnceKey, store: MemoryStore) -> None:
    """Providers are often faster than our handler: it has the first word, and the message is not lost."""
    claim = a_claim()
    store.claim([claim])
    told = await send(once, message("paid", claim.id.hex()))
    assert (told.status, told[b"retry-after"]) == (503, b"30")
    assert record(store, claim.id).state is State.EXECUTING


async def test_a_landing_against_the_books_is_said_aloud(
    once: OnceKey, store: MemoryStore, caplog: pytest.LogCaptureFixture
) -> None:
    """It was recorded that nothing happened, and a retry may have run: only a person can tell what is right."""
    id_ = unknown(store)
    seen = store.get(id_)
    assert seen is not None
    Desk(store, SEALER).retryable(seen, Signature("ann", "cancelled"))
    before = record(store, id_)
    assert json.loads((await send(once, message("paid", id_.hex()))).body) == {"outcome": "conflict"}
    assert record(store, id_) is before
    assert "recorded as not done" in caplog.text
    assert json.loads((await send(once, message("cancelled", id_.hex()))).body) == {"outcome": "known"}


@pytest.mark.parametrize(
    ("body", "status", "outcome"),
    [
        (message("paid", "0" * 40), 200, "absent"),
        (message("paid", "nobody's reference"), 200, "absent"),
        (message("other", ""), 200, "ignored"),
        (b"not json", 400, None),
        (b"[]", 400, None),
        (b'{"type": "paid"}', 400, None),
        (b'{"type": "new", "operation": "x"}', 400, None),
    ],
)
async def test_what_is_none_of_ours_or_unreadable_is_answered(
    once: OnceKey, store: MemoryStore, body: bytes, status: int, outcome: str | None
) -> None:
    """Never a 500, and nothing is changed."""
    id_ = unknown(store)
    before = record(store, id_)
    told = await send(once, body)
    assert (told.status, json.loads(told.body).get("outcome")) == (status, outcome)
    assert record(store, id_) is before


async def test_a_message_that_decides_nothing_changes_nothing(once: OnceKey, store: MemoryStore) -> None:
    """Pending is no outcome."""
    id_ = unknown(store)
    before = record(store, id_)
    assert json.loads((await send(once, message("pending", id_.hex()))).body) == {"outcome": "unclear"}
    assert record(store, id_) is before


async def test_without_its_signature_nothing_is_read(once: OnceKey, store: MemoryStore) -> None:
    """A forger learns nothing, not even whether the operation is there."""
    id_ = unknown(store)
    other = "whsec_" + base64.b64encode(b"x" * 24).decode()
    for operation in (id_.hex(), "0" * 40):
        told = await send(once, message("paid", operation), secret=other)
        assert (told.status, json.loads(told.body)["detail"]) == (401, "The signature does not fit.")
    assert record(store, id_).state is State.UNKNOWN
    assert (await call(once.webhook(StandardWebhooks(SECRET), read), http(method="GET"))).status == 405


async def test_a_message_by_other_ways_settles_by_the_clients_key(once: OnceKey, store: MemoryStore) -> None:
    """By caller, endpoint and key, under threads and asyncio, without an endpoint of ours."""
    hasher, _ = scope_of("shared", endpoint_of("POST", "/payments"))
    for number, colour in enumerate(("async", "sync")):
        claim = a_claim(id=hasher.record_id(f"order-{number}"))
        store.claim([claim])
        store.settle([a_settlement(claim, State.UNKNOWN, outcome=b"", keep_for=None)])
        about = about_key(f"order-{number}", "shared", "POST /payments", paid)
        if colour == "async":
            assert await once.asettle(about) is Known.SETTLED
        else:
            once.engine.store = store
            assert once.settle(about) is Known.SETTLED
        assert record(store, claim.id).state is State.COMPLETED
