"""One connection, and how statements travel on it. Both colours share it: `exchange` only says what to wait for.

A lane speaks libpq's pipeline mode through psycopg.pq: all statements of a step leave in one write, their answers come
back in one read, and they are one transaction. psycopg's cursors would take four times the client's time for that.
"""

from __future__ import annotations

import os
import weakref
from collections import deque
from collections.abc import Generator, Mapping, Sequence
from time import monotonic
from types import MappingProxyType
from typing import Any

import psycopg
from psycopg import pq
from psycopg.adapt import Transformer
from psycopg.errors import Diagnostic, error_from_result
from psycopg.waiting import Ready, Wait

from oncekey.errors import StoreUnavailable
from oncekey.stores.postgres.binary import integer, texts
from oncekey.stores.postgres.options import Options
from oncekey.stores.postgres.statements import Ask, Statement

Connection = psycopg.Connection[Any] | psycopg.AsyncConnection[Any]
Rows = list[tuple[Any, ...]]
# What to wait for is yielded, what is ready is sent back; sent nothing, the deadline is looked at.
Exchange = Generator[Wait, Ready | int, list[Rows]]
BINARY = pq.Format.BINARY
# The server gives up before we do, so that its answer is definite; one lock leaves time for a second try.
STATEMENT_SHARE, LOCK_SHARE = 0.8, 0.25
# Connections of a parent process: closing them here would end the parent's sessions.
_inherited: list[Lane] = []


class OutOfTime(psycopg.OperationalError):
    """The time budget of the call is used up."""


def settings(store_for: float) -> dict[str, str]:
    """What each lane sets, whatever the server's or the database's default.

    Plans are held to index lookups: a plan that was made while the table was small must not read all of it later.
    """
    return {
        "default_transaction_isolation": "read committed",
        "synchronous_commit": "on",
        "statement_timeout": str(max(1, round(store_for * STATEMENT_SHARE * 1000))),
        "lock_timeout": str(max(1, round(store_for * LOCK_SHARE * 1000))),
        "enable_seqscan": "off",
        "enable_hashjoin": "off",
        "enable_mergejoin": "off",
        "jit": "off",
    }


