"""What else commits with an operation, what else opens its connection, and the other collision that is run again."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any

import psycopg
import psycopg_pool
import pytest
from sqlalchemy import NullPool, create_engine
from sqlalchemy.ext.asyncio import async_sessionmaker, create_async_engine
from sqlalchemy.orm import sessionmaker

from oncekey.effects.connections import execute, execute_async
from oncekey.effects.outbox import Outbox
from tests.adapters.transactional import apps
from tests.effects.kinds import ASYNC, SYNC, Kind, engine_url, named
from tests.effects.transaction.shop import INSERT, Shop

OUTBOX = Outbox()
PLACE = "POST /orders"


@contextmanager
def staged(shop: Shop) -> Iterator[list[str]]:
    """An empty outbox; what stands in it at the end."""
    found: list[str] = []
    with shop.look() as connection:
        OUTBOX.migrate(connection)
        connection.execute("DELETE FROM oncekey_outbox")
        yield found
        found += [row[0] for row in connection.execute("SELECT aggregatetype FROM oncekey_outbox").fetchall()]


def fail(*, now: bool) -> None:
    if now:
        raise ValueError


@pytest.mark.parametrize("kind", SYNC, ids=named)
def test_messages_commit_with_the_operation(kind: Kind, shop: Shop) -> None:
    """Claim, order, message and outcome: all of them once, and none where the block fails."""
    key = shop.key()
    with staged(shop) as messages, kind.opened(shop.url) as connection:
        for fails in (True, False, False):
            try:
                with shop.once.transaction(connection, key=key, operation=PLACE) as tx:
                    if not tx.replayed:
                        execute(connection, INSERT, ("1",))
                        OUTBOX.stage(connection, "orders", {"number": 1})
                        fail(now=fails)
            except ValueError:
                assert fails
    assert (shop.orders(), messages) == (["1"], ["orders"])


@pytest.mark.parametrize("kind", ASYNC, ids=named)
async def test_messages_commit_with_it_when_awaited(kind: Kind, shop: Shop) -> None:
    """The same under asyncio."""
    key = shop.key()
    with staged(shop) as messages:
        async with kind.opened(shop.url) as connection:
            for fails in (True, False, False):
                try:
                    async with shop.once.transaction(connection, key=key, operation=PLACE) as tx:
                        if not tx.replayed:
                            await execute_async(connection, INSERT, ("1",))
                            await OUTBOX.stage_async(connection, "orders", {"number": 1})
                            fail(now=fails)
                except ValueError:
                    assert fails
    assert (shop.orders(), messages) == (["1"], ["orders"])


@pytest.mark.parametrize("opened", [apps.fastapi_session, apps.flask_session], ids=["fastapi", "flask"])
def test_messages_commit_with_an_answer(opened: Any, shop: Shop, monkeypatch: pytest.MonkeyPatch) -> None:
    """Over HTTP too: what a handler stages on its session is sent if, and only if, its answer is kept."""
    write = apps.written

    def ordered(session: Any, asked: dict[str, Any]) -> None:
        OUTBOX.stage(session, "orders", asked)
        write(session, asked)

    monkeypatch.setattr(apps, "written", ordered)
    with staged(shop) as messages, opened(shop.url) as post:
        assert [post("k", number="1", do=do).status for do in ("503", "fail")] == [503, 500]
        assert [post("k", number="1").status for _ in range(2)] == [201, 201]
    assert (shop.orders(), messages) == (["1"], ["orders"])


@pytest.mark.parametrize("what", ["engine", "sessions", "pool"])
def test_what_an_application_has_anyway_opens_connections(what: str, shop: Shop) -> None:
    """An engine, a sessionmaker, a pool: each attempt takes one connection, and gives it back."""
    engine = create_engine(engine_url(shop.url), pool_size=1, max_overflow=0, pool_timeout=5)
    with psycopg_pool.ConnectionPool(shop.url, min_size=1, max_size=1, timeout=5, open=True) as pool:
        given = {"engine": engine, "sessions": sessionmaker(engine), "pool": pool}[what]
        for _ in range(3):
            with shop.once.transaction(given, key="k", operation=PLACE) as tx:
                if not tx.replayed:
                    execute(tx.connection, INSERT, ("1",))
    engine.dispose()
    assert shop.orders() == ["1"]


@pytest.mark.parametrize("what", ["engine", "sessions", "pool"])
async def test_what_opens_connections_for_asyncio(what: str, shop: Shop) -> None:
    """The same under asyncio."""
    engine = create_async_engine(engine_url(shop.url), pool_size=1, max_overflow=0, pool_timeout=5)
    async with psycopg_pool.AsyncConnectionPool(shop.url, min_size=1, max_size=1, timeout=5, open=False) as pool:
        given = {"engine": engine, "sessions": async_sessionmaker(engine), "pool": pool}[what]
        for _ in range(3):
            async with shop.once.transaction(given, key="k", operation=PLACE) as tx:
                if not tx.replayed:
                    await execute_async(tx.connection, INSERT, ("1",))
    await engine.dispose()
    assert shop.orders() == ["1"]


@pytest.mark.parametrize("library", ["psycopg", "sqlalchemy"])
def test_a_deadlock_is_met_by_running_again(library: str, shop: Shop) -> None:
    """Two that wait for each other: the database ends one of them (40P01), and that one is run again, and once."""
    engine = create_engine(engine_url(shop.url), poolclass=NullPool)
    opened: Any = engine.begin if library == "sqlalchemy" else lambda: psycopg.connect(shop.url)
    with shop.look() as other:
        other.execute("INSERT INTO orders (number) VALUES ('a'), ('b')")
    both, one_is_done, ran = threading.Barrier(2), threading.Event(), []

    @shop.once.transaction(opened, key=lambda first, then: shop.key(), operation="swap", database_only=True)
    def swap(connection: Any, first: str, then: str) -> None:
        ran.append(first)
        if len(ran) > 2:  # otherwise it could take its row before the other wakes, and collide again
            assert one_is_done.wait(20)
        execute(connection, "UPDATE orders SET number = number WHERE number = $1", (first,))
        if len(ran) <= 2:
            both.wait(20)
        execute(connection, "UPDATE orders SET number = number WHERE number = $1", (then,))

    with ThreadPoolExecutor(2) as threads:
        swaps = [threads.submit(swap, "a", "b"), threads.submit(swap, "b", "a")]
        for done in swaps:
            done.add_done_callback(lambda _: one_is_done.set())
        for done in swaps:
            done.result()
    engine.dispose()
    assert sorted(ran) in (["a", "a", "b"], ["a", "b", "b"])
