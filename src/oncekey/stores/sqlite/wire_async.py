"""The same wire for asyncio, lent through threads of its own.

A caller that is cancelled leaves the plan running: the batch belongs to others too, and the connection to everybody.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from typing import TypeVar

from oncekey.stores.contract import Listener
from oncekey.stores.sqlite.plan import Steps
from oncekey.stores.sqlite.wire import SqliteWire

T = TypeVar("T")

# One writes while the other reads: a replay does not wait for somebody else's fsync.
THREADS = 2


class AsyncSqliteWire:
    """A sync wire, awaited."""

    def __init__(self, sync: SqliteWire) -> None:
        self.sync = sync
        self._pid = 0
        self._threads: ThreadPoolExecutor | None = None

    async def run(self, steps: Steps[T]) -> T:
        """Run one plan to its end in a thread."""
        return await self._lend(lambda: self.sync.run(steps))

    def listen(self, told: Callable[[bytes], None]) -> Listener:
        """As the sync wire: listening is a thread's work."""
        return self.sync.listen(told)

    async def close(self) -> None:
        """Close the file and end the threads."""
        await self._lend(self.sync.close)
        if self._threads is not None:
            self._threads.shutdown(wait=False)
            self._threads = None

    async def _lend(self, work: Callable[[], T]) -> T:
        loop = asyncio.get_running_loop()
        answer: asyncio.Future[T] = loop.create_future()

        def landed(done: Future[T]) -> None:
            # A loop that is closed meanwhile has nobody left to tell.
            with suppress(RuntimeError):
                loop.call_soon_threadsafe(_hand, answer, done)

        self._pool().submit(work).add_done_callback(landed)
        return await answer

    def _pool(self) -> ThreadPoolExecutor:
        if self._threads is None or self._pid != os.getpid():
            self._threads = ThreadPoolExecutor(THREADS, thread_name_prefix="oncekey-sqlite")
            self._pid = os.getpid()
        return self._threads


def _hand(answer: asyncio.Future[T], done: Future[T]) -> None:
    if answer.cancelled():
        return
    error = done.exception()
    if error is not None:
        answer.set_exception(error)
    else:
        answer.set_result(done.result())
