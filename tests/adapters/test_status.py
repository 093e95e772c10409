"""A caller asks what became of its operation: in both gateways alike, and nobody learns of anybody else's."""

from __future__ import annotations

import io
import json
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from oncekey import OnceKey, OnceKeyMiddleware, OutcomeUnknown, Policy, by_header
from oncekey.core.record import State, replace
from oncekey.errors import ConfigurationError, StoreUnavailable
from oncekey.stores.memory import AsyncMemoryStore, MemoryStore
from tests.adapters.asgi_kit import Answer, Shop, call, http

Ask = Callable[..., Awaitable[Answer]]


@pytest.fixture
def once() -> OnceKey:
    """An installation in memory."""
    return OnceKey("memory://", scope=by_header("Authorization"))


@pytest.fixture
def store(once: OnceKey) -> MemoryStore:
    """Its records."""
    store = once.async_engine.store
    assert isinstance(store, AsyncMemoryStore)
    return store.sync


@pytest.fixture(params=["asgi", "wsgi"])
def ask(request: pytest.FixtureRequest, once: OnceKey, store: MemoryStore) -> Ask:
    """Ask the endpoint, in either gateway."""

    async def ask(path: str, query: str = "", caller: str | None = "Bearer alice", **change: Any) -> Answer:
        headers = [(b"authorization", caller.encode())] if caller is not None else []
        headers += change.pop("headers", [])
        endpoints = change.pop("endpoints", ())
        method = change.pop("method", "GET")
        if request.param == "asgi":
            scope = http(method=method, path=path, query_string=query.encode(), headers=headers)
            return await call(once.status(endpoints=endpoints), scope)
        return wsgi(once, store, (method, path, query), headers, endpoints)

    return ask


def wsgi(once: OnceKey, store: MemoryStore, line: tuple[str, str, str], headers: list[Any], endpoints: Any) -> Answer:
    """One request by WSGI."""
    once.engine.store = store
    method, path, query = line
    environ = {"REQUEST_METHOD": method, "PATH_INFO": path, "QUERY_STRING": query, "wsgi.input": io.BytesIO()}
    environ |= {"HTTP_" + name.decode().upper().replace("-", "_"): value.decode() for name, value in headers}
    started: list[Any] = []

    def start_response(*head: Any) -> Callable[[bytes], object]:
        started.append(head)
        return started.append

    body = b"".join(once.status_wsgi(endpoints=endpoints)(environ, start_response))
    status, pairs = started[0][:2]
    return Answer(int(status.split()[0]), [(name.lower().encode(), value.encode()) for name, value in pairs], body)


async def pay(once: OnceKey, app: Any, key: bytes = b"key-1") -> None:
    """A request to /pay by alice."""
    await call(OnceKeyMiddleware(app, once.async_engine, scope=once.scope), http(key))


async def lost(scope: Any, receive: Any, send: Any) -> None:
    """Nobody knows what this did."""
    raise OutcomeUnknown


WHERE = "endpoint=POST%20/pay"
PLACE = "/idempotency/operations/key-1"


async def test_a_caller_sees_its_operation(once: OnceKey, ask: Ask) -> None:
    """Its state, and of an answer the status; the answer itself is had by sending the request again."""
    await pay(once, Shop())
    told = await ask(PLACE, WHERE)
    value = json.loads(told.body)
    assert (told.status, told[b"cache-control"]) == (200, b"no-store")
    assert value.pop("operation").startswith("ok_")
    assert value == {"state": "completed", "retry": "same-key-later", "status": 201}


async def test_an_unknown_outcome_says_when_to_come_back(once: OnceKey, ask: Ask) -> None:
    """Whole seconds, in the header too."""
    await pay(once, lost)
    told = await ask(PLACE, WHERE)
    value = json.loads(told.body)
    assert (value["state"], value["retry"]) == ("unknown", "same-key-later")
    assert told[b"retry-after"] == str(value["retry_after"]).encode()
    assert value["retry_after"] >= 5


