from __future__ import annotations

import asyncio
import json
import threading
from typing import Any

import pytest

from oncekey.core.record import State
from oncekey.stores.memory import AsyncMemoryStore, MemoryStore
from tests.adapters.asgi_kit import BODY, DISCONNECT, START, Guarded, Shop, Wire, answer, call, chunks, http
from tests.engine.stubs import Shaky
from tests.engine.test_front import InThread

# ---- what servers and applications may send ----------------------------------------------------------------------


async def test_header_names_in_upper_case_are_the_same_headers() -> None:
    """A server that does not lower them must not lead a request with a key past us."""
    shop, scope = Shop(), http()
    scope["headers"] = [(name.title(), value) for name, value in scope["headers"]]
    guarded = Guarded(shop, required=False)
    assert [(await call(guarded, scope)).body for _ in range(2)] == [b'{"n":1}'] * 2


async def test_what_the_standard_calls_optional_may_be_missing() -> None:
    """No query string, no extensions, no root path: the request is served."""
    scope = http()
    del scope["query_string"], scope["extensions"]
    assert (await call(Guarded(Shop()), scope)).status == 201


@pytest.mark.parametrize("kind", [bytearray, memoryview])
@pytest.mark.parametrize("dialect", ["ietf", "aws"])
async def test_a_body_of_any_kind_of_bytes_is_read(kind: Any, dialect: str) -> None:
    """Servers may hand over buffers instead of bytes."""
    shop, body = Shop(), b'{"ClientToken":"0123456789abcdef","a":"\\u0041"}'
    guarded = Guarded(shop, dialect=dialect)
    for _ in range(2):
        got = await call(guarded, events=[{"type": "http.request", "body": kind(body)}])
        assert got.body == b'{"n":1}'
    assert shop.effects == [body]


async def test_an_application_may_use_its_buffer_again() -> None:
    """What is held back until the end is a copy: the client gets what was sent, not what the buffer holds later."""

    async def app(scope: Any, receive: Any, send: Any) -> None:
        await receive()
        await send({"type": START, "status": 200, "headers": []})
        buffer = bytearray(2)
        for piece in (b"ab", b"cd"):
            buffer[:] = piece
            await send({"type": BODY, "body": memoryview(buffer), "more_body": True})
        await send({"type": BODY})

    guarded = Guarded(app)
    assert [(await call(guarded)).body for _ in range(2)] == [b"abcd"] * 2


async def test_an_application_may_give_its_headers_once() -> None:
    """Any iterable of pairs will do, and what is done to it later changes nothing."""

    async def app(scope: Any, receive: Any, send: Any) -> None:
        await receive()
        headers = [[b"content-type", b"text/plain"], [b"x-part", b"1"]]
        await send({"type": START, "status": 200, "headers": iter(headers)})
        await send({"type": BODY, "body": b"x", "more_body": True})
        await send({"type": BODY})

    guarded = Guarded(app)
    for _ in range(2):
        assert (await call(guarded))[b"x-part"] == b"1"


@pytest.mark.parametrize("way", ["pathsend", "zerocopysend", "trailers", "something.new"])
async def test_no_way_of_answering_leads_past_us(way: str) -> None:
    """What we do not know is neither offered nor passed on: it could be an answer that is not stored."""
    shop = Shop({"type": START, "status": 200, "headers": []}, {"type": f"http.response.{way}", "path": "/x"})
    guarded, wire = Guarded(shop), Wire()
    with pytest.raises(RuntimeError, match=way):
        await guarded(http(extensions={f"http.response.{way}": {}, "tls": {}}), wire.receive, wire.send)
    assert shop.scopes[0]["extensions"] == {"tls": {}}
    assert [message["type"] for message in wire.sent] == [START, BODY]
    assert (guarded.state, wire.answer.status) == (State.UNKNOWN, 409)


