"""Rows under ids that clients have made: created once, found again, never overwritten."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import Any

import psycopg
import pytest

from oncekey import ConfigurationError
from oncekey.effects.connections import recognised
from oncekey.effects.link import drive, drive_async
from oncekey.effects.put import put, put_async
from tests.effects.kinds import ASYNC, SYNC, Kind, named

TABLE = "CREATE TABLE notes (id text PRIMARY KEY, title text, pages int, body {})"


def table(link: Any) -> str:
    return TABLE.format("bytea" if link.database == "postgresql" else "blob")


ROW: dict[str, Any] = {"title": "tea", "pages": 3, "body": b"\0"}


@pytest.mark.parametrize("kind", SYNC, ids=named)
def test_created_found_and_never_overwritten(kind: Kind, url: str) -> None:
    """201, then 200 with the row that stands, and 409 for anything else under the same id."""
    with kind.opened(url) as connection:
        drive(recognised(connection).execute(table(recognised(connection))))
        first, again = (put(connection, "notes", {"id": "a"}, ROW) for _ in range(2))
        assert (first.status, first.created, first.row) == (201, True, {"id": "a"} | ROW)
        assert (again.status, again.created, again.row) == (200, False, first.row)
        other = put(connection, "notes", {"id": "a"}, ROW | {"title": "coffee"})
        assert (other.status, other.row["title"]) == (409, "tea")
        assert put(connection, "notes", {"id": "b"}, ROW | {"title": None}).status == 201
        assert put(connection, "notes", {"id": "b"}, ROW | {"title": None}).status == 200


@pytest.mark.parametrize("kind", ASYNC, ids=named)
async def test_the_same_when_it_is_awaited(kind: Kind, url: str) -> None:
    """On every connection for asyncio."""
    async with kind.opened(url) as connection:
        await drive_async(recognised(connection).execute(table(recognised(connection))))
        done = [await put_async(connection, "notes", {"id": "a"}, ROW | {"pages": n}) for n in (3, 3, 4)]
        assert [one.status for one in done] == [201, 200, 409]
        with pytest.raises(ConfigurationError, match="await put_async"):
            put(connection, "notes", {"id": "a"}, ROW)


def test_of_many_at_once_one_creates(postgres_url: str) -> None:
    """Whoever comes while it is being made waits for that, and finds it."""
    with psycopg.connect(postgres_url, autocommit=True) as connection:
        connection.execute("CREATE TABLE notes (id text PRIMARY KEY, title text)")

    def one(_: int) -> int:
        with psycopg.connect(postgres_url, autocommit=True) as own:
            return put(own, "notes", {"id": "a"}, {"title": "tea"}).status

    with ThreadPoolExecutor(8) as threads:
        assert sorted(threads.map(one, range(16))) == [200] * 15 + [201]


@pytest.mark.parametrize(
    ("table", "key", "values"),
    [
        ("notes; DROP TABLE notes", {"id": 1}, {"title": ""}),
        ("notes", {"id)": 1}, {"title": ""}),
        ("notes", {}, {"title": ""}),
        ("notes", {"id": 1}, {}),
        ("notes", {"id": 1}, {"id": 2}),
    ],
)
def test_names_are_plain_and_keys_are_given(table: str, key: dict[str, Any], values: dict[str, Any]) -> None:
    """Nothing that is not a name gets into a statement."""
    import sqlite3

    connection = sqlite3.connect(":memory:")
    with pytest.raises(ConfigurationError):
        put(connection, table, key, values)
    connection.close()


async def test_the_wrong_colour_is_refused() -> None:
    """The message says how to write it."""
    import sqlite3

    connection = sqlite3.connect(":memory:")
    with pytest.raises(ConfigurationError, match=r"call put\("):
        await put_async(connection, "notes", {"id": 1}, {"title": ""})
    connection.close()
