"""A message is staged in the caller's own transaction, and lives or dies with it."""

from __future__ import annotations

import json
import sqlite3
import uuid
from typing import Any

import psycopg
import pytest

from oncekey.effects.connections import execute, execute_async, recognised
from oncekey.effects.link import drive, drive_async
from oncekey.effects.outbox import Outbox
from oncekey.errors import ConfigurationError
from tests.effects.inbox.places import Place
from tests.effects.kinds import ASYNC, SYNC, Kind, named

COUNT = "SELECT count(*) FROM oncekey_outbox"
OUTBOX = Outbox()


@pytest.mark.parametrize("kind", SYNC, ids=named)
def test_under_threads(kind: Kind, url: str) -> None:
    """psycopg, sqlite3, SQLAlchemy's sessions and connections, and Django's: nothing after a rollback."""
    with kind.opened(url) as connection:
        OUTBOX.migrate(connection)
        link = recognised(connection)
        for keep in (False, True):
            drive(link.begin())
            OUTBOX.stage(connection, "orders", {"number": 1}, key="A-1", headers={"trace": "x"})
            drive(link.commit() if keep else link.rollback())
            assert execute(connection, COUNT).rows == [(int(keep),)]


@pytest.mark.parametrize("kind", ASYNC, ids=named)
async def test_under_asyncio(kind: Kind, url: str) -> None:
    """The same on connections that are awaited."""
    async with kind.opened(url) as connection:
        await OUTBOX.migrate_async(connection)
        link = recognised(connection)
        for keep in (False, True):
            await drive_async(link.begin())
            await OUTBOX.stage_async(connection, "orders", {"number": 1}, key="A-1", headers={"trace": "x"})
            await drive_async(link.commit() if keep else link.rollback())
            assert (await execute_async(connection, COUNT)).rows == [(int(keep),)]


def test_the_table_is_one_that_debezium_reads(place: Place) -> None:
    """id, aggregatetype, aggregateid, type and payload say topic, key, type and body."""
    with place.connect() as connection:
        id_ = OUTBOX.stage(connection, "orders", {"n": 1}, key="A-1", headers={"trace": "x"}, type="OrderPlaced")
        connection.commit()
    query = "SELECT id, aggregatetype, aggregateid, type, payload, headers FROM oncekey_outbox"
    ((found, *row, headers),) = place.rows(query)
    assert (str(found), *row) == (id_, "orders", "A-1", "OrderPlaced", b'{"n":1}')
    assert json.loads(headers) == {"trace": "x", "content-type": "application/json"}
    assert uuid.UUID(id_).version == 7


def test_without_a_transaction_it_is_refused(place: Place) -> None:
    """In autocommit the message would go out whatever becomes of the write beside it."""
    postgres = place.url.startswith("postgresql")
    connection: Any = (
        psycopg.connect(place.url, autocommit=True) if postgres else sqlite3.connect(place.url, isolation_level=None)
    )
    with pytest.raises(ConfigurationError, match="there is no transaction on this connection"):
        OUTBOX.stage(connection, "orders", b"")
    connection.execute("BEGIN")
    OUTBOX.stage(connection, "orders", b"")
    connection.execute("COMMIT")
    connection.close()
    assert place.rows(COUNT) == [(1,)]


@pytest.mark.parametrize("kind", [kind for kind in SYNC if kind.name == "django"], ids=named)
def test_without_djangos_atomic_it_is_refused(kind: Kind, url: str) -> None:
    """Django commits each statement by itself, unless told otherwise."""
    with kind.opened(url) as connection:
        OUTBOX.migrate(connection)
        with pytest.raises(ConfigurationError, match="atomic"):
            OUTBOX.stage(connection, "orders", b"")


async def test_the_other_colour_is_refused() -> None:
    """The message names what to call instead."""
    connection = sqlite3.connect(":memory:")
    with pytest.raises(ConfigurationError, match=r"use stage\(...\)"):
        await OUTBOX.stage_async(connection, "orders", b"")
    connection.close()


@pytest.mark.parametrize(
    ("wrong", "says"),
    [
        ({"topic": ""}, "topic=''"),
        ({"topic": "a\nb"}, "topic="),
        ({"key": ""}, "key="),
        ({"topic": "t" * 256}, "topic="),
        ({"type": "a\rb"}, "type="),
        ({"body": {1, 2}}, "the body cannot be sent"),
        ({"headers": {"a b": "x"}}, "header 'a b'"),
        ({"headers": {"a": "x\r\ny: z"}}, "without line ends"),
        ({"headers": {"a": 1}}, "without line ends"),
        ({"headers": {"Oncekey-Id": "x"}}, "outbox's own"),
    ],
    ids=str,
)
def test_what_no_broker_could_take_is_refused(wrong: dict[str, Any], says: str) -> None:
    """At the call, where it can still be mended, and not hours later by a broker."""
    connection = sqlite3.connect(":memory:")
    with pytest.raises(ConfigurationError, match=says):
        OUTBOX.stage(connection, **{"topic": "orders", "body": b""} | wrong)
    connection.close()


def test_a_table_of_another_name(sqlite: Place) -> None:
    """The name stands in SQL, so it is checked."""
    other = Outbox("shop_messages")
    with sqlite.connect() as connection:
        other.migrate(connection)
        other.stage(connection, "orders", b"")
        connection.commit()
    assert sqlite.rows("SELECT count(*) FROM shop_messages") == [(1,)]
    with pytest.raises(ConfigurationError, match="table="):
        Outbox("x; DROP TABLE y")