@pytest.mark.parametrize("said", [b"1", b"3"])
async def test_an_answer_of_another_length_than_it_says_is_half_an_answer(said: bytes) -> None:
    """Servers cut such an answer off: kept, every retry would get it cut off."""
    shop = Shop({"type": START, "status": 200, "headers": [(b"content-length", said)]}, {"type": BODY, "body": b"ok"})
    guarded, wire = Guarded(shop), Wire()
    with pytest.raises(RuntimeError, match="content-length"):
        await guarded(http(), wire.receive, wire.send)
    assert (guarded.state, wire.answer.status) == (State.UNKNOWN, 409)


async def test_a_body_shorter_than_it_was_declared_is_never_executed() -> None:
    """A server that takes a lost connection for the end of the body does not lead to half an order."""
    shop, scope = Shop(), http()
    scope["headers"].append((b"content-length", b"10"))
    refused = await call(Guarded(shop), scope, chunks(b"0123"))
    assert (refused.status, shop.effects) == (400, [])
    assert json.loads(refused.body)["type"].endswith("body-incomplete")


async def test_an_endless_declared_length_is_no_fault_of_ours() -> None:
    """More digits than Python reads are a body over the cap."""
    scope = http()
    scope["headers"].append((b"content-length", b"9" * 5000))
    assert (await call(Guarded(Shop()), scope)).status == 413


async def test_zeros_in_front_of_a_length_hide_no_truncated_upload() -> None:
    """They are legal, and however many there are, the length is what follows them."""
    shop, scope = Shop(), http()
    scope["headers"].append((b"content-length", b"0" * 30 + b"10"))
    assert (await call(Guarded(shop), scope, chunks(b"0123"))).status == 400
    assert shop.effects == []


async def test_two_mounts_are_two_endpoints() -> None:
    """Where a framework takes the mount's part off the path, it still belongs to the operation."""
    shop = Shop()
    guarded = Guarded(shop)
    bodies = {(await call(guarded, http(root_path=root))).body for root in ("/a", "/b")}
    assert len(bodies) == 2
    assert (await call(guarded, http(root_path="/a", path="/a/pay"))).body in bodies
    assert len(shop.effects) == 2


@pytest.mark.parametrize("path", ["/\udcff", "/a b%", "/" + "x" * 70_000])
async def test_odd_paths_are_paths(path: str) -> None:
    """Whatever a server makes of raw bytes can be hashed and stored."""
    guarded = Guarded(Shop())
    assert [(await call(guarded, http(path=path))).status for _ in range(2)] == [201, 201]


@pytest.mark.parametrize("events", [[DISCONNECT], chunks(b"a", complete=False), [{"type": "http.request"}, DISCONNECT]])
async def test_without_a_key_in_the_body_nothing_is_lost(events: Any) -> None:
    """Keys in bodies, not required: a body without one reaches the application, a truncated one does not."""
    shop = Shop()
    wire = Wire(events)
    await Guarded(shop, dialect="aws", required=False)(http(), wire.receive, wire.send)
    assert len(shop.effects) == (events[0]["type"] == "http.request" and not events[0].get("more_body", False))


async def test_what_the_application_hears_after_a_body_without_a_key() -> None:
    """First the body, then whatever the server says."""
    heard = []

    async def app(scope: Any, receive: Any, send: Any) -> None:
        heard.extend([await receive(), await receive()])

    wire = Wire([*chunks(b"{", b"}"), DISCONNECT])
    await Guarded(app, dialect="aws", required=False)(http(), wire.receive, wire.send)
    assert heard == [{"type": "http.request", "body": b"{}", "more_body": False}, DISCONNECT]


# ---- how the work ends -------------------------------------------------------------------------------------------


class Slow(InThread):
    """A store that can be held at its verbs."""

    def __init__(self, inner: Any) -> None:
        super().__init__(inner)
        self.held: set[str] = set()
        self.go = asyncio.Event()
        self.reached: list[str] = []

    def __getattr__(self, verb: str) -> Any:
        async def run(*args: Any, **options: Any) -> Any:
            self.reached.append(verb)
            if verb in self.held:
                await self.go.wait()
            return getattr(self.inner, verb)(*args, **options)

        return run


