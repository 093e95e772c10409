"""Every kind of connection that people have, under threads and asyncio: once, and nothing after a failure."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import aiosqlite
import psycopg_pool
import pytest
import sqlalchemy as sa
from sqlalchemy.orm import sessionmaker

from oncekey.effects.connections import execute, execute_async
from oncekey.effects.inbox import AsyncInbox, Handled, Inbox, Later, Message, Patience
from oncekey.errors import ConfigurationError, SchemaMissing
from tests.effects.inbox.places import sqlite_place
from tests.effects.kinds import ASYNC, SYNC, Kind, named

TABLE = "CREATE TABLE shipment (number TEXT NOT NULL)"
INSERT = "INSERT INTO shipment (number) VALUES ('1')"
COUNT = "SELECT count(*) FROM shipment"
MESSAGE = Message("orders", b"{}", "m-1")


def handled_once(inbox: Inbox, write: Callable[[Any], object]) -> None:
    """Fail, succeed, come again."""
    inbox.migrate()
    inbox.check()
    fail = [True, False]

    @inbox.once("orders")
    def ship(message: Message, connection: Any) -> None:
        write(connection)
        if fail.pop(0):
            raise ValueError("no")

    assert isinstance(ship.deliver(MESSAGE), Later)
    assert [ship.deliver(MESSAGE), ship.deliver(MESSAGE)] == [Handled("done"), Handled("duplicate")]
    assert inbox.purge() == (0, False)


@pytest.mark.parametrize("kind", SYNC, ids=named)
def test_under_threads(kind: Kind, url: str) -> None:
    """psycopg, sqlite3, SQLAlchemy's sessions and connections, and Django's."""
    inbox = Inbox(lambda: kind.opened(url), redelivery_for=60)
    inbox.migrate()
    inbox.once("set-up")(lambda message, connection: execute(connection, TABLE))(MESSAGE)
    handled_once(inbox, lambda connection: execute(connection, INSERT))
    with kind.opened(url) as connection:
        assert execute(connection, COUNT).rows == [(1,)]


@pytest.mark.parametrize("kind", ASYNC, ids=named)
async def test_under_asyncio(kind: Kind, url: str) -> None:
    """The same, and what operators do, under asyncio."""
    inbox = AsyncInbox(lambda: kind.opened(url), redelivery_for=60, patience=Patience(attempts=1))
    with pytest.raises(SchemaMissing):
        await inbox.check()
    await inbox.migrate()
    await inbox.check()
    fail = [True, False]

    @inbox.once("orders")
    async def ship(message: Message, connection: Any) -> None:
        await execute_async(connection, INSERT)
        if fail.pop(0):
            raise ValueError("no")

    @inbox.once("set-up")
    async def set_up(message: Message, connection: Any) -> None:
        await execute_async(connection, TABLE)

    await set_up(MESSAGE)
    assert await ship(MESSAGE) is None  # parked: there is only one attempt
    (found,) = (await inbox.parked()).parked
    assert await inbox.requeue(found.id)
    assert await ship.run_requeued() == Handled("done")
    assert await ship.run_requeued() is None
    assert await ship.deliver_many([MESSAGE, MESSAGE]) == [Handled("duplicate")] * 2
    assert await inbox.handled("orders", "m-1")
    assert not await inbox.discard(found.id)
    assert (await inbox.count())[:] == (2, 0, 0, 0)
    async with kind.opened(url) as connection:
        assert not await ship.within(connection, MESSAGE)
        assert (await execute_async(connection, COUNT)).rows == [(1,)]


@pytest.mark.parametrize("settings", [{}, {"autocommit": True}], ids=str)
def test_a_pool(postgres_url: str, settings: dict[str, Any]) -> None:
    """`pool.connection`, as people write it; a connection in autocommit is given a transaction."""
    with psycopg_pool.ConnectionPool(postgres_url, kwargs=settings, min_size=1, max_size=2, open=True) as pool:
        with pool.connection() as connection:
            connection.execute(TABLE)
        handled_once(Inbox(pool.connection, redelivery_for=60), lambda connection: connection.execute(INSERT))
        with pool.connection() as connection:
            assert connection.execute(COUNT).fetchall() == [(1,)]


@pytest.mark.parametrize("form", ["engine.begin", "sessionmaker", "sessionmaker.begin"])
def test_context_managers_that_commit(form: str, tmp_path: Path) -> None:
    """SQLAlchemy's `begin` has its own transaction open: ours lies within it, and both end before the verdict."""
    place = sqlite_place(tmp_path / "shop.db")
    engine = sa.create_engine(f"sqlite:///{place.url}")
    maker = sessionmaker(engine)
    forms: dict[str, Any] = {"engine.begin": engine.begin, "sessionmaker": maker, "sessionmaker.begin": maker.begin}
    handled_once(Inbox(forms[form], redelivery_for=60), lambda session: session.execute(sa.text(INSERT)))
    engine.dispose()
    assert place.shipped() == ["1"]


def test_the_other_colour_is_refused(tmp_path: Path) -> None:
    """A connection for asyncio in an inbox for threads is told at the start."""

    @contextmanager
    def connect() -> Any:
        yield aiosqlite.connect(tmp_path / "shop.db")

    with pytest.raises(ConfigurationError, match="use AsyncInbox"):
        Inbox(connect).check()


def test_what_is_no_connection_is_refused() -> None:
    """The message names what is known."""

    @contextmanager
    def connect() -> Any:
        yield "postgresql://localhost"

    with pytest.raises(ConfigurationError, match="psycopg"):
        Inbox(connect).check()
