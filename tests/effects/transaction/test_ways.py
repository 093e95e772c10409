"""How often PostgreSQL is asked: the claim travels with the BEGIN, the outcome with the COMMIT, and all stays true."""

from __future__ import annotations

import contextlib
import socket
import struct
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from typing import Any

import psycopg
import pytest
from psycopg.conninfo import conninfo_to_dict, make_conninfo
from sqlalchemy import create_engine
from sqlalchemy.orm import Session

from oncekey import TransactionEnded
from oncekey.core.record import State
from oncekey.effects import pipelined
from oncekey.effects.connections import execute, execute_async
from tests.effects.transaction.cutting import Cutting
from tests.effects.transaction.shop import INSERT, Shop
from tests.stores.redis.proxy import Proxy, end

PLACE = "POST /orders"
READY = b"Z\0\0\0\5"
SEATS = "CREATE TABLE seats (number int UNIQUE DEFERRABLE INITIALLY DEFERRED)"


class Counting(Proxy):
    """Counts how often the server says that it is ready for what comes next: that is a way there and back."""

    def __init__(self, url: str) -> None:
        self._place = conninfo_to_dict(url)
        self.ways = 0
        super().__init__(int(str(self._place["port"])))

    @property
    def url(self) -> str:
        return make_conninfo("", **{**self._place, "port": self._listener.getsockname()[1]})

    def _replies(self, client: socket.socket, server: socket.socket) -> None:
        with contextlib.suppress(OSError):
            while data := server.recv(65536):
                self.ways += data.count(READY)
                client.sendall(data)
        end(client)


class Crashing(Cutting):
    """A pooler whose server breaks while it commits: the commit took place, and an error is what the client hears."""

    def __init__(self, url: str, code: bytes) -> None:
        told = b"SFATAL\0VFATAL\0C" + code + b"\0Mserver conn crashed?\0\0"
        self._told = b"E" + struct.pack(">i", len(told) + 4) + told
        super().__init__(url, "reply")

    def _replies(self, client: socket.socket, server: socket.socket) -> None:
        with contextlib.suppress(OSError):
            while data := server.recv(65536):
                if self._to_lose:
                    client.sendall(self._told + (READY + b"E" if self._to_lose > 1 else b""))
                    break
                client.sendall(data)
        end(client)


@pytest.mark.parametrize("code", [b"08P01", b"57P01", b"58000", b"XX000"])
@pytest.mark.parametrize("ready", [1, 2])
def test_an_error_that_is_no_answer_is_looked_into(shop: Shop, code: bytes, ready: int) -> None:
    """What breaks on the way is told in place of the first answer, and says nothing of the commit behind it."""
    with Crashing(shop.url, code) as proxy, psycopg.connect(proxy.url) as connection:
        lose = proxy.lose_replies
        proxy.lose_replies = lambda count=1: lose(ready)  # type: ignore[method-assign] # with more, it goes on as if well
        assert order(shop, connection, "k") == "1"
    assert shop.orders() == ["1"]
    record = shop.record("k")
    assert record is not None
    assert (record.state, record.attempts) == (State.COMPLETED, 1)


@contextmanager
def counted(proxy: Counting, ways: int) -> Iterator[None]:
    before = proxy.ways
    yield
    assert proxy.ways - before == ways


def order(shop: Shop, connection: Any, key: str, number: str = "1") -> Any:
    with shop.once.transaction(connection, key=key, operation=PLACE) as tx:
        if not tx.replayed:
            execute(tx.connection, INSERT, (number,))
            tx.complete(number)
    return tx.value


@asynccontextmanager
async def awaited(url: str) -> AsyncIterator[psycopg.AsyncConnection[Any]]:
    async with await psycopg.AsyncConnection.connect(url) as connection:
        yield connection


@pytest.mark.parametrize("autocommit", [False, True])
def test_no_way_more_than_the_bare_transaction(shop: Shop, autocommit: bool) -> None:
    """BEGIN, one write, COMMIT: three there and back, and so are ours."""
    with Counting(shop.url) as proxy, psycopg.connect(proxy.url, autocommit=autocommit) as connection:
        for _ in range(8):  # psycopg prepares the insert, in a way of its own
            with connection.transaction():
                execute(connection, INSERT, ("bare",))
        for number in range(8):  # ours is prepared on its way
            with counted(proxy, 3), connection.transaction():
                execute(connection, INSERT, ("bare",))
            with counted(proxy, 3):
                order(shop, connection, f"k-{number}")


