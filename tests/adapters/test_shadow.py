"""Shadow mode under ASGI: everything is counted, and nothing is changed."""

from __future__ import annotations

import asyncio
import logging
from typing import Any

import pytest

from oncekey import OnceKeyMiddleware, Policy, by_header
from oncekey.core.keys import SHADOW
from oncekey.core.outcome import Tombstone, unpack
from oncekey.core.record import Record, State
from oncekey.engine import events
from oncekey.engine.aio import AsyncEngine
from oncekey.engine.events import Event
from oncekey.engine.sealing import Sealer
from oncekey.errors import Declined, NotExecuted, StoreUnavailable
from oncekey.operations import purge
from oncekey.stores.memory import AsyncMemoryStore, MemoryStore
from oncekey.telemetry.counters import Counters
from oncekey.telemetry.metrics import BY_EVENT
from oncekey.testing import ManualClock
from tests.adapters.asgi_kit import BODY, START, Shop, Wire, answer, call, chunks, http


class Shadowed:
    """An application in shadow mode over a memory store, and what was told of it."""

    def __init__(self, app: Any, store: Any = None, **choices: Any) -> None:
        self.clock = ManualClock()
        self.store = store or MemoryStore(self.clock)
        self.heard: list[Event] = []
        given = AsyncMemoryStore(self.store)
        choices.setdefault("scope", by_header("authorization"))
        choices.setdefault("sinks", (self.heard.append,))
        self.app = OnceKeyMiddleware(app, given, shadow=True, **choices)

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        await self.app(scope, receive, send)

    async def ask(self, scope: Any = None, sent: Any = ()) -> Any:
        """Send a request, and wait until its shadow is written down."""
        try:
            return await call(self.app, scope or http(), sent)
        finally:
            while self.app.running:
                await asyncio.wait(set(self.app.running))

    @property
    def told(self) -> list[str]:
        return [event.name for event in self.heard]

    @property
    def records(self) -> list[Record]:
        return self.store.scan(list(State)).records


async def test_a_duplicate_runs_again_and_is_counted() -> None:
    """Both requests reach the application, and both get its own answer."""
    shop = Shop()
    shadowed = Shadowed(shop)
    bodies = [(await shadowed.ask()).body for _ in range(2)]
    assert bodies == [b'{"n":1}', b'{"n":2}']
    assert shadowed.told == [events.SHADOW_CREATED, events.SHADOW_REPLAYED]
    assert (shadowed.heard[0].endpoint, shadowed.heard[0].ref) == ("POST /pay", shadowed.heard[1].ref)
    assert not hasattr(shop.scopes[0], "oncekey")


async def test_messages_pass_as_they_are() -> None:
    """Chunks of the upload and of the answer, and the scope: neither side notices anything."""
    streamed: list[dict[str, Any]] = [
        {"type": START, "status": 200, "headers": []},
        {"type": BODY, "body": b"a", "more_body": True},
        {"type": BODY, "body": b"b", "more_body": False},
        {"type": "http.response.trailers", "headers": []},
    ]
    received: list[Any] = []

    class Looking(Shop):
        async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
            async def noting() -> Any:
                received.append(await receive())
                return received[-1]

            await super().__call__(scope, noting, send)

    shop = Looking(*streamed)
    scope, sent = http(), chunks(b'{"a"', b":1}")
    wire = Wire(list(sent))
    shadowed = Shadowed(shop)
    await shadowed(scope, wire.receive, wire.send)
    assert received == sent
    assert all(mine is theirs for mine, theirs in zip(received, sent, strict=True))
    assert all(mine is theirs for mine, theirs in zip(wire.sent, streamed, strict=True))
    assert shop.scopes[0] is scope


async def test_headers_that_can_be_read_once_reach_the_client() -> None:
    """ASGI lets them be any iterable: who looks on leaves them as they were."""
    sent: list[Any] = [{"type": START, "status": 200, "headers": iter([(b"a", b"b")])}, {"type": BODY, "body": b""}]
    assert (await Shadowed(Shop(*sent)).ask()).headers == [(b"a", b"b")]


