"""The I/O of Postgres for threads: a few lanes, each used by one thread at a time, opened when they are needed."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from time import monotonic
from typing import TypeVar

import psycopg
from psycopg import waiting

from oncekey.stores.contract import Listener
from oncekey.stores.planned import Steps
from oncekey.stores.postgres import trouble
from oncekey.stores.postgres.lane import Exchange, Idle, Lane, Rows
from oncekey.stores.postgres.listen import listen
from oncekey.stores.postgres.options import Options
from oncekey.stores.postgres.statements import Statement

T = TypeVar("T")
# How often a waiting thread looks at its deadline and for Ctrl-C.
INTERVAL = 0.1


class PostgresWire:
    """Runs plans, one exchange after another on one lane."""

    def __init__(self, options: Options, known: dict[str, Statement]) -> None:
        self._options = options
        self._known = known
        self._open()

    def _open(self) -> None:
        self._idle = Idle()
        self._free = threading.Semaphore(self._options.lanes)

    def run(self, steps: Steps[T]) -> T:
        """Carry out one verb within its time budget."""
        deadline = monotonic() + self._options.store_for
        try:
            asks = next(steps)
        except StopIteration as done:
            return done.value  # type: ignore[no-any-return]
        with self._lane(deadline) as lane:
            while True:
                if lane.read_only and not asks[0].statement.anywhere:
                    raise trouble.read_only(self._options)
                answers = _wait(lane, lane.exchange(asks, deadline))
                try:
                    asks = steps.send(answers)
                except StopIteration as done:
                    return done.value  # type: ignore[no-any-return]

    @contextmanager
    def _lane(self, deadline: float) -> Iterator[Lane]:
        if self._idle.pid != os.getpid():
            self.close()
        idle, free = self._idle, self._free
        if not free.acquire(timeout=max(0.0, deadline - monotonic())):
            raise trouble.busy(self._options)
        lane = None
        try:
            lane = idle.take() or self._connect(deadline)
            yield lane
        except psycopg.Error as error:
            raise trouble.translated(error, self._options) from error
        finally:
            if lane is not None:
                idle.put(lane)
            free.release()

    def _connect(self, deadline: float) -> Lane:
        seconds = max(1, round(deadline - monotonic()))
        try:
            connection = psycopg.connect(self._options.conninfo, connect_timeout=seconds)
        except psycopg.Error as error:
            raise trouble.unreachable(error, self._options) from error
        lane = Lane(connection, self._options, self._known)
        try:
            _wait(lane, lane.arrive(deadline))
        except BaseException:
            lane.close()
            raise
        return lane

    def listen(self, told: Callable[[bytes], None]) -> Listener:
        """Be told of records from a thread with a connection of its own."""
        return listen(self._options, told)

    def close(self) -> None:
        """Leave the server. A lane in use leaves when it comes back; a verb after this opens anew."""
        idle = self._idle
        self._open()
        idle.close()


def _wait(lane: Lane, exchange: Exchange) -> list[Rows]:
    return waiting.wait(exchange, lane.fileno, INTERVAL)
