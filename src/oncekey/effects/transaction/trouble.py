"""What an error of a driver says, whichever library it has passed through."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from typing import Final

# Serialization failures and deadlocks: the database asks for the whole transaction again.
COLLIDED: Final = frozenset({"40001", "40P01"})
# After these nobody has told us whether a commit was carried out.
UNTOLD: Final = frozenset({"40003"})
UNTOLD_CLASSES: Final = frozenset({"08", "57", "58", "XX"})
TABLE_MISSING: Final = frozenset({"42P01", "42703", "3F000"})
SQLITE_BUSY: Final = frozenset({sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED})
# What drivers raise about their connection, by the names that the DB-API gives.
AWAY: Final = frozenset({"OperationalError", "InterfaceError"})
PRIMARY: Final = 0xFF


def causes(error: BaseException) -> Iterator[BaseException]:
    """The error and what it was made of: SQLAlchemy and Django wrap those of the driver."""
    for cause in (error, getattr(error, "orig", None), error.__cause__):
        if cause is not None:
            yield cause


def sqlstate(error: BaseException) -> str | None:
    """PostgreSQL's code, if the server has answered with one."""
    for cause in causes(error):
        code = getattr(cause, "sqlstate", None) or getattr(cause, "pgcode", None)
        if code is not None:
            return str(code)
    return None


def sqlite_code(error: BaseException) -> int | None:
    """SQLite's primary code."""
    for cause in causes(error):
        code = getattr(cause, "sqlite_errorcode", None)
        if code is not None:
            return int(code) & PRIMARY
    return None


def collided(error: BaseException) -> bool:
    """Whether the database rolled back because of others, and the same may well succeed the next time."""
    return sqlstate(error) in COLLIDED


def passing(error: BaseException) -> bool:
    """Whether a commit failed for a reason that passes by itself: a collision, or a connection that broke."""
    if collided(error):
        return True
    return not told(error) and any(type(cause).__name__ in AWAY for cause in causes(error))


def busy(error: BaseException) -> bool:
    """Whether another connection kept SQLite's file to itself for as long as the caller's connection waits."""
    return sqlite_code(error) in SQLITE_BUSY


def told(error: BaseException) -> bool:
    """Whether the database has told us that a commit failed; without that nobody knows."""
    state, code = sqlstate(error), sqlite_code(error)
    if state is not None:
        return state not in UNTOLD and state[:2] not in UNTOLD_CLASSES
    return code is not None and code != sqlite3.SQLITE_IOERR


def missing(error: BaseException, table: str) -> bool:
    """Whether the table of records is not there."""
    if sqlstate(error) in TABLE_MISSING:
        return True
    return table in str(error) and "no such table" in str(error)
