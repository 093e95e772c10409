"""psycopg's connections, sync and async, and the connections of its pools."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, cast

import psycopg
from psycopg import pq
from psycopg.adapt import AdaptersMap, Dumper
from psycopg.rows import tuple_row

from oncekey.effects import pipelined
from oncekey.effects.link import Answer, Database, Flow
from oncekey.errors import ConfigurationError


class Packed(bytes):
    """A parameter in the server's own binary form; the statement's cast says what it is."""

    __slots__ = ()


class _PackedDumper(Dumper):
    format = pq.Format.BINARY

    def dump(self, obj: Packed) -> bytes:
        return obj


IDLE = pq.TransactionStatus.IDLE
# How many blocks of its own psycopg is in; in one of them it lets nobody commit.
BLOCKS = "_num_transactions"

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
        # What is still to be sent, in front of the first statement; and whether our transaction stands in for a block.
        self._beginning: pipelined.Statement | None = None
        self._blocking = False

    @property
    def open(self) -> bool:
        """Whether a transaction has begun."""
        return self.connection.pgconn.transaction_status != IDLE

    def execute(self, sql: str, values: Sequence[Any] = ()) -> Flow[Answer]:
        """Run one statement; psycopg prepares it after a few uses, if the connection may."""
        make: Any = _AsyncCursor if self.awaited else _Cursor
        cursor = make(self.connection, row_factory=tuple_row)
        yield cursor.execute(sql, values, binary=True)
        # What `description` says of every column is not needed, and takes longer than the rest of this.
        rows = (yield cursor.fetchall()) if cursor.pgresult is not None and cursor.pgresult.nfields else []
        return Answer(rows, cursor.rowcount)

    def ask(self, sql: str, values: Sequence[Any] = (), then: str = "") -> Flow[Answer]:
        """The same for one of ours; the BEGIN that it needs travels with it."""
        connection, beginning, self._beginning = self.connection, self._beginning, None
        if not pipelined.possible(connection):
            answer = yield from self.execute(sql, values)
            if then:
                yield from self.execute(then)
            return answer
        if beginning is None and not self.open and not connection.autocommit:
            beginning = pipelined.begin(connection)
        batch = [pipelined.statement(sql, values)]
        if beginning is not None:
            batch.insert(0, beginning)
        if then:
            batch.append(pipelined.plain(then))
        results = yield from self._exchange(batch)
        failed = pipelined.raised(connection, results)
        if failed is not None:
            raise failed
        result = results[beginning is not None]
        return Answer(pipelined.rows(result), result.command_tuples or 0)

    def _exchange(self, batch: list[pipelined.Statement]) -> Flow[pipelined.Results]:
        results: Any = pipelined.exchange(self.connection, batch)
        return cast("pipelined.Results", (yield results) if self.awaited else results)

    def commits_each(self) -> Flow[bool]:
        """In autocommit, outside of a block or a BEGIN."""
        yield from ()
        return bool(self.connection.autocommit) and not self.open

    def begin(self, *, asking: bool = False) -> Flow[None]:
        """The block of psycopg itself, or, for an `ask`, what it takes for one. In an open transaction a savepoint."""
        self.joined = self.open
        connection = self.connection
        if asking and not self.joined and pipelined.possible(connection) and getattr(connection, BLOCKS, None) == 0:
            self._beginning = pipelined.begin(connection)
            self._count(1)
            return
        self._block = block = connection.transaction()
        yield block.__aenter__() if self.awaited else block.__enter__()  # type: ignore[union-attr]

    def _count(self, blocks: int) -> None:
        self._blocking = bool(blocks)
        setattr(self.connection, BLOCKS, blocks)

    def take(self) -> Flow[None]:
        """The connection's own transaction, where one is open, without a block."""
        if not self.open:
            yield from self.begin(asking=True)
            return
        # Inside of a block psycopg lets nobody commit, and it would commit what we had rather undone.
        if getattr(self.connection, BLOCKS, 0):
            raise ConfigurationError(
                "this connection is inside of a `with connection.transaction()`, which ends it when it likes: leave "
                "that block out where OnceKey guards the request, or claim in the handler by once.transaction(...)"
            )
        self.joined, self._block = False, None

    @property
    def closes(self) -> bool:
        """Whether the last statement may bring the commit along: where we end it, and nothing is in between."""
        if self._block is not None or self._beginning is not None or not pipelined.possible(self.connection):
            return False
        return getattr(self.connection, BLOCKS, None) == int(self._blocking)

    def close(self, sql: str, values: Sequence[Any] = ()) -> Flow[Exception | None]:
        """One statement and the commit. What comes back is why the statement failed, and then nothing is committed."""
        results = yield from self._exchange([pipelined.statement(sql, values), pipelined.COMMIT])
        failed = pipelined.raised(self.connection, results[:1])
        if failed is not None:
            return failed
        failed = pipelined.raised(self.connection, results)
        if failed is not None:
            raise failed
        if results[1].command_status != b"COMMIT":
            raise psycopg.OperationalError(f"the server answered the commit by {results[1].command_status!r}")
        if self._blocking:
            self._count(0)
        return None

    def commit(self) -> Flow[None]:
        """The block's end."""
        yield self.connection.commit() if self._unblocked() else self._end(None)

    def commit_asked(self) -> Flow[None]:
        """The same: psycopg holds nothing back."""
        return self.commit()

    def rollback(self) -> Flow[None]:
        """The block's end, undone. psycopg logs what goes wrong here, and the server forgets the transaction anyway."""
        yield self.connection.rollback() if self._unblocked() else self._end(psycopg.Rollback(self._block))

    def _unblocked(self) -> bool:
        """Whether it ends without a block of psycopg's."""
        self._beginning = None
        if self._blocking:
            # A block of the caller's that was left open keeps it from ending, as it would psycopg's own.
            self._count(getattr(self.connection, BLOCKS) - 1)
            self._blocking = False
        return self._block is None

    def _end(self, why: BaseException | None) -> Any:
        leave = self._block.__aexit__ if self.awaited else self._block.__exit__
        return leave(type(why) if why is not None else None, why, None)


def link(connection: object) -> PsycopgLink | None:
    """A Link, if it is one of psycopg's connections."""
    return PsycopgLink(connection) if isinstance(connection, psycopg.Connection | psycopg.AsyncConnection) else None