async def test_no_way_more_when_awaited(shop: Shop) -> None:
    """The same under asyncio."""
    with Counting(shop.url) as proxy:
        async with awaited(proxy.url) as connection:
            connection.prepare_threshold = None
            for number in range(8):
                with counted(proxy, 3):
                    async with shop.once.transaction(connection, key=f"k-{number}", operation=PLACE):
                        await execute_async(connection, INSERT, ("1",))


def test_one_way_more_through_a_session(shop: Shop) -> None:
    """Its commit is its own: only the claim travels along."""
    with Counting(shop.url) as proxy:
        engine = create_engine("postgresql+psycopg://", creator=lambda: psycopg.connect(proxy.url), pool_size=1)
        with Session(engine) as session:
            order(shop, session, "k-1")
            with counted(proxy, 4):
                order(shop, session, "k-2")
        engine.dispose()


@contextmanager
def seats(shop: Shop) -> Iterator[None]:
    """A table whose rule is looked at when the transaction ends."""
    with shop.look() as connection:
        connection.execute("DROP TABLE IF EXISTS seats")
        connection.execute(SEATS)
        connection.execute("INSERT INTO seats VALUES (7)")
    yield


@pytest.mark.parametrize("autocommit", [False, True])
def test_a_rule_that_is_looked_at_by_the_commit(shop: Shop, autocommit: bool) -> None:
    """What it refuses comes out as it is, nothing is kept, and the key is free."""
    with seats(shop), psycopg.connect(shop.url, autocommit=autocommit) as connection:
        taken = pytest.raises(psycopg.errors.UniqueViolation)
        with taken, shop.once.transaction(connection, key="k", operation=PLACE):
            connection.execute("INSERT INTO seats VALUES (7)")
        assert shop.record("k") is None
        assert connection.info.transaction_status == psycopg.pq.TransactionStatus.IDLE
        assert order(shop, connection, "k") == "1"


async def test_a_rule_that_is_looked_at_by_the_commit_when_awaited(shop: Shop) -> None:
    """The same under asyncio."""
    with seats(shop):
        async with awaited(shop.url) as connection:
            with pytest.raises(psycopg.errors.UniqueViolation):
                async with shop.once.transaction(connection, key="k", operation=PLACE):
                    await connection.execute("INSERT INTO seats VALUES (7)")
            assert shop.record("k") is None
            async with shop.once.transaction(connection, key="k", operation=PLACE) as tx:
                assert not tx.replayed


def test_a_collision_that_shows_in_the_commit_is_one(shop: Shop) -> None:
    """Two that have read what the other writes (40001 at the commit): the second one is run again."""
    level, runs = psycopg.IsolationLevel.SERIALIZABLE, []
    with psycopg.connect(shop.url) as ours, psycopg.connect(shop.url) as theirs:
        ours.isolation_level = theirs.isolation_level = level

        @shop.once.transaction(ours, key="k", operation=PLACE, database_only=True)
        def work(connection: Any) -> int:
            runs.append(connection.execute("SELECT count(*) FROM orders").fetchone())
            connection.execute("INSERT INTO orders (number) VALUES ('ours')")
            if len(runs) == 1:
                theirs.execute("SELECT count(*) FROM orders")
                theirs.execute("INSERT INTO orders (number) VALUES ('theirs')")
                theirs.commit()
            return len(runs)

        assert work() == 2
    assert shop.orders() == ["ours", "theirs"]


def test_parts_that_are_undone_forget_what_was_prepared(shop: Shop) -> None:
    """Then psycopg tells the server to forget all of it, and ours is prepared anew."""
    with psycopg.connect(shop.url, prepare_threshold=0) as connection:
        for number in range(3):
            with shop.once.transaction(connection, key=f"k-{number}", operation=PLACE):
                connection.execute("INSERT INTO orders (number) VALUES ('kept')")
                with connection.transaction(force_rollback=True):
                    connection.execute("INSERT INTO orders (number) VALUES ('gone')")
            connection.execute("DEALLOCATE ALL")
            connection.commit()
    assert shop.orders() == ["kept"] * 3


