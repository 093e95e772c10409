"""Which kind of connection the caller has, and a statement on it, in the caller's own transaction.

    execute(connection, "INSERT INTO outbox (id, body) VALUES ($1, $2)", (id_, body))
    await execute_async(session, "INSERT INTO outbox (id, body) VALUES ($1, $2)", (id_, body))

Known are psycopg connections, SQLAlchemy sessions and connections, Django's connections, sqlite3 and aiosqlite. Values
are None, bool, int, float, str and bytes. Nothing here commits. A library is only looked at if the caller has imported
it: an object of a module that nobody has loaded cannot be what we were given.
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable, Sequence
from typing import Any

from oncekey.effects.link import Answer, Link, drive, drive_async
from oncekey.errors import ConfigurationError

# The library that must be loaded -> our file for it, whose `link` returns a Link or None.
KINDS = {
    "psycopg": "oncekey.effects.on_psycopg",
    "sqlalchemy.orm": "oncekey.effects.on_sqlalchemy",
    "sqlalchemy": "oncekey.effects.on_sqlalchemy",
    "django.db": "oncekey.effects.on_django",
    "sqlite3": "oncekey.effects.on_sqlite",
}
KNOWN = "a psycopg connection, an SQLAlchemy Session or Connection, Django's connection, or a sqlite3 connection"


# Of each type that was met, the function that knew it, or how many libraries were there that did not.
_known: dict[type, Callable[[object], Link | None]] = {}
_strangers: dict[type, int] = {}


def found(connection: object) -> Link | None:
    """How to work on this connection, or None if it is none that we know."""
    known = _known.get(type(connection))
    if known is not None:
        return known(connection)
    loaded = [library for library in KINDS if library in sys.modules]
    if _strangers.get(type(connection)) == len(loaded):
        return None
    for library in loaded:
        recognise: Callable[[object], Link | None] = importlib.import_module(KINDS[library]).link
        link = recognise(connection)
        if link is not None:
            _known[type(connection)] = recognise
            return link
    _strangers[type(connection)] = len(loaded)
    return None


def recognised(connection: object) -> Link:
    """How to work on this connection; ConfigurationError says which ones are known."""
    link = found(connection)
    if link is None:
        raise ConfigurationError(f"{type(connection).__name__} is no connection that OnceKey knows: give it {KNOWN}")
    return link


def is_awaited(connection: object) -> bool:
    """Whether this is a connection for asyncio. What is none that we know is not."""
    try:
        link = found(connection)
    except ConfigurationError:
        return False
    return link is not None and link.awaited


def execute(connection: object, sql: str, values: Sequence[Any] = ()) -> Answer:
    """Run one statement on the caller's connection, under threads."""
    link = recognised(connection)
    if link.awaited:
        raise ConfigurationError(f"{type(connection).__name__} is for asyncio: await execute_async(...)")
    return drive(link.execute(sql, values))


async def execute_async(connection: object, sql: str, values: Sequence[Any] = ()) -> Answer:
    """Run one statement on the caller's connection, under asyncio."""
    link = recognised(connection)
    if not link.awaited:
        raise ConfigurationError(f"{type(connection).__name__} is for threads: call execute(...)")
    return await drive_async(link.execute(sql, values))
