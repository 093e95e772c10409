"""Many at once with one key, on PostgreSQL: one runs, nobody waits, nobody runs twice."""

from __future__ import annotations

import threading
import time
from collections.abc import AsyncIterator, Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from typing import Any

import psycopg
import psycopg_pool
import pytest

from oncekey import NotGranted
from oncekey.core.commands import Claim
from oncekey.core.keys import scope_of
from oncekey.core.record import Guarantee, State
from oncekey.stores.open import open_store
from tests.effects.transaction.shop import Shop
from tests.stores.postgres.items import INSERT, until_blocked

PLACE = "POST /orders"
FOREIGN_PRINT = "'\\x10" + "00" * 16 + "'"
LEVELS = list(psycopg.IsolationLevel)  # from the laxest


def ordering(shop: Shop, given: Any, key: str, during: Callable[[], object] = lambda: None, **more: Any) -> Any:
    """Order once."""
    with shop.once.transaction(given, key=key, operation=PLACE, **more) as tx:
        if not tx.replayed:
            tx.connection.execute("INSERT INTO orders (number) VALUES (%s)", (key,))
            during()
            tx.complete({"key": key})
    return tx.value


def pool_of(shop: Shop, size: int, **settings: Any) -> psycopg_pool.ConnectionPool:
    """A pool of so many connections."""
    return psycopg_pool.ConnectionPool(shop.url, min_size=size, max_size=size, timeout=10, open=True, **settings)


def insist(order: Callable[[], Any]) -> Any:
    """Come again for as long as somebody else is at it."""
    while True:
        try:
            return order()
        except NotGranted as refused:
            if refused.reason != "in-progress":
                raise
            time.sleep(0.005)


def test_duplicates_do_not_take_the_pool_from_the_owner(shop: Shop) -> None:
    """A hundred of them on a pool of four are told at once, and another key is served meanwhile."""
    key, began, ended = shop.key(), threading.Event(), threading.Event()

    def slowly() -> None:
        began.set()
        assert ended.wait(20)

    def duplicate(_: int) -> str:
        with pytest.raises(NotGranted) as refused:
            ordering(shop, pool, key)
        assert refused.value.after == 1
        return refused.value.reason

    with pool_of(shop, 4) as pool, ThreadPoolExecutor(20) as threads:
        owner = threads.submit(ordering, shop, pool, key, slowly)
        assert began.wait(10)
        assert set(threads.map(duplicate, range(100))) == {"in-progress"}
        assert ordering(shop, pool, "another")
        ended.set()
        assert owner.result() == {"key": key}
        assert list(threads.map(lambda _: ordering(shop, pool, key), range(20))) == [{"key": key}] * 20
    assert shop.orders() == sorted(["another", key])


@pytest.mark.parametrize("level", LEVELS, ids=lambda level: level.name)
def test_every_isolation_level(shop: Shop, level: psycopg.IsolationLevel) -> None:
    """All who come at the same moment are given the one answer; what a snapshot hides runs nothing."""
    keys = [shop.key() for _ in range(6)]

    def configure(connection: psycopg.Connection[Any]) -> None:
        connection.isolation_level = level

    with pool_of(shop, 6, configure=configure) as pool, ThreadPoolExecutor(6) as threads:
        for key in keys:
            answers = threads.map(lambda _, key=key: insist(lambda: ordering(shop, pool, key)), range(12))
            assert list(answers) == [{"key": key}] * 12
    assert shop.orders() == sorted(keys)


@pytest.mark.parametrize("level", LEVELS[2:], ids=lambda level: level.name)
def test_a_winner_behind_our_snapshot_is_met(shop: Shop, level: psycopg.IsolationLevel) -> None:
    """In a transaction of the caller's that began before, the database itself says that it cannot be decided."""
    key = shop.key()
    with psycopg.connect(shop.url) as late, psycopg.connect(shop.url) as first:
        late.isolation_level = level
        late.execute("SELECT 1")
        assert ordering(shop, first, key) == {"key": key}
        with pytest.raises(psycopg.errors.SerializationFailure):
            ordering(shop, late, key)
        late.rollback()
        assert ordering(shop, late, key) == {"key": key}
        late.rollback()


@pytest.mark.parametrize("level", LEVELS[1:], ids=lambda level: level.name)
def test_a_claim_in_the_store_that_comes_between_is_met(shop: Shop, level: psycopg.IsolationLevel) -> None:
    """Nothing of the caller's has run yet, so what the database refuses is asked again, and seen."""
    key = shop.key()
    hasher, _ = scope_of("shared", PLACE)
    with psycopg.connect(shop.url) as store, psycopg.connect(shop.url) as ours, ThreadPoolExecutor(1) as thread:
        ours.isolation_level = level
        store.execute(INSERT.replace("'f'", FOREIGN_PRINT), (hasher.record_id(key),))
        found = thread.submit(ordering, shop, ours, key)
        with shop.look() as watcher:
            until_blocked(watcher)
        store.commit()
        with pytest.raises(NotGranted, match="another request"):
            found.result()


