"""One connection and the lock that lends it to one thread at a time. Opened at its first use, closed before a fork.

Why before a fork: SQLite keeps a file's locks per process. A child that inherits an open file believes that it holds
locks which only its parent holds; when the parent then closes, the log is deleted under the child, and what the child
commits after that is lost although it was acknowledged.

The database file must never be opened by other means in a process that has a connection: closing any handle of a file
drops all its locks in that process. Hence `os.stat`, never `open`.
"""

from __future__ import annotations

import os
import sqlite3
import threading
import time
import weakref
from collections.abc import Sequence
from contextlib import suppress
from typing import Any

from oncekey.errors import ConfigurationError, StoreUnavailable
from oncekey.stores.sqlite import doctor, trouble

# SQLite's own waiting sleeps up to 100 ms at a time; with many writers, short naps find the free lock sooner.
FIRST_NAP, LONGEST_NAP = 0.0002, 0.002

PRAGMAS = (
    "PRAGMA journal_mode = WAL",
    "PRAGMA synchronous = FULL",
    "PRAGMA fullfsync = ON",  # macOS: without it a flush ends in the drive's own memory
    "PRAGMA checkpoint_fullfsync = ON",
    "PRAGMA cache_size = -16000",  # the upper floors of the key index of ten million records
    "PRAGMA journal_size_limit = 67108864",
    "PRAGMA trusted_schema = OFF",
)

_LINKS: weakref.WeakSet[Link] = weakref.WeakSet()


class Link:
    """A connection to the file, or none yet."""

    def __init__(self, path: str, store_for: float) -> None:
        self.path = path
        self.store_for = store_for
        self.lock = threading.Lock()
        self.connection: sqlite3.Connection | None = None
        self._pid = 0
        self._inode: tuple[int, int] | None = None
        _LINKS.add(self)

    def take(self, deadline: float) -> None:
        """Borrow it."""
        if not self.lock.acquire(timeout=max(0.0, deadline - time.monotonic())):
            raise StoreUnavailable(
                f"{self.path}: this process had no turn within {self.store_for:g} s; raise store_for"
            )

    def ready(self, deadline: float) -> sqlite3.Connection:
        """The connection, opened if need be, by who has borrowed the link."""
        if self.connection is not None:
            if self._pid != os.getpid():
                raise StoreUnavailable(
                    f"{self.path}: this process was forked, not by Python, while the file was open, and may not share "
                    f"it: open the store after the fork (uWSGI: lazy-apps = true)"
                )
            if self._inode == self._found():
                return self.connection
            self.close()
            raise StoreUnavailable(
                f"{self.path}: the file was deleted or replaced while it was open: stop all processes before that"
            )
        return self._open(deadline)

    def _open(self, deadline: float) -> sqlite3.Connection:
        old = doctor.sqlite()
        if old.level == "refusal":
            raise ConfigurationError(f"{old.what}: {old.fix}")
        connection = None
        try:
            connection = sqlite3.connect(
                self.path, timeout=0, isolation_level=None, check_same_thread=False, cached_statements=256
            )
            for pragma in PRAGMAS:
                patient(connection, pragma, (), deadline).close()
        except sqlite3.Error as error:
            if connection is not None:
                connection.close()
            raise trouble.translated(error, self.path, opening=True) from error
        self.connection, self._pid, self._inode = connection, os.getpid(), self._found()
        return connection

    def _found(self) -> tuple[int, int] | None:
        try:
            status = os.stat(self.path)  # noqa: PTH116 - asked before every use: a Path would cost more than the call
        except FileNotFoundError:
            return None
        return status.st_dev, status.st_ino

    def close(self) -> None:
        """Close the connection, by who has borrowed the link. The next use opens another."""
        connection, self.connection = self.connection, None
        if connection is not None and self._pid == os.getpid():
            with suppress(sqlite3.Error):
                connection.close()


def patient(connection: sqlite3.Connection, sql: str, values: Sequence[Any], deadline: float) -> sqlite3.Cursor:
    """Execute; while the file is locked by another process, try again until the deadline."""
    nap = FIRST_NAP
    while True:
        try:
            return connection.execute(sql, values)
        except sqlite3.OperationalError as error:
            left = deadline - time.monotonic()
            if trouble.code(error) not in trouble.BUSY or left <= 0:
                raise
        time.sleep(min(nap, left))
        nap = min(nap * 1.5, LONGEST_NAP)


_HELD: list[Link] = []


def _before_fork() -> None:
    for link in list(_LINKS):
        # A thread in the midst of a transaction ends it within its time budget; the fork waits for it.
        if link.lock.acquire(timeout=link.store_for + 1):
            link.close()
            _HELD.append(link)


def _after_fork() -> None:
    while _HELD:
        _HELD.pop().lock.release()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(before=_before_fork, after_in_parent=_after_fork, after_in_child=_after_fork)
