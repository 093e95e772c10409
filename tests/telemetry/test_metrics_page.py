"""The page for Prometheus, mounted in applications of both colours."""

from __future__ import annotations

from typing import Any

import pytest

from oncekey import OnceKey, by_header
from oncekey.adapters.endpoint import AsgiEndpoint, WsgiEndpoint
from oncekey.core.commands import Settlement
from oncekey.core.record import State
from oncekey.errors import StoreUnavailable
from oncekey.stores.memory import AsyncMemoryStore, MemoryStore
from oncekey.telemetry.counters import Counters
from oncekey.telemetry.metrics_page import MetricsPage
from oncekey.testing import ManualClock
from tests.adapters import asgi_kit, wsgi_kit
from tests.engine.stubs import claim

AGE, UP = "api_idempotency_unknown_age_seconds", "api_idempotency_store_up"


class Away(MemoryStore):
    """A store that does not answer."""

    def scan(self, *args: Any, **options: Any) -> Any:
        raise StoreUnavailable("it is away")


def figures(page: bytes) -> dict[str, float]:
    """The samples of a page."""
    lines = [line for line in page.decode().splitlines() if not line.startswith("#")]
    return {name: float(value) for name, value in (line.rsplit(" ", 1) for line in lines)}


def unknown(store: MemoryStore, name: str, due_for: int | None) -> None:
    """An operation whose outcome is unknown; without a time it is a dead letter."""
    taken = claim(name)
    store.claim([taken])
    store.settle([Settlement(taken.id, taken.token, State.UNKNOWN, due_for=due_for)])


async def scraped(store: MemoryStore, method: str = "GET") -> asgi_kit.Answer:
    """One scrape."""
    mounted = AsgiEndpoint(MetricsPage(Counters()), lambda: AsyncMemoryStore(store))
    return await asgi_kit.call(mounted, asgi_kit.http(None, method=method), asgi_kit.chunks(b""))


async def test_the_age_is_that_of_the_oldest_unknown() -> None:
    """However late it is asked about again, and also when nobody asks any more."""
    clock = ManualClock()
    store = MemoryStore(clock)
    unknown(store, "old", 900_000)
    clock.advance(60_000)
    unknown(store, "young", 1)
    assert figures((await scraped(store)).body)[AGE] == 60
    store = MemoryStore(clock)
    unknown(store, "dead", None)
    clock.advance(1_000)
    unknown(store, "young", 1)
    seen = figures((await scraped(store)).body)
    assert (seen[AGE], seen["api_idempotency_unknown_seen"], seen["api_idempotency_unknown_dead_letters"]) == (1, 1, 1)


async def test_no_unknown_has_no_age() -> None:
    """An alert needs a figure for that as well."""
    seen = figures((await scraped(MemoryStore())).body)
    assert (seen[AGE], seen[UP]) == (0, 1)


async def test_the_page_is_there_without_the_store() -> None:
    """What was counted is told; an age that nobody knows is left out, because 0 would say that all is well."""
    seen = figures((await scraped(Away())).body)
    assert AGE not in seen
    assert (seen[UP], seen["api_idempotency_reserve_created_count"]) == (0, 0)


async def test_the_page_is_read_not_written() -> None:
    """Other methods are refused."""
    refused = await scraped(MemoryStore(), "POST")
    assert (refused.status, refused[b"allow"]) == (405, b"GET, HEAD")


def test_wsgi_serves_the_same() -> None:
    """With the media type that Prometheus asks for, and also when the store is away."""
    for make, up in ((MemoryStore, 1.0), (Away, 0.0)):
        mounted = WsgiEndpoint(MetricsPage(Counters()), make)
        told = wsgi_kit.call(mounted, wsgi_kit.post(None, b"", REQUEST_METHOD="GET"))
        assert figures(told.body)[UP] == up
        assert ("content-type", "text/plain; version=0.0.4; charset=utf-8") in told.headers


async def test_an_installation_has_its_pages(tmp_path: Any) -> None:
    """Of either colour, on its own store."""
    once = OnceKey(f"sqlite:///{tmp_path}/oncekey.db", scope=by_header("Authorization"))
    once.engine.store.migrate()
    page = await asgi_kit.call(once.metrics(Counters()), asgi_kit.http(None, method="GET"), asgi_kit.chunks(b""))
    assert figures(page.body)[UP] == 1
    told = wsgi_kit.call(once.metrics_wsgi(Counters()), wsgi_kit.post(None, b"", REQUEST_METHOD="GET"))
    assert figures(told.body)[UP] == 1
    once.close()
    await once.aclose()


@pytest.mark.parametrize("length", ["9" * 5000, "²", "x"])
def test_a_length_that_is_no_number_is_answered(length: str) -> None:
    """However a proxy lets it through: 413, and no error of Python's."""
    mounted = WsgiEndpoint(MetricsPage(Counters()), MemoryStore)
    told = wsgi_kit.call(mounted, wsgi_kit.post(None, b"", REQUEST_METHOD="GET") | {"CONTENT_LENGTH": length})
    assert told.status == 413
