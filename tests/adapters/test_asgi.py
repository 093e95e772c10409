from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest

from oncekey import SHARED, ConfigurationError, OnceKeyMiddleware, Policy
from oncekey.core.record import State
from tests.adapters.asgi_kit import DISCONNECT, Guarded, Shop, Wire, answer, call, chunks, http


async def test_a_retry_gets_the_first_answer_byte_for_byte() -> None:
    """One effect, the same status, headers and bytes, and the marker on the replay alone."""
    shop = Shop()
    app = Guarded(shop)
    first, again = await call(app), await call(app)
    assert (first.status, first.body) == (again.status, again.body) == (201, b'{"n":1}')
    assert len(shop.effects) == 1
    assert [again[b"idempotency-replayed"], first[b"idempotency-replayed"]] == [b"true", None]


async def test_the_application_gets_the_body_that_was_sent() -> None:
    """An upload in pieces arrives whole."""
    shop = Shop()
    await call(Guarded(shop), events=chunks(b"one ", b"two ", b"", b"three"))
    assert shop.effects == [b"one two three"]


@pytest.mark.parametrize(
    ("scope", "events"),
    [
        (http(method="GET"), ()),
        (http(method="HEAD"), ()),
        (http(method="OPTIONS"), ()),
        ({"type": "websocket", "path": "/pay", "headers": []}, ()),
        ({"type": "lifespan"}, ()),
        (http(path="/other"), ()),
    ],
)
async def test_what_is_not_ours_passes_untouched(scope: dict[str, Any], events: Any) -> None:
    """Other methods, other paths, websockets and lifespan reach the application with the same scope object."""
    shop = Shop()
    app = Guarded(shop, paths=["/pay"])
    await call(app, scope, events) if scope["type"] == "http" else await app(scope, *_ends())
    assert shop.scopes[0] is scope
    assert app.records == []


def _ends() -> tuple[Any, Any]:
    wire = Wire()
    return wire.receive, wire.send


async def test_without_a_key_where_none_is_required_it_passes_untouched() -> None:
    """The body is not even read by us: the application sees the server's own messages."""
    seen = []

    async def app(scope: Any, receive: Any, send: Any) -> None:
        seen.append((receive.__self__, send.__self__))

    wire = Wire()
    await Guarded(app, required=False)(http(None), wire.receive, wire.send)
    assert seen == [(wire, wire)]


async def test_a_missing_key_is_refused_before_anything_runs() -> None:
    """400 as a problem that says where the key goes."""
    shop = Shop()
    refused = await call(Guarded(shop), http(None))
    problem = json.loads(refused.body)
    assert (refused.status, problem["type"].rsplit("/", 1)[1]) == (400, "key-missing")
    assert "Idempotency-Key" in problem["detail"]
    assert shop.effects == []


async def test_another_caller_with_the_same_key_is_another_operation() -> None:
    """Scope: what one caller stored is invisible to another."""
    shop = Shop()
    app = Guarded(shop)
    other = http()
    other["headers"] = [(b"authorization", b"Bearer bob"), (b"idempotency-key", b"key-1")]
    assert (await call(app)).body != (await call(app, other)).body
    assert len(shop.effects) == 2


async def test_a_caller_that_the_scope_does_not_know_is_refused() -> None:
    """No anonymous namespace: 401 and nothing runs."""
    shop = Shop()
    nobody = http()
    nobody["headers"] = [(b"idempotency-key", b"key-1")]
    assert (await call(Guarded(shop), nobody)).status == 401
    assert shop.effects == []


async def test_another_body_under_the_same_key_is_refused() -> None:
    """422, and nothing of the stored answer is shown."""
    shop = Shop()
    app = Guarded(shop)
    await call(app)
    refused = await call(app, events=chunks(b'{"a":2}'))
    assert refused.status == 422
    assert b'"n"' not in refused.body
    assert len(shop.effects) == 1


async def test_the_same_json_in_another_spelling_is_the_same_request() -> None:
    """Member order and white space do not make another request."""
    app = Guarded(Shop())
    await call(app, events=chunks(b'{"a": 1, "b": 2}'))
    assert (await call(app, events=chunks(b'{"b":2,"a":1}'))).status == 201


@pytest.mark.parametrize("cut", [0, 1, 5, 9])
async def test_a_truncated_upload_is_never_executed(cut: int) -> None:
    """The client goes away before the last byte: no claim, no effect, no answer."""
    shop, wire = Shop(), Wire(chunks(b"0123456789"[:cut], complete=False))
    app = Guarded(shop)
    await app(http(), wire.receive, wire.send)
    assert (shop.effects, app.records, wire.sent) == ([], [], [])