class Lane:
    """A connection in pipeline mode, used by one caller at a time."""

    def __init__(self, connection: Connection, options: Options, known: dict[str, Statement]) -> None:
        self.connection = connection
        self.pgconn = connection.pgconn
        self.pid = os.getpid()
        self.pooled = self.read_only = False
        self._options = options
        self._known = known
        self._prepared: set[bytes] = set()
        self._clean = True
        self._local_only = False
        self._transformer = Transformer(connection)
        connection.add_notice_handler(self._noticed)
        self.pgconn.enter_pipeline_mode()

    @property
    def fileno(self) -> int:
        """The socket to wait on."""
        return self.pgconn.socket

    # ---- statements ----------------------------------------------------------------------------------------------

    def arrive(self, deadline: float | None) -> Exchange:
        """The first exchange: learn what stands at the other end and make our settings."""
        pooler, pid = self._options.pooler.encode(), integer(self.pgconn.backend_pid & 0x7FFFFFFF)
        answers = yield from self.exchange([Ask(self._known["arrive"], (pooler, pid, *self._settings()))], deadline)
        ((self.pooled, self.read_only, _),) = answers[0]
        return answers

    def exchange(self, asks: Sequence[Ask], deadline: float | None) -> Exchange:
        """Send statements in one write and collect their rows; the first error is raised when all has been read."""
        if asks[0].statement.patient:
            deadline = None
        wrapped = self._wrapped(asks)
        self._clean = False
        fresh = self._prepare(wrapped)
        for ask in wrapped:
            self._send(ask)
        self.pgconn.pipeline_sync()
        results = yield from self._results(2 if fresh else 1, deadline)
        self._clean = True
        # What was parsed stays, even when the statements behind it failed.
        self._prepared.update(
            name for name, result in zip(fresh, results, strict=False) if result.status == pq.ExecStatus.COMMAND_OK
        )
        failed = next((r for r in results if r.status == pq.ExecStatus.FATAL_ERROR), None)
        if failed is not None:
            raise error_from_result(failed)
        if self._local_only:
            raise StoreUnavailable(
                "PostgreSQL stopped waiting for its synchronous standby: the write may be on one server only; try again"
            )
        answers = [self._rows(result) for result in results[len(fresh) :]]
        return answers if wrapped is asks else answers[2:-1]

    def _wrapped(self, asks: Sequence[Ask]) -> Sequence[Ask]:
        idle = self.pgconn.transaction_status == pq.TransactionStatus.IDLE
        if not self.pooled or not idle or asks[0].statement.patient:
            return asks
        known = self._known
        settle_in = Ask(known["pooled_settings"], self._settings({"oncekey.pooled": "yes"}))
        return [Ask(known["pooled_begin"]), settle_in, *asks, Ask(known["pooled_commit"])]

    def _settings(self, more: Mapping[str, str] = MappingProxyType({})) -> tuple[bytes, bytes]:
        chosen = settings(self._options.store_for) | dict(more)
        return texts(list(chosen)), texts(list(chosen.values()))

    def _prepare(self, asks: Sequence[Ask]) -> list[bytes]:
        """Have new statements parsed ahead; they end with a sync of their own, so they stand whatever comes after."""
        if self.pooled:
            return []
        fresh = {
            ask.statement.name: ask.statement.sql
            for ask in asks
            if ask.statement.prepared and ask.statement.name not in self._prepared
        }
        for name, sql in fresh.items():
            self.pgconn.send_prepare(name, sql)
        if fresh:
            self.pgconn.pipeline_sync()
        return list(fresh)

    def _send(self, ask: Ask) -> None:
        statement, parameters = ask
        formats = [BINARY] * len(parameters)
        if statement.prepared and not self.pooled:
            self.pgconn.send_query_prepared(statement.name, parameters, formats, BINARY)
        else:
            self.pgconn.send_query_params(statement.sql, parameters, None, formats, BINARY)

    def _results(self, syncs: int, deadline: float | None) -> Generator[Wait, Ready | int, list[pq.abc.PGresult]]:
        pgconn, results = self.pgconn, []
        while True:
            # Reading while writing: with large bodies both ends' buffers could be full.
            ready = yield Wait.RW if pgconn.flush() else Wait.R
            if ready & Ready.R:
                pgconn.consume_input()
            elif not ready and deadline is not None and monotonic() > deadline:
                raise OutOfTime("no answer within the time budget of the call")
            while not pgconn.is_busy():
                result = pgconn.get_result()
                if result is None:
                    continue
                if result.status != pq.ExecStatus.PIPELINE_SYNC:
                    results.append(result)
                    continue
                syncs -= 1
                if not syncs:
                    return results

    def _rows(self, result: pq.abc.PGresult) -> Rows:
        if not result.ntuples:
            return []
        self._transformer.set_pgresult(result)
        return self._transformer.load_rows(0, result.ntuples, tuple)

    def _noticed(self, notice: Diagnostic) -> None:
        # The place in the server's source, because its words are translated.
        if notice.source_function == "SyncRepWaitForLSN":
            self._local_only = True

    # ---- life ----------------------------------------------------------------------------------------------------

    @property
    def reusable(self) -> bool:
        """Whether another caller may have it: all answers read, no transaction open, and it may write."""
        return (
            self._clean
            and not self._local_only
            and not self.read_only
            and self.pgconn.status == pq.ConnStatus.OK
            and self.pgconn.transaction_status == pq.TransactionStatus.IDLE
        )

    def alive(self) -> bool:
        """Whether the other end is there, as far as this end was told. Reads twice: a farewell, then the end."""
        try:
            self.pgconn.consume_input()
            self.pgconn.consume_input()
        except psycopg.Error:
            return False
        return self.pgconn.status == pq.ConnStatus.OK

    def close(self) -> None:
        """Leave the server; in a child process only forget the connection, which is the parent's."""
        if self.pid == os.getpid():
            self.pgconn.finish()
        else:
            _inherited.append(self)


class Idle:
    """The lanes that nobody uses now. The last one used goes out first, so that the rest may be dropped unnoticed."""

    def __init__(self) -> None:
        self.pid = os.getpid()
        self._lanes: deque[Lane] = deque()
        # A store that is forgotten leaves the server as well.
        self.close = weakref.finalize(self, _leave, self._lanes)

    def take(self) -> Lane | None:
        """A lane that still lives, if there is one."""
        while self._lanes:
            try:
                lane = self._lanes.pop()
            except IndexError:  # another thread was quicker
                return None
            if lane.alive():
                return lane
            lane.close()
        return None

    def put(self, lane: Lane) -> None:
        """Keep a lane for the next caller, if it is fit for that and we are still open."""
        if lane.reusable and self.close.alive:
            self._lanes.append(lane)
        else:
            lane.close()


def _leave(lanes: deque[Lane]) -> None:
    while lanes:
        lanes.pop().close()
