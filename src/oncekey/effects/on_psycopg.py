"""psycopg's connections, sync and async, and the connections of its pools."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import psycopg
from psycopg import pq
from psycopg.adapt import AdaptersMap, Dumper
from psycopg.rows import tuple_row

from oncekey.effects.link import Answer, Database, Flow
from oncekey.errors import ConfigurationError


class Packed(bytes):
    """A parameter in the server's own binary form; the statement's cast says what it is."""

    __slots__ = ()


class _PackedDumper(Dumper):
    format = pq.Format.BINARY

    def dump(self, obj: Packed) -> bytes:
        return obj


# Not those of the connection: an application may read bytes or numbers in its own way.
ADAPTERS = AdaptersMap(psycopg.adapters)
ADAPTERS.register_dumper(Packed, _PackedDumper)


class _Cursor(psycopg.RawCursor[Any]):
    @property
    def adapters(self) -> AdaptersMap:
        return ADAPTERS


class _AsyncCursor(psycopg.AsyncRawCursor[Any]):
    @property
    def adapters(self) -> AdaptersMap:
        return ADAPTERS


class PsycopgLink:
    """A connection of psycopg."""

    database: Database = "postgresql"

    def __init__(self, connection: psycopg.Connection[Any] | psycopg.AsyncConnection[Any]) -> None:
        self.connection = connection
        self.awaited = isinstance(connection, psycopg.AsyncConnection)
        self.joined = False
        self._block: Any = None

    @property
    def open(self) -> bool:
        """Whether a transaction has begun."""
        return self.connection.info.transaction_status != pq.TransactionStatus.IDLE

    def execute(self, sql: str, values: Sequence[Any] = ()) -> Flow[Answer]:
        """Run one statement; psycopg prepares it after a few uses, if the connection may."""
        make: Any = _AsyncCursor if self.awaited else _Cursor
        cursor = make(self.connection, row_factory=tuple_row)
        yield cursor.execute(sql, values, binary=True)
        # What `description` says of every column is not needed, and takes longer than the rest of this.
        rows = (yield cursor.fetchall()) if cursor.pgresult is not None and cursor.pgresult.nfields else []
        return Answer(rows, cursor.rowcount)

    def commits_each(self) -> Flow[bool]:
        """In autocommit, outside of a block or a BEGIN."""
        yield from ()
        idle = self.connection.info.transaction_status == pq.TransactionStatus.IDLE
        return bool(self.connection.autocommit) and idle

    def begin(self) -> Flow[None]:
        """The block of psycopg itself: a transaction, or a savepoint."""
        self.joined = self.open
        self._block = block = self.connection.transaction()
        yield block.__aenter__() if self.awaited else block.__enter__()  # type: ignore[union-attr]

    def take(self) -> Flow[None]:
        """The connection's own transaction, where one is open, without a block."""
        if not self.open:
            yield from self.begin()
            return
        # Inside of a block psycopg lets nobody commit, and it would commit what we had rather undone.
        if getattr(self.connection, "_num_transactions", 0):
            raise ConfigurationError(
                "this connection is inside of a `with connection.transaction()`, which ends it when it likes: leave "
                "that block out where OnceKey guards the request, or claim in the handler by once.transaction(...)"
            )
        self.joined, self._block = False, None

    def commit(self) -> Flow[None]:
        """The block's end."""
        yield self.connection.commit() if self._block is None else self._end(None)

    def rollback(self) -> Flow[None]:
        """The block's end, undone. psycopg logs what goes wrong here, and the server forgets the transaction anyway."""
        yield self.connection.rollback() if self._block is None else self._end(psycopg.Rollback(self._block))

    def _end(self, why: BaseException | None) -> Any:
        leave = self._block.__aexit__ if self.awaited else self._block.__exit__
        return leave(type(why) if why is not None else None, why, None)


def link(connection: object) -> PsycopgLink | None:
    """A Link, if it is one of psycopg's connections."""
    return PsycopgLink(connection) if isinstance(connection, psycopg.Connection | psycopg.AsyncConnection) else None
