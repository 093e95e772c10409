"""A few threads for what a request must not wait for, and a bound on how much of it there is."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TypeVar

R = TypeVar("R")


class Aside:
    """Work is begun in the order in which it came. A process that was forked gets threads of its own."""

    def __init__(self, threads: int, most: int, name: str) -> None:
        self._threads = threads
        self._most = most
        self._name = name
        self._making = threading.Lock()
        self._pid = 0

    def _open(self) -> None:
        self._pool = ThreadPoolExecutor(self._threads, thread_name_prefix=self._name)
        self._places = threading.BoundedSemaphore(self._most)
        self._pid = os.getpid()

    def begin(self, work: Callable[[], R]) -> Future[R] | None:
        """Do this soon; None: there is too much to do already, or the process ends."""
        if self._pid != os.getpid():
            with self._making:
                if self._pid != os.getpid():
                    self._open()
        places = self._places
        if not places.acquire(blocking=False):
            return None
        try:
            future = self._pool.submit(work)
        except RuntimeError:
            places.release()
            return None
        future.add_done_callback(lambda done: places.release())
        return future

    def follow(self, work: Callable[[], None]) -> None:
        """Do this behind what was begun, in this process, before it."""
        try:
            self._pool.submit(work)
        except RuntimeError:
            return  # the process ends

    def close(self) -> None:
        """Wait for all of it, and take no more."""
        if self._pid == os.getpid():
            self._pool.shutdown()