async def test_a_task_that_sends_after_the_end_cannot_answer_a_second_time() -> None:
    """The application returned without an answer while a task of its own still wanted to give one."""
    store, late = Slow(Shaky()), []

    async def app(scope: Any, receive: Any, send: Any) -> None:
        async def later() -> None:
            while "settle" not in store.reached:
                await asyncio.sleep(0)
            for message in answer(201, b"late"):
                await send(message)

        late.append(asyncio.create_task(later()))

    store.held = {"settle"}
    guarded, wire = Guarded(app, store), Wire()
    running = asyncio.create_task(guarded(http(), wire.receive, wire.send))
    while not late or not late[0].done():
        await asyncio.sleep(0)
    store.go.set()
    await running
    assert isinstance(late[0].exception(), RuntimeError)
    assert [message["type"] for message in wire.sent] == [START, BODY]
    assert wire.answer.status == 409


async def test_a_time_limit_that_strikes_at_the_answer_does_not_lose_it() -> None:
    """The outcome was on its way when the handler was cancelled: the retry gets it."""
    store = Slow(Shaky())
    done: list[Any] = []

    async def app(scope: Any, receive: Any, send: Any) -> None:
        await receive()
        done.append(asyncio.current_task())
        for message in answer(201, b"ok"):
            await send(message)

    store.held = {"settle"}
    guarded, wire = Guarded(app, store), Wire()
    running = asyncio.create_task(guarded(http(), wire.receive, wire.send))
    while "settle" not in store.reached:
        await asyncio.sleep(0)
    done[0].cancel()
    await asyncio.sleep(0)
    store.go.set()
    with pytest.raises(asyncio.CancelledError):
        await running
    assert (await call(guarded)).body == b"ok"


async def test_work_that_was_cancelled_before_it_began_gives_the_key_back() -> None:
    """Nothing was done, and that is known: the next request runs."""
    shop, inner = Shop(), Shaky()
    guarded = Guarded(shop, Slow(inner))
    keeper = guarded.app.engine.keeper
    keeper._thread = threading.current_thread()
    running = asyncio.create_task(call(guarded))
    while not guarded.app.running and not running.done():
        await asyncio.sleep(0)
        for task in list(guarded.app.running):
            task.cancel()
    await asyncio.wait([running])
    if shop.effects:  # it began at once, as it does where Python can
        pytest.skip("work starts in the request's own step here")
    assert keeper._attempts == {}
    assert [debt.settlement.target for debt in keeper._owed.values()] == [State.FAILED_RETRYABLE]


async def test_a_stored_answer_that_cannot_be_read_is_refused_to_a_stale_owner() -> None:
    """Somebody else's answer counts, and it is damaged: a clear refusal, no fault in the application."""
    store = MemoryStore()

    async def app(scope: Any, receive: Any, send: Any) -> None:
        [record] = store._records.values()
        store._put(record._replace(state=State.COMPLETED, token=b"another token...", outcome=b"\xff", expires_at=None))
        for message in answer(201, b"mine"):
            await send(message)

    guarded = Guarded(app, AsyncMemoryStore(store))
    refused = await call(guarded)
    assert refused.status == 503
    assert b"mine" not in refused.body


@pytest.mark.parametrize("at", [0, 1])
async def test_a_send_that_fails_at_any_message_changes_nothing(at: int) -> None:
    """Status line or body: the outcome is stored, and the retry gets all of it."""
    guarded = Guarded(Shop())
    sent: list[Any] = []

    async def send(message: Any) -> None:
        if len(sent) == at:
            raise OSError("connection lost")
        sent.append(message)

    with pytest.raises(OSError, match="lost"):
        await guarded(http(), Wire().receive, send)
    assert (await call(guarded)).body == b'{"n":1}'
