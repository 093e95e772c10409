"""Several statements in one round trip on a caller's psycopg connection, the way its own cursors would send them.

libpq's pipeline mode, spoken for one exchange: the statements leave in one write, their answers come back in one read,
and the first that fails stops the rest. psycopg's own pipeline is made for many statements, and takes more time for two
than their round trips do. What is prepared is counted and named in the connection's own books, so that a rollback or
DISCARD ALL forgets ours together with the caller's, and a connection that may not prepare does not.
"""

from __future__ import annotations

import functools
import struct
from collections.abc import Callable, Generator, Sequence
from typing import Any, Final, NamedTuple, cast

import psycopg
from psycopg import capabilities, pq
from psycopg.errors import error_from_result
from psycopg.waiting import Ready, Wait

try:
    from psycopg._preparing import Prepare, PrepareManager
except ImportError:  # a psycopg to come: its own cursors then send what we would
    BOOKS = False
else:
    WORDS = ("get", "maybe_add_to_cache", "validate", "maintain_gen")
    BOOKS = capabilities.has_pipeline() and all(hasattr(PrepareManager, word) for word in WORDS)

Connection = psycopg.Connection[Any] | psycopg.AsyncConnection[Any]
Results = list[pq.abc.PGresult]
BINARY: Final = pq.Format.BINARY
OK, OFF, ACTIVE = pq.ConnStatus.OK, pq.PipelineStatus.OFF, pq.TransactionStatus.ACTIVE
UNRUN: Final = frozenset({pq.ExecStatus.FATAL_ERROR, pq.ExecStatus.PIPELINE_ABORTED})
SYNC, FAILED, COMMAND_OK = pq.ExecStatus.PIPELINE_SYNC, pq.ExecStatus.FATAL_ERROR, pq.ExecStatus.COMMAND_OK
# The kinds of value that our statements have, as the server names them. A NULL is of any kind: the cast says which.
# Their texts are plain ASCII: the number of a transaction.
BOOL, BYTEA, INT8, TEXT, ANY = 16, 17, 20, 25, 0
PACKED: Final[dict[type, tuple[int, Callable[[Any], bytes | None]]]] = {
    bytes: (BYTEA, bytes),
    int: (INT8, struct.Struct(">q").pack),
    bool: (BOOL, lambda value: b"\1" if value else b"\0"),
    str: (TEXT, lambda value: value.encode("ascii")),
    type(None): (ANY, lambda value: value),
}
LOADERS: Final[dict[int, Callable[[bytes], Any]]] = {
    BOOL: lambda value: value == b"\1",
    BYTEA: bytes,
    TEXT: bytes.decode,
    **dict.fromkeys((INT8, 21, 23), lambda value: int.from_bytes(value, "big", signed=True)),
}


class Statement(NamedTuple):
    """One that may be prepared, with its values as the server reads them: what psycopg's books know a query by."""

    query: bytes
    types: tuple[int, ...] = ()
    values: tuple[bytes | None, ...] = ()
    plain: bool = False


@functools.cache
def plain(sql: str) -> Statement:
    """One without values, which is not worth preparing."""
    return Statement(sql.encode(), plain=True)


BEGIN_PLAIN: Final = plain("BEGIN")
COMMIT: Final = plain("COMMIT")


def statement(sql: str, values: Sequence[Any]) -> Statement:
    """One of ours: each of its values is cast, so a number is a long one whatever it is."""
    kinds = [PACKED[value.__class__] for value in values]
    packed = tuple([pack(value) for (_, pack), value in zip(kinds, values, strict=True)])
    return Statement(_query(sql), tuple([kind for kind, _ in kinds]), packed)


@functools.cache
def _query(sql: str) -> bytes:
    """The same bytes for the same text: the books look it up each time, and it is hashed once."""
    return sql.encode()


def possible(connection: Connection) -> bool:
    """Whether this connection can do so now: not while the caller has a pipeline of its own."""
    pgconn = connection.pgconn
    return BOOKS and pgconn.status == OK and pgconn.pipeline_status == OFF and pgconn.transaction_status != ACTIVE


