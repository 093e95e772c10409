"""PUT under an id that the client has made: the first one creates, the same again finds it, another one is a conflict.

    done = put(connection, "orders", {"id": order_id}, {"title": order.title})
    return done.row, done.status         # 201, then 200; 409 if it was made of something else

Idempotent by itself, with one statement that no other can get between: INSERT ... ON CONFLICT DO NOTHING on a table of
yours, on any connection that OnceKey knows. Nothing here commits.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Final, Literal, NamedTuple

from oncekey.effects.connections import recognised
from oncekey.effects.link import Flow, Link, drive, drive_async
from oncekey.errors import ConfigurationError, StoreUnavailable

CREATED: Final = 201
FOUND: Final = 200
CONFLICT: Final = 409
# A row that was in the way and is gone at the next look was deleted meanwhile.
ROUNDS: Final = 3
_NAME: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


class Put(NamedTuple):
    """What became of it: the status to answer with, and the row that stands there now."""

    status: Literal[201, 200, 409]
    row: dict[str, Any]

    @property
    def created(self) -> bool:
        """Whether this call has made it."""
        return self.status == CREATED


def put(connection: object, table: str, key: Mapping[str, Any], values: Mapping[str, Any]) -> Put:
    """Create a row, or find it, under threads. `key` is its primary key, or columns with a unique index."""
    link = recognised(connection)
    if link.awaited:
        raise ConfigurationError(f"{type(connection).__name__} is for asyncio: await put_async(...)")
    return drive(_put(link, table, key, values))


async def put_async(connection: object, table: str, key: Mapping[str, Any], values: Mapping[str, Any]) -> Put:
    """The same under asyncio."""
    link = recognised(connection)
    if not link.awaited:
        raise ConfigurationError(f"{type(connection).__name__} is for threads: call put(...)")
    return await drive_async(_put(link, table, key, values))


def _put(link: Link, table: str, key: Mapping[str, Any], values: Mapping[str, Any]) -> Flow[Put]:
    _check(table, key, values)
    wanted = {**key, **values}
    columns, places = ", ".join(wanted), ", ".join(f"${at}" for at in range(1, len(wanted) + 1))
    insert = f"INSERT INTO {table} ({columns}) VALUES ({places}) ON CONFLICT ({', '.join(key)}) DO NOTHING"
    where = " AND ".join(f"{name} = ${at}" for at, name in enumerate(key, 1))
    select = f"SELECT {columns} FROM {table} WHERE {where}"
    for _ in range(ROUNDS):
        made = yield from link.execute(insert, list(wanted.values()))
        if made.changed == 1:
            return Put(CREATED, wanted)
        # A statement of its own: it sees what was committed after the first one had begun.
        rows = (yield from link.execute(select, list(key.values()))).rows
        if rows:
            found = dict(zip(wanted, map(_plain, rows[0]), strict=True))
            return Put(FOUND if found == wanted else CONFLICT, found)
    raise StoreUnavailable(f"a row of {table} came and went while it was made; nothing was done, try again")


def _check(table: str, key: Mapping[str, Any], values: Mapping[str, Any]) -> None:
    for name in (*table.split("."), *key, *values):
        if not _NAME.fullmatch(name):
            raise ConfigurationError(f"{name!r} is no plain name of a table or column: write it without quotes")
    if not key or not values or key.keys() & values.keys():
        raise ConfigurationError(
            "put() needs the columns of the key and, apart from them, the values that a retry must have in common: "
            "write put(connection, 'orders', {'id': id}, {'title': title})"
        )


def _plain(value: Any) -> Any:
    return bytes(value) if isinstance(value, memoryview) else value
