"""A statement on the caller's own connection, whatever it is."""

from __future__ import annotations

import sqlite3

import pytest

from oncekey.effects.connections import execute, execute_async, recognised
from oncekey.effects.link import drive, drive_async
from oncekey.errors import ConfigurationError
from tests.effects.kinds import ASYNC, SYNC, Kind, named

TABLE = "CREATE TABLE stuff (id int, word text, data {bytes})"
INSERT = "INSERT INTO stuff (word, id, data) VALUES ($2, $1, $3)"
ROWS = [(1, "a: 50%", b"\0\xff")]
BYTES = {"postgresql": "bytea", "sqlite": "blob"}


@pytest.mark.parametrize("kind", SYNC, ids=named)
def test_a_statement_runs_in_the_callers_transaction(kind: Kind, url: str) -> None:
    """Values are bound by number, rows come back as tuples, and nothing is committed."""
    with kind.opened(url) as connection:
        link = recognised(connection)
        drive(link.begin())
        execute(connection, TABLE.format(bytes=BYTES[kind.database]))
        assert execute(connection, INSERT, (1, "a: 50%", b"\0\xff")).changed == 1
        assert execute(connection, "SELECT id, word, data FROM stuff").rows == ROWS
        drive(link.rollback())
        with pytest.raises(Exception, match="stuff"):
            execute(connection, "SELECT id FROM stuff")


@pytest.mark.parametrize("kind", ASYNC, ids=named)
async def test_the_same_is_true_of_connections_that_are_awaited(kind: Kind, url: str) -> None:
    """Values are bound by number, rows come back as tuples, and nothing is committed."""
    async with kind.opened(url) as connection:
        link = recognised(connection)
        await drive_async(link.begin())
        await execute_async(connection, TABLE.format(bytes=BYTES[kind.database]))
        assert (await execute_async(connection, INSERT, (1, "a: 50%", b"\0\xff"))).changed == 1
        assert (await execute_async(connection, "SELECT id, word, data FROM stuff")).rows == ROWS
        await drive_async(link.rollback())
        with pytest.raises(Exception, match="stuff"):
            await execute_async(connection, "SELECT id FROM stuff")


@pytest.mark.parametrize("kind", SYNC, ids=named)
def test_an_open_transaction_is_joined_by_a_savepoint(kind: Kind, url: str) -> None:
    """What is undone inside leaves what was written before it."""
    with kind.opened(url) as connection:
        outer, inner = recognised(connection), recognised(connection)
        drive(outer.begin())
        execute(connection, TABLE.format(bytes=BYTES[kind.database]))
        for number in (1, 2):
            drive(inner.begin())
            execute(connection, INSERT, (number, "", b""))
            drive(inner.commit() if number == 1 else inner.rollback())
        assert inner.joined
        assert not outer.joined
        assert execute(connection, "SELECT id FROM stuff").rows == [(1,)]
        drive(outer.commit())
        assert execute(connection, "SELECT id FROM stuff").rows == [(1,)]


async def test_what_is_no_connection_is_refused() -> None:
    """The message names the connections that are known, or the colour that is meant."""
    with pytest.raises(ConfigurationError, match="psycopg connection, an SQLAlchemy Session"):
        execute("postgresql://", "SELECT 1")
    with pytest.raises(ConfigurationError, match="call execute"):
        await execute_async(sqlite3.connect(":memory:"), "SELECT 1")