def begin(connection: Connection) -> Statement:
    """What the connection begins a transaction with."""
    level, read_only, deferrable = connection.isolation_level, connection.read_only, connection.deferrable
    if level is None and read_only is None and deferrable is None:
        return BEGIN_PLAIN
    words = ["BEGIN"]
    if level is not None:
        words += ["ISOLATION LEVEL", psycopg.IsolationLevel(level).name.replace("_", " ")]
    if read_only is not None:
        words.append("READ ONLY" if read_only else "READ WRITE")
    if deferrable is not None:
        words.append("DEFERRABLE" if deferrable else "NOT DEFERRABLE")
    return plain(" ".join(words))


def exchange(connection: Connection, batch: Sequence[Statement]) -> Any:
    """Send these in one write: one result for each, in order; an awaitable of them where the connection is awaited."""
    steps = _exchange(connection, batch)
    if isinstance(connection, psycopg.AsyncConnection):
        return _awaited(connection, steps)
    with connection.lock:
        return connection.wait(steps)


async def _awaited(connection: psycopg.AsyncConnection[Any], steps: Generator[Any, Any, Results]) -> Results:
    async with connection.lock:
        return await connection.wait(steps)


def _exchange(connection: Connection, batch: Sequence[Statement]) -> Generator[Any, Any, Results]:
    pgconn, books = connection.pgconn, connection._prepared  # noqa: SLF001 - names of our own would outlive a DEALLOCATE
    pgconn.enter_pipeline_mode()
    sent = [_send(pgconn, books, each) for each in batch]
    pgconn.pipeline_sync()
    results = yield from _results(pgconn)
    pgconn.exit_pipeline_mode()
    answers, left = [], iter(results)
    for each, (prep, name) in zip(batch, sent, strict=True):
        answer = next(left)
        if prep is Prepare.SHOULD:
            parsed, answer = answer, next(left)
            # What could not be parsed was not run, and the reason stands with the parsing.
            answer = answer if parsed.status == COMMAND_OK else parsed
        answers.append(answer)
        if not each.plain and answer.status not in UNRUN:
            key = books.maybe_add_to_cache(cast("Any", each), prep, name)
            if key is not None:
                books.validate(key, prep, name, [answer])
    yield from books.maintain_gen(connection)
    return answers


def _send(pgconn: pq.abc.PGconn, books: PrepareManager, each: Statement) -> tuple[Prepare, bytes]:
    query, types, values, plain = each
    prep, name = (Prepare.NO, b"") if plain else books.get(cast("Any", each))
    if prep is Prepare.NO:
        pgconn.send_query_params(query, values or None, types or None, [BINARY] * len(values) or None, BINARY)
        return prep, name
    if prep is Prepare.SHOULD:
        pgconn.send_prepare(name, query, types)
    pgconn.send_query_prepared(name, values, [BINARY] * len(values), BINARY)
    return prep, name


def _results(pgconn: pq.abc.PGconn) -> Generator[Any, Any, Results]:
    results: Results = []
    while True:
        # Reading while writing: with large bodies both ends' buffers could be full.
        ready = yield Wait.RW if pgconn.flush() else Wait.R
        if ready and ready & Ready.R:
            pgconn.consume_input()
        while not pgconn.is_busy():
            result = pgconn.get_result()
            if result is None:
                continue
            if result.status == SYNC:
                return results
            results.append(result)


def raised(connection: Connection, results: Results) -> Exception | None:
    """Why the first of them failed that did, as psycopg says it."""
    for result in results:
        if result.status == FAILED:
            return error_from_result(result, encoding=connection.info.encoding)
    return None


def rows(result: pq.abc.PGresult) -> list[tuple[Any, ...]]:
    """What a statement gave. Nearly always all but two or three of its columns are NULL."""
    columns, value_at, type_of = range(result.nfields), result.get_value, result.ftype
    return [
        tuple(
            [
                value if (value := value_at(row, column)) is None else LOADERS[type_of(column)](value)
                for column in columns
            ]
        )
        for row in range(result.ntuples)
    ]