async def test_a_slow_upload_holds_no_claim() -> None:
    """While the body drips nothing is claimed."""
    app = Guarded(Shop())
    gate = asyncio.Event()
    parts = chunks(b"a", b"b")

    async def drip() -> Any:
        if len(parts) == 1:
            await gate.wait()
        return parts.pop(0)

    wire = Wire()
    running = asyncio.create_task(app(http(), drip, wire.send))
    await asyncio.sleep(0)
    assert app.records == []
    gate.set()
    await running
    assert app.state is State.COMPLETED


@pytest.mark.parametrize("length", [None, b"11"])
async def test_a_body_over_the_cap_is_refused(length: bytes | None) -> None:
    """413, by the declared length before reading and by counting while reading."""
    shop, scope = Shop(), http()
    if length:
        scope["headers"].append((b"content-length", length))
    refused = await call(Guarded(shop, policy=Policy(max_body=10)), scope, chunks(b"012345", b"67890"))
    assert refused.status == 413
    assert shop.effects == []


async def test_a_body_of_exactly_the_cap_runs() -> None:
    """The cap itself is allowed."""
    assert (await call(Guarded(Shop(), policy=Policy(max_body=10)), events=chunks(b"0123456789"))).status == 201


async def test_a_duplicate_in_flight_is_told_so_with_the_true_time_left() -> None:
    """409 with Retry-After in whole seconds, while the first still runs."""
    gate = asyncio.Event()

    class Slow(Shop):
        async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
            await gate.wait()
            await super().__call__(scope, receive, send)

    app = Guarded(Slow(), policy=Policy(lease_for=8))
    first = asyncio.create_task(call(app))
    while not app.records:
        await asyncio.sleep(0)
    busy = await call(app)
    gate.set()
    assert busy.status == 409
    assert 1 <= int(busy[b"retry-after"] or b"") <= 12
    assert (await first).status == 201


async def test_a_client_that_leaves_changes_nothing() -> None:
    """The server cancels us when the client is gone; the work runs on and its answer is stored."""
    gate = asyncio.Event()

    class Slow(Shop):
        async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
            await gate.wait()
            await super().__call__(scope, receive, send)

    shop = Slow()
    app = Guarded(shop)
    first = asyncio.create_task(call(app))
    while not app.records:
        await asyncio.sleep(0)
    first.cancel()
    with pytest.raises(asyncio.CancelledError):
        await first
    gate.set()
    while app.state is not State.COMPLETED:
        await asyncio.sleep(0)
    assert (await call(app)).body == b'{"n":1}'
    assert len(shop.effects) == 1


async def test_that_the_client_has_left_is_told_only_after_the_answer() -> None:
    """An application that listens for the disconnect is not stopped half way by it; afterwards it hears of it."""
    heard = []

    async def app(scope: Any, receive: Any, send: Any) -> None:
        await receive()
        listening = asyncio.create_task(receive())
        await asyncio.sleep(0.01)
        heard.append(listening.done())
        for message in answer(201, b"ok"):
            await send(message)
        heard.append((await listening)["type"])

    guarded = Guarded(app)
    await call(guarded, events=[*chunks(b"{}"), DISCONNECT])
    assert heard == [False, "http.disconnect"]
    assert guarded.state is State.COMPLETED


def test_a_missing_scope_is_refused_with_what_to_write() -> None:
    """Whose keys they are must be said; SHARED says: everybody's."""
    with pytest.raises(ConfigurationError, match=r"scope=by_header\('Authorization'\)"):
        OnceKeyMiddleware(Shop(), "memory://")
    OnceKeyMiddleware(Shop(), "memory://", scope=SHARED)


@pytest.mark.parametrize(
    ("choices", "said"),
    [
        ({"dialect": "strpie"}, "did you mean 'stripe'"),
        ({"paths": "/pay"}, r"paths=\['/pay'\]"),
        ({"paths": ["pay"]}, "start with a slash"),
        ({"scope": "Authorization"}, "by_header"),
        ({"policy": {"lease_for": 3}}, r"policy=Policy\(lease_for=30\)"),
        ({"policy": {}}, r"policy=Policy\(lease_for=30\)"),
        ({"sealer": "a key"}, r"sealer=Sealer\("),
        ({"fingerprinter": "sha256"}, r"fingerprinter=Fingerprinter\("),
    ],
)
def test_wrong_choices_are_refused_with_what_to_write(choices: dict[str, Any], said: str) -> None:
    """Each refusal names the right spelling."""
    with pytest.raises(ConfigurationError, match=said):
        Guarded(Shop(), **choices)


async def test_a_policy_may_drop_more_headers() -> None:
    """They are in the first answer, in no replay and in no record; the others stay."""
    own = (b"X-Balance", b"17"), (b"etag", b'"1"')
    guarded = Guarded(Shop(*answer(201, b"{}", *own)), policy=Policy(drop_headers=("x-balance",)))
    first, again = await call(guarded), await call(guarded)
    assert (first[b"x-balance"], first[b"etag"]) == (b"17", b'"1"')
    assert (again[b"x-balance"], again[b"etag"]) == (None, b'"1"')
    assert b"17" not in guarded.records[0].outcome
