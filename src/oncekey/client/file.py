"""The file of a journal: one connection for each process, lent to one thread at a time.

Its troubles become JournalUnusable, which says what to do. SQLite keeps a file's locks per process, and a child that
inherits an open file believes that it holds its parent's: so it is closed before a fork.
"""

from __future__ import annotations

import os
import sqlite3
import stat
import threading
import time
import weakref
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from oncekey.client.errors import JournalUnusable

PATIENCE = 30.0
_NAP = 0.01
_ADVICE = (
    ("full", "make room on its disk"),
    ("locked", f"another program has held it for {PATIENCE:g} seconds: let that one end"),
    ("not a database", "it is no journal: move it away, and ask the servers about the operations that it may hold"),
    ("malformed", "it is damaged: move it away, and ask the servers about the operations that it may hold"),
    ("no such column", "it is of another version, or of another program: name another file"),
)
_WRITABLE = "name a file in a folder that this program may write"


class JournalFile:
    """A connection to the file, or none yet. Opened at its first use."""

    def __init__(self, path: Path, schema: str) -> None:
        self.path = path
        self._schema = schema
        self.lock = threading.RLock()
        self._db: sqlite3.Connection | None = None
        self._pid = 0
        _FILES.add(self)

    @contextmanager
    def reading(self) -> Iterator[sqlite3.Connection]:
        """The connection, for one thread at a time."""
        with self.lock:
            try:
                yield self._opened()
            except (OSError, sqlite3.Error) as error:
                said = str(error)
                advice = next((advice for words, advice in _ADVICE if words in said), _WRITABLE)
                raise JournalUnusable(f"the journal {self.path} cannot be used ({said}): {advice}") from error

    @contextmanager
    def writing(self) -> Iterator[sqlite3.Connection]:
        """A transaction. When it has ended, what it wrote is flushed to the disk."""
        with self.reading() as db:
            try:
                db.execute("BEGIN IMMEDIATE")
                yield db
                db.execute("COMMIT")
            except BaseException:
                if db.in_transaction:
                    db.execute("ROLLBACK")
                raise

    def close(self) -> None:
        """Let go of the file. The next use opens it again."""
        with self.lock:
            db, self._db = self._db, None
            if db is not None and self._pid == os.getpid():
                db.close()

    def _opened(self) -> sqlite3.Connection:
        if self._db is not None:
            if self._pid != os.getpid():
                raise OSError("this process was forked, not by Python, while it was open; open it after the fork")
            return self._db
        self.path.touch(mode=stat.S_IRUSR | stat.S_IWUSR)
        db = sqlite3.connect(self.path, timeout=PATIENCE, isolation_level=None, check_same_thread=False)
        try:
            db.row_factory = sqlite3.Row
            _persuaded(db, "PRAGMA journal_mode = WAL")
            db.execute("PRAGMA synchronous = FULL")
            db.execute("PRAGMA fullfsync = ON")
            db.executescript(self._schema)
        except BaseException:
            db.close()
            raise
        self._db, self._pid = db, os.getpid()
        return db


def _persuaded(db: sqlite3.Connection, pragma: str) -> None:
    """SQLite does not wait by itself where two programs make the same new file at once."""
    until = time.monotonic() + PATIENCE
    while True:
        try:
            db.execute(pragma)
        except sqlite3.OperationalError as error:
            if "locked" not in str(error) or time.monotonic() > until:
                raise
            time.sleep(_NAP)
        else:
            return


_FILES: weakref.WeakSet[JournalFile] = weakref.WeakSet()
_HELD: list[JournalFile] = []


def _before_fork() -> None:
    for file in list(_FILES):
        # A thread in the midst of a transaction ends it; the fork waits for it.
        if file.lock.acquire(timeout=PATIENCE + 1):
            file.close()
            _HELD.append(file)


def _after_fork() -> None:
    while _HELD:
        _HELD.pop().lock.release()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(before=_before_fork, after_in_parent=_after_fork, after_in_child=_after_fork)