async def test_what_is_foreign_is_as_absent(once: OnceKey, ask: Ask) -> None:
    """Another caller, another endpoint, another key, one that has expired: byte for byte the same 404."""
    await pay(once, Shop())
    absent = await ask("/idempotency/operations/never-used", WHERE)
    assert absent.status == 404
    for path, query, caller in (
        (PLACE, WHERE, "Bearer bob"),
        (PLACE, "endpoint=POST%20/other", "Bearer alice"),
        ("/idempotency/operations/key-2", WHERE, "Bearer alice"),
    ):
        assert await ask(path, query, caller) == absent


async def test_one_that_has_expired_is_absent(once: OnceKey, ask: Ask, store: MemoryStore) -> None:
    """Past its expiry a record counts as forgotten, purged or not; an answer past its own time is expired."""
    await pay(once, Shop())
    [record] = store.scan(tuple(State)).records
    store._records[record.id] = replace(record, due_at=1)
    assert json.loads((await ask(PLACE, WHERE)).body)["state"] == "expired"
    store._records[record.id] = replace(record, expires_at=1)
    assert (await ask(PLACE, WHERE)).status == 404


async def test_the_key_may_come_in_its_header(once: OnceKey, ask: Ask) -> None:
    """So that it stands in no log of paths."""
    await pay(once, Shop())
    told = await ask("/idempotency/operations", WHERE, headers=[(b"idempotency-key", b"key-1")])
    assert json.loads(told.body)["state"] == "completed"


async def test_endpoints_may_be_given_beforehand(once: OnceKey, ask: Ask) -> None:
    """Then a request need not name its own."""
    await pay(once, Shop())
    assert (await ask(PLACE, endpoints=["POST /other", "POST /pay/"])).status == 200
    assert (await ask(PLACE, endpoints=["POST /other"])).status == 404


@pytest.mark.parametrize(
    ("path", "query", "caller", "method", "status"),
    [
        (PLACE, "", "Bearer alice", "GET", 400),
        (PLACE, "endpoint=pay", "Bearer alice", "GET", 400),
        (PLACE, WHERE, None, "GET", 401),
        (PLACE, WHERE, "Bearer alice", "POST", 405),
        ("/idempotency/operations/", WHERE, "Bearer alice", "GET", 400),
        ("/idempotency/operations", WHERE, "Bearer alice", "GET", 400),
        ("/idempotency/operations/two words", WHERE, "Bearer alice", "GET", 400),
        ("/idempotency", WHERE, "Bearer alice", "GET", 404),
        ("/elsewhere/operations/key-1", WHERE, "Bearer alice", "GET", 404),
    ],
)
async def test_what_makes_no_sense_is_a_problem(
    ask: Ask, path: str, query: str, caller: str | None, method: str, status: int
) -> None:
    """Never a 500, always a sentence with the next step."""
    told = await ask(path, query, caller, method=method)
    assert (told.status, told[b"content-type"]) == (status, b"application/problem+json")
    assert json.loads(told.body)["detail"].endswith(".")


async def test_head_has_no_body(once: OnceKey, ask: Ask) -> None:
    """And the same headers."""
    await pay(once, Shop())
    told = await ask(PLACE, WHERE, method="HEAD")
    assert (told.status, told.body) == (200, b"")


async def test_a_store_that_is_away_is_a_503(ask: Ask, store: MemoryStore) -> None:
    """Nothing of the store's message is shown."""

    def away(id_: bytes) -> None:
        raise StoreUnavailable("redis://user:secret@host is away")

    store.get = away  # type: ignore[method-assign]
    told = await ask(PLACE, WHERE)
    assert (told.status, b"secret" in told.body) == (503, False)


def test_bad_endpoints_are_refused_when_it_is_made() -> None:
    """A text, or what is no endpoint, would never find anything."""
    once = OnceKey("memory://", scope=by_header("Authorization"), policy=Policy())
    for wrong in ("POST /pay", ["pay"], ["POST /x"] * 17):
        with pytest.raises(ConfigurationError):
            once.status(endpoints=wrong)