async def test_another_request_under_the_key_is_counted() -> None:
    """It would have been refused."""
    shadowed = Shadowed(Shop())
    await shadowed.ask()
    assert (await shadowed.ask(sent=chunks(b'{"a":2}'))).status == 201
    assert shadowed.told[-1] == events.SHADOW_KEY_MISUSE


async def test_a_duplicate_of_a_run_that_lasts_is_counted() -> None:
    """It runs beside the first, and no answer waits for the other."""
    both = asyncio.Event()

    class Slow(Shop):
        async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
            await receive()
            self.effects.append(b"")
            if len(self.effects) == 2:
                both.set()
            await both.wait()
            for message in answer(201, b"done"):
                await send(message)

    shadowed = Shadowed(Slow(), policy=Policy(wait_for=30))
    first = asyncio.create_task(shadowed.ask())
    while shadowed.told != [events.SHADOW_CREATED]:
        await asyncio.sleep(0)
    second = await shadowed.ask()
    assert (second.status, (await first).status) == (201, 201)
    assert shadowed.told == [events.SHADOW_CREATED, events.SHADOW_IN_PROGRESS]


@pytest.mark.parametrize(
    ("status", "then"),
    [
        (201, events.SHADOW_REPLAYED),
        (404, events.SHADOW_REPLAYED),
        (429, events.SHADOW_RETRIED),
        (500, events.SHADOW_UNKNOWN),
    ],
)
async def test_the_outcome_table_decides_what_a_retry_would_get(status: int, then: str) -> None:
    """By the dialect's table, as if the first request had been guarded."""
    shadowed = Shadowed(Shop(*answer(status, b"")))
    for _ in range(2):
        assert (await shadowed.ask()).status == status
    assert shadowed.told == [events.SHADOW_CREATED, then]


@pytest.mark.parametrize(
    ("error", "then"),
    [
        (RuntimeError("x"), events.SHADOW_UNKNOWN),
        (NotExecuted(), events.SHADOW_RETRIED),
        (Declined({"why": "no"}, 402), events.SHADOW_REPLAYED),
    ],
)
async def test_an_exception_goes_where_it_went(error: Exception, then: str) -> None:
    """To the server, unchanged; what it would have meant is counted."""

    class Failing(Shop):
        async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
            await receive()
            raise error

    shadowed = Shadowed(Failing())
    for _ in range(2):
        with pytest.raises(type(error)) as raised:
            await shadowed.ask()
        assert raised.value is error
    assert shadowed.told == [events.SHADOW_CREATED, then]
    assert b'"no"' not in shadowed.records[0].outcome


async def test_no_record_of_a_shadow_is_taken_for_a_real_one() -> None:
    """When a team switches over, its first guarded request runs, whatever a shadow has seen."""
    shop = Shop()
    shadowed = Shadowed(shop)
    await shadowed.ask()
    real = OnceKeyMiddleware(shop, AsyncMemoryStore(shadowed.store), scope=by_header("authorization"))
    first, second = [await call(real) for _ in range(2)]
    assert first.body == second.body == b'{"n":2}'
    assert {record.label.endpoint for record in shadowed.records} == {f"{SHADOW}POST /pay", "POST /pay"}


async def test_records_carry_no_bodies_and_are_never_unknown() -> None:
    """Nobody could find out about a shadow's outcome, so that none waits for it, and none is asked about."""
    shadowed = Shadowed(Shop(*answer(500, b"secret")))
    await shadowed.ask()
    [record] = shadowed.records
    assert record.state is State.COMPLETED
    assert isinstance(unpack(Sealer().open(record.id, record.outcome)), Tombstone)
    assert b"secret" not in record.outcome