LEVELS = [None, *psycopg.IsolationLevel]


@pytest.mark.parametrize("level", LEVELS, ids=str)
def test_the_transaction_is_as_the_connection_says(shop: Shop, level: psycopg.IsolationLevel | None) -> None:
    """Its isolation level, and what else it begins with."""
    with psycopg.connect(shop.url) as connection:
        connection.isolation_level, connection.deferrable, connection.read_only = level, True, False
        with shop.once.transaction(connection, key="k", operation=PLACE):
            (found,) = connection.execute("SHOW transaction_isolation").fetchone() or ()
            (late,) = connection.execute("SHOW transaction_deferrable").fetchone() or ()
        assert (found, late) == ((level.name if level else "READ_COMMITTED").replace("_", " ").lower(), "on")
        connection.read_only = True
        with pytest.raises(psycopg.errors.ReadOnlySqlTransaction):
            order(shop, connection, "another")


def test_nobody_else_ends_it(shop: Shop) -> None:
    """As in a block of psycopg's own: its commit() is refused, and what was written is undone."""
    with psycopg.connect(shop.url) as connection:
        for end in (connection.commit, connection.rollback):
            refused = pytest.raises(psycopg.ProgrammingError, match="forbidden within a Transaction")
            with refused, shop.once.transaction(connection, key="k", operation=PLACE):
                end()
        assert order(shop, connection, "k") == "1"
        connection.execute("INSERT INTO orders (number) VALUES ('2')")
        connection.commit()
    assert shop.orders() == ["1", "2"]


def test_a_transaction_in_a_failed_state_is_told_from_one_that_was_ended(shop: Shop) -> None:
    """The one has done nothing, the other may have."""
    with psycopg.connect(shop.url) as connection:
        failed = pytest.raises(psycopg.errors.InFailedSqlTransaction)
        with failed, shop.once.transaction(connection, key="k", operation=PLACE), contextlib.suppress(psycopg.Error):
            connection.execute("SELECT nothing")
        assert shop.record("k") is None
        ended = pytest.raises(TransactionEnded)
        with ended, shop.once.transaction(connection, key="k", operation=PLACE):
            connection.execute("COMMIT")
            connection.execute("BEGIN")
            connection.execute("INSERT INTO orders (number) VALUES ('undone')")
    record = shop.record("k")
    assert record is not None
    assert record.state is State.UNKNOWN
    assert shop.orders() == []


def test_a_pipeline_of_the_callers(shop: Shop) -> None:
    """What they send in one of their own has come before the outcome goes."""
    with psycopg.connect(shop.url) as connection:
        with shop.once.transaction(connection, key="k", operation=PLACE), connection.pipeline():
            connection.execute("INSERT INTO orders (number) VALUES ('1')")
            connection.execute("INSERT INTO orders (number) VALUES ('2')")
        assert order(shop, connection, "k") is None
    assert shop.orders() == ["1", "2"]


@pytest.mark.parametrize("books", [True, False])
def test_a_connection_that_may_not_prepare(shop: Shop, books: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """And one that writes in an encoding of its own; and a psycopg whose books we cannot read."""
    monkeypatch.setattr(pipelined, "BOOKS", books)
    with psycopg.connect(shop.url, prepare_threshold=None, client_encoding="latin1") as connection:
        for number in range(8):
            with shop.once.transaction(connection, key=f"k-{number}", operation="bücher", body="ü") as tx:
                tx.complete("größe")
        assert not connection.execute("SELECT name FROM pg_prepared_statements").fetchall()
        with shop.once.transaction(connection, key="k-1", operation="bücher", body="ü") as tx:
            assert tx.value == "größe"


def test_the_books_are_those_of_the_psycopg_that_is_here() -> None:
    """If this fails all still works, in more ways: see what has become of psycopg._preparing."""
    assert pipelined.BOOKS
    assert psycopg.capabilities.has_pipeline()