def test_a_held_duplicate_is_given_the_answer(shop: Shop) -> None:
    """With `wait_for` it comes back by itself, and holds no connection meanwhile."""
    key, began = shop.key(), threading.Event()
    patient = Shop(shop.url, wait_for=20.0)
    with pool_of(shop, 2) as pool, ThreadPoolExecutor(8) as at:

        def slowly() -> None:
            began.set()
            while pool.get_stats().get("requests_num", 0) < 12:  # until duplicates have come again
                time.sleep(0.01)

        owner = at.submit(ordering, shop, pool, key, slowly)
        assert began.wait(10)
        assert list(at.map(lambda _: ordering(patient, pool, key), range(6))) == [{"key": key}] * 6
        assert owner.result() == {"key": key}


@pytest.mark.parametrize(("guarantee", "attempt"), [(Guarantee.TRANSACTIONAL, 2), (Guarantee.AT_MOST_ONCE, None)])
def test_a_lapsed_lease_is_taken_over_where_that_is_safe(shop: Shop, guarantee: Guarantee, attempt: int | None) -> None:
    """A claim that stands in the store alone, of an owner who is gone."""
    key = shop.key()
    hasher, _ = scope_of("shared", PLACE)
    with psycopg.connect(shop.url) as connection:
        with shop.once.transaction(connection, key=shop.key(), operation=PLACE):
            pass
        example = shop.once.engine.store.scan([State.COMPLETED]).records[0]
        gone = Claim(hasher.record_id(key), b"t" * 16, example.fingerprint, 1, guarantee=guarantee)
        store = open_store(shop.url)
        store.claim([gone])
        store.close()
        time.sleep(0.01)
        if attempt is None:
            with pytest.raises(NotGranted, match="without a known outcome"):
                ordering(shop, connection, key)
        else:
            with shop.once.transaction(connection, key=key, operation=PLACE) as tx:
                assert (tx.replayed, tx.attempt) == (False, attempt)
            assert store.claim([gone._replace(token=b"u" * 16)])[0].record.state is State.COMPLETED  # type: ignore[union-attr]
            store.close()
    shop.once.close()


def test_a_zombie_is_rolled_back(shop: Shop) -> None:
    """Whose connection the server has ended comes back too late, and has done nothing."""
    key = shop.key()
    with psycopg.connect(shop.url) as zombie, psycopg.connect(shop.url) as other:

        def ended() -> None:
            number = zombie.info.backend_pid
            with shop.look() as server:
                server.execute("SELECT pg_terminate_backend(%s, 5000)", (number,))
            assert ordering(shop, other, key) == {"key": key}

        with pytest.raises(psycopg.OperationalError):
            ordering(shop, zombie, key, ended)
    assert shop.orders() == [key]


REPEATABLE = psycopg.IsolationLevel.REPEATABLE_READ
FOREIGN = pytest.mark.parametrize("database_only", [False, True], ids=["foreign-effects", "database-only"])


def interfere(shop: Shop, runs: list[int]) -> None:
    """Count a run, and write, the first time, what its transaction is about to write."""
    runs.append(1)
    if len(runs) == 1:
        with shop.look() as other:
            other.execute("UPDATE orders SET number = 'one'")


@FOREIGN
def test_only_what_touches_nothing_else_is_run_again(shop: Shop, *, database_only: bool) -> None:
    """A serialization failure is met by running the whole block again, if, and only if, that was declared harmless."""
    runs: list[int] = []
    with shop.look() as other:
        other.execute("INSERT INTO orders (number) VALUES ('zero')")

    def opened() -> Any:
        connection = psycopg.connect(shop.url)
        connection.isolation_level = REPEATABLE
        return connection

    @shop.once.transaction(opened, key=shop.key(), operation="race", database_only=database_only)
    def race(connection: psycopg.Connection[Any]) -> int:
        interfere(shop, runs)
        connection.execute("UPDATE orders SET number = 'two'")
        return len(runs)

    if database_only:
        assert [race(), race()] == [2, 2]
    else:
        with pytest.raises(psycopg.errors.SerializationFailure):
            race()
    assert (shop.orders(), len(runs)) == ((["two"], 2) if database_only else (["one"], 1))


@FOREIGN
async def test_the_same_is_true_when_it_is_awaited(shop: Shop, *, database_only: bool) -> None:
    """And tries are counted: the last failure comes out."""
    runs: list[int] = []
    with shop.look() as other:
        other.execute("INSERT INTO orders (number) VALUES ('zero')")

    @asynccontextmanager
    async def opened() -> AsyncIterator[Any]:
        async with await psycopg.AsyncConnection.connect(shop.url) as connection:
            await connection.set_isolation_level(REPEATABLE)
            yield connection

    @shop.once.transaction(opened, key=shop.key(), operation="race", database_only=database_only, tries=3)
    async def race(connection: psycopg.AsyncConnection[Any]) -> int:
        runs.clear()
        interfere(shop, runs)
        tries.append(1)
        await connection.execute("UPDATE orders SET number = 'two'")
        return len(runs)

    tries: list[int] = []
    with pytest.raises(psycopg.errors.SerializationFailure):
        await race()
    assert (shop.orders(), len(tries)) == (["one"], 3 if database_only else 1)