async def test_a_shadow_whose_process_died_is_swept_in_silence() -> None:
    """It becomes retryable, is told as no zombie, and is purged like anything else."""
    lapsing = Shadowed(Shop())
    lapsing.app.engine.settle = lambda *given: asyncio.sleep(0)  # type: ignore[method-assign, assignment]
    await lapsing.ask()
    heard: list[Event] = []
    lapsing.clock.advance(31_000)
    purge(lapsing.store, sinks=(heard.append,))
    assert [record.state for record in lapsing.records] == [State.FAILED_RETRYABLE]
    assert heard == []
    lapsing.clock.advance(100_000_000)
    assert purge(lapsing.store).deleted == 1


@pytest.mark.parametrize(
    ("headers", "why"),
    [
        ([], "key-missing"),
        ([(b"idempotency-key", b'"never closed')], "key-invalid"),
        ([(b"idempotency-key", b"a"), (b"idempotency-key", b"b")], "key-repeated"),
    ],
)
async def test_a_key_that_is_none_is_counted(headers: list[Any], why: str) -> None:
    """A team sees which clients send none before it requires one."""
    shop = Shop()
    shadowed = Shadowed(shop, required=True)
    assert (await shadowed.ask(http(None) | {"headers": [(b"authorization", b"alice"), *headers]})).status == 201
    assert [(event.name, event.detail) for event in shadowed.heard] == [(events.SHADOW_KEY_REFUSED, why)]


async def test_a_request_without_a_caller_is_counted() -> None:
    """A guard would have answered 401."""
    shadowed = Shadowed(Shop())
    await shadowed.ask(http() | {"headers": [(b"idempotency-key", b"k")]})
    assert shadowed.told == [events.SHADOW_KEY_REFUSED]


async def test_what_needs_no_key_passes_in_silence() -> None:
    """Other methods, and requests without a key where none is required."""
    shadowed = Shadowed(Shop(), required=False)
    await shadowed.ask(http(None))
    await shadowed.ask(http(method="GET"))
    assert shadowed.told == []


async def test_a_body_over_the_limit_passes_whole() -> None:
    """It is not looked at, and reaches the application to its last byte."""
    shop = Shop()
    shadowed = Shadowed(shop, policy=Policy(max_body=10))
    await shadowed.ask(sent=chunks(b"12345678", b"12345678"))
    assert shop.effects == [b"1234567812345678"]
    assert [(event.name, event.detail) for event in shadowed.heard] == [
        (events.SHADOW_SKIPPED, "the body is over the limit")
    ]


async def test_a_body_that_nobody_reads_is_said_to_be_unseen() -> None:
    """Without it nobody knows whether the request is the same; one that has no body needs no reading."""

    class Blind(Shop):
        async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
            for message in answer(201, b""):
                await send(message)

    shadowed = Shadowed(Blind())
    lengthy = http()
    lengthy["headers"].append((b"content-length", b"7"))
    await shadowed.ask(lengthy)
    assert shadowed.told == [events.SHADOW_SKIPPED]
    for _ in range(2):
        empty = http()
        empty["headers"].append((b"content-length", b"0"))
        await shadowed.ask(empty)
    assert shadowed.told[1:] == [events.SHADOW_CREATED, events.SHADOW_REPLAYED]


async def test_a_client_that_leaves_leaves_nothing() -> None:
    """Half an upload would never have been run."""
    shadowed = Shadowed(Shop())
    wire = Wire([*chunks(b'{"a"', complete=False)])
    await shadowed(http(), wire.receive, wire.send)
    assert shadowed.records == []
    assert shadowed.told == [events.SHADOW_SKIPPED]
    assert len(wire.events) <= 1


class Away(MemoryStore):
    """A store that does not answer."""

    def claim(self, many: Any) -> Any:
        raise StoreUnavailable("it is away")

    settle = claim


