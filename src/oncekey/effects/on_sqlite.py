"""sqlite3's connections, and aiosqlite's, which are the same behind a thread of their own."""

from __future__ import annotations

import sqlite3
import sys
from collections.abc import Sequence
from functools import lru_cache
from typing import Any

from oncekey.effects.link import PLACE, Answer, Database, Flow

SAVEPOINT = "oncekey_joined"


class SqliteLink:
    """A connection of sqlite3 or aiosqlite."""

    database: Database = "sqlite"

    def __init__(self, connection: Any, *, awaited: bool) -> None:
        self.connection = connection
        self.awaited = awaited
        self.joined = False
        self._taken = False
        self._cursor: Any = None

    @property
    def open(self) -> bool:
        """Whether a transaction has begun."""
        return bool(self.connection.in_transaction)

    def execute(self, sql: str, values: Sequence[Any] = ()) -> Flow[Answer]:
        """Run one statement. SQLite's own row factory is left aside: rows are tuples."""
        cursor = yield self.connection.cursor()
        cursor.row_factory = None
        yield cursor.execute(_numbered(sql), tuple(values))
        rows = [tuple(row) for row in (yield cursor.fetchall())] if cursor.description else []
        count = cursor.rowcount
        yield cursor.close()
        return Answer(rows, count)

    def ask(self, sql: str, values: Sequence[Any] = (), then: str = "") -> Flow[Answer]:
        """The same for one of ours, which is spelt as SQLite spells it. All of them go through one cursor."""
        cursor, awaited = self._cursor, self.awaited
        if cursor is None:
            cursor = (yield self.connection.cursor()) if awaited else self.connection.cursor()
            cursor.row_factory, self._cursor = None, cursor
        if then:
            raise TypeError(then)  # there is no way to spare
        done = cursor.execute(sql, values)
        if awaited:
            yield done
        if cursor.description is None:
            return Answer([], cursor.rowcount)
        return Answer((yield cursor.fetchall()) if awaited else cursor.fetchall(), cursor.rowcount)

    def commits_each(self) -> Flow[bool]:
        """In autocommit, as Python 3.12 spells it or as older ones do, outside of a BEGIN."""
        connection = self.connection
        if self.awaited:
            # aiosqlite keeps the spelling of 3.12 to itself, and there only its own thread may read it.
            said = yield connection._execute(getattr, connection._conn, "autocommit", -1)  # noqa: SLF001
        else:
            said = getattr(connection, "autocommit", -1)
        return (said is True or connection.isolation_level is None) and not connection.in_transaction

    def begin(self, *, asking: bool = False) -> Flow[None]:
        """Take the write lock at once, for a read that turns into a write is refused without waiting."""
        del asking
        self.joined, self._taken = self.open, False
        yield from self.ask(f"SAVEPOINT {SAVEPOINT}" if self.joined else "BEGIN IMMEDIATE")

    def take(self) -> Flow[None]:
        """The transaction that is open. The connection ends it in its own way: not all may be told by a statement."""
        if not self.open:
            yield from self.begin()
            return
        self.joined, self._taken = False, True

    @property
    def closes(self) -> bool:
        """Never: there is no way to spare."""
        return False

    def close(self, sql: str, values: Sequence[Any] = ()) -> Flow[Exception | None]:
        """See `closes`."""
        raise TypeError(sql, values)

    def commit(self) -> Flow[None]:
        """Keep it."""
        if self._taken:
            yield self.connection.commit()
            return
        yield from self.ask(f"RELEASE {SAVEPOINT}" if self.joined else "COMMIT")

    def commit_asked(self) -> Flow[None]:
        """The same: it holds nothing back."""
        return self.commit()

    def rollback(self) -> Flow[None]:
        """Undo it, if there is still something open."""
        if not self.connection.in_transaction:
            return
        if self._taken:
            yield self.connection.rollback()
        elif self.joined:
            yield from self.execute(f"ROLLBACK TO {SAVEPOINT}")
            yield from self.execute(f"RELEASE {SAVEPOINT}")
        else:
            yield from self.execute("ROLLBACK")


@lru_cache(maxsize=256)
def _numbered(sql: str) -> str:
    """$1 as SQLite spells it."""
    return PLACE.sub(r"?\1", sql)


def link(connection: object) -> SqliteLink | None:
    """A Link, if it is one of these connections."""
    if isinstance(connection, sqlite3.Connection):
        return SqliteLink(connection, awaited=False)
    aiosqlite = sys.modules.get("aiosqlite")
    if aiosqlite is not None and isinstance(connection, aiosqlite.Connection):
        return SqliteLink(connection, awaited=True)
    return None