async def test_a_store_that_is_away_disturbs_no_request(caplog: pytest.LogCaptureFixture) -> None:
    """The request is served, and the trouble is counted and logged."""
    shadowed = Shadowed(Shop(), store=Away())
    with caplog.at_level(logging.WARNING):
        assert (await shadowed.ask()).status == 201
    assert [(event.name, event.detail) for event in shadowed.heard] == [(events.SHADOW_ERROR, "it is away")]
    assert "served all the same" in caplog.text


async def test_a_store_that_hangs_holds_no_request() -> None:
    """Nobody waits for the shadow."""
    go = asyncio.Event()

    class Hanging:
        url = "hanging://"

        def __getattr__(self, verb: str) -> Any:
            async def hang(*given: Any) -> Any:
                await go.wait()
                raise StoreUnavailable("too late")

            return hang

    heard: list[Event] = []
    app = OnceKeyMiddleware(Shop(), Hanging(), scope=by_header("authorization"), shadow=True, sinks=(heard.append,))
    assert (await call(app)).status == 201
    assert heard == []
    go.set()
    await asyncio.wait(app.running)
    assert [event.name for event in heard] == [events.SHADOW_ERROR]


async def test_a_scope_that_fails_disturbs_no_request(caplog: pytest.LogCaptureFixture) -> None:
    """A team tries its scope in shadow mode, too."""

    def broken(request: Any) -> str:
        raise KeyError("no such user")

    shadowed = Shadowed(Shop(), scope=broken)
    assert (await shadowed.ask()).status == 201
    assert shadowed.told == [events.SHADOW_ERROR]
    assert "KeyError" in caplog.text


async def test_a_function_of_the_users_that_fails_disturbs_no_request() -> None:
    """Whichever of them: the request is served, and the failure counted."""

    def broken(path: str) -> bool:
        raise LookupError(path)

    shadowed = Shadowed(Shop(), paths=broken)
    assert (await shadowed.ask()).status == 201
    assert shadowed.told == [events.SHADOW_ERROR]


async def test_simultaneous_duplicates_have_one_first() -> None:
    """The store decides, as it will."""
    shop = Shop()
    shadowed = Shadowed(shop)
    await asyncio.gather(*(shadowed.ask() for _ in range(20)))
    assert len(shop.effects) == 20
    assert shadowed.told.count(events.SHADOW_CREATED) == 1
    assert len(shadowed.told) == 20


async def test_an_engine_can_be_shared_with_guards() -> None:
    """What is told goes to its sinks, under the shadow's names alone; its store is left open at the end."""
    counters = Counters()
    engine = AsyncEngine(AsyncMemoryStore(MemoryStore()), sinks=(counters,))
    app = OnceKeyMiddleware(Shop(), engine, scope=by_header("authorization"), shadow=True)
    for _ in range(2):
        await call(app)
        await asyncio.gather(*app.running)
    moved = {metric.name for metric, count in counters.totals().items() if count}
    assert moved == {BY_EVENT[name].name for name in (events.SHADOW_CREATED, events.SHADOW_REPLAYED)}


async def test_start_and_stop_pass_through(tmp_path: Any) -> None:
    """A store that could not be used is no reason not to start; what runs is written down before the end."""
    heard: list[Event] = []
    app = OnceKeyMiddleware(
        Living(), f"sqlite:///{tmp_path}/x.db", scope=by_header("authorization"), shadow=True, sinks=(heard.append,)
    )
    await app.engine.store.migrate()
    wire = Wire([{"type": "lifespan.startup"}, {"type": "lifespan.shutdown"}])
    running = asyncio.create_task(app({"type": "lifespan"}, wire.receive, wire.send))
    await call(app)
    await running
    assert [message["type"] for message in wire.sent] == ["lifespan.startup.complete", "lifespan.shutdown.complete"]
    assert app.engine.closed


class Living(Shop):
    """An application with a lifespan."""

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] != "lifespan":
            await super().__call__(scope, receive, send)
            return
        for _ in range(2):
            message = await receive()
            await send({"type": f"{message['type']}.complete"})
