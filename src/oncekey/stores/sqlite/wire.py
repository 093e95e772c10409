"""Runs plans on a database file, for threads: one writing connection, and one that reads beside it.

WAL: readers never wait for the writer. `synchronous = FULL`: an acknowledged commit survives power loss. Every write is
a `BEGIN IMMEDIATE` transaction, so that no read is ever upgraded to a write (SQLite refuses that at once, without
waiting).
"""

from __future__ import annotations

import shutil
import sqlite3
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

from oncekey.errors import OnceKeyError, StoreUnavailable
from oncekey.stores.contract import Listener
from oncekey.stores.sqlite import trouble
from oncekey.stores.sqlite.link import Link, patient
from oncekey.stores.sqlite.listen import Hub
from oncekey.stores.sqlite.plan import SqlitePlan, Steps
from oncekey.stores.sqlite.steps import Change, Phase, Place, Rows, Tell, Watching, Where

T = TypeVar("T")


class SqliteWire:
    """The I/O of one database file in one process. `clock` answers milliseconds."""

    def __init__(self, path: str, *, store_for: float, clock: Callable[[], int]) -> None:
        self.path = path
        self.store_for = store_for
        self.clock = clock
        self.writer = Link(path, store_for)
        self.reader = Link(path, store_for)
        self.hub = Hub(path, store_for)
        self.has_tables = False
        self._closed = False

    def run(self, steps: Steps[T]) -> T:
        """Run one plan to its end."""
        if self._closed:
            raise StoreUnavailable(f"{self.path}: the store was closed: open a new one")
        turn = _Turn(self)
        try:
            result = turn.follow(steps)
        except OnceKeyError:
            turn.undo()
            raise
        except (sqlite3.Error, OverflowError, UnicodeError) as error:
            turn.undo(broken=trouble.code(error) in trouble.BROKEN)
            raise trouble.translated(error, self.path) from error
        except BaseException:
            turn.undo()
            raise
        finally:
            turn.leave()
        for id_ in turn.told:
            self.hub.tell(id_)
        return result

    def prepare(self) -> None:
        """Make the tables of a new file, or refuse those of another version; once per process."""
        if not self.has_tables:
            self.run(SqlitePlan().ready())
            self.has_tables = True

    def listen(self, told: Callable[[bytes], None]) -> Listener:
        """Call back until closed; other processes' changes are noticed within a blink."""
        return self.hub.listen(told)

    def close(self) -> None:
        """Close the file. Running plans end first."""
        self._closed = True
        self.hub.close()
        deadline = time.monotonic() + self.store_for
        for link in (self.writer, self.reader):
            link.take(deadline)
            try:
                link.close()
            finally:
                link.lock.release()

    def place(self) -> Place:
        """The surroundings of the file."""
        return Place(
            self.path, shutil.disk_usage(Path(self.path).parent).free, _file_system(str(Path(self.path).resolve()))
        )


class _Turn:
    """One plan's way through the wire: which connection it has borrowed, and whether it is in a transaction."""

    __slots__ = ("connection", "deadline", "link", "told", "wire", "writing")

    def __init__(self, wire: SqliteWire) -> None:
        self.wire = wire
        self.deadline = time.monotonic() + wire.store_for
        self.link: Link | None = None
        self.connection: sqlite3.Connection | None = None
        self.writing = False
        self.told: list[bytes] = []

    def follow(self, steps: Steps[T]) -> T:
        answer: Any = None
        while True:
            try:
                step = steps.send(answer)
            except StopIteration as end:
                self.commit()
                result: T = end.value
                return result
            answer = self.enter(step) if isinstance(step, Phase) else self.do(step)

    def do(self, step: object) -> Any:
        if isinstance(step, Rows):
            return self.execute(step).fetchall()
        if isinstance(step, Change):
            return self.execute(step).rowcount
        if isinstance(step, Tell):
            self.told.extend(step.ids)
        elif isinstance(step, Watching):
            self.wire.hub.watch(step.id, on=step.on)
        elif step is Where.IS_IT:
            return self.wire.place()
        else:
            raise TypeError(step)
        return None

    def execute(self, step: Rows | Change) -> sqlite3.Cursor:
        if self.connection is None:
            raise TypeError("a plan names its phase before its first statement")
        return patient(self.connection, step.sql, step.values, self.deadline)

    def enter(self, phase: Phase) -> int:
        """Borrow a connection for this phase; the time is read when it is granted."""
        self.commit()
        if phase in (Phase.READ, Phase.WRITE) and not self.wire.has_tables:
            self.wire.prepare()
        if phase in (Phase.READ, Phase.LOOK):
            self.borrow_any()
        else:
            self.borrow_writer()
            self.execute(Change("BEGIN IMMEDIATE"))
            self.writing = True
        return self.wire.clock()

    def borrow_any(self) -> None:
        """The writer if it is idle: its cache holds what is about to be written. Else the reader, which never waits."""
        if self.link is None:
            if self.wire.writer.lock.acquire(blocking=False):
                self.link = self.wire.writer
            else:
                self.wire.reader.take(self.deadline)
                self.link = self.wire.reader
        self.connection = self.link.ready(self.deadline)

    def borrow_writer(self) -> None:
        if self.link is not self.wire.writer:
            self.leave()
            self.wire.writer.take(self.deadline)
            self.link = self.wire.writer
        self.connection = self.link.ready(self.deadline)

    def commit(self) -> None:
        if self.writing:
            self.execute(Change("COMMIT"))
            self.writing = False

    def undo(self, *, broken: bool = False) -> None:
        """Leave the transaction without a trace; drop a connection that cannot do even that."""
        self.told.clear()
        # The file may be another one by now; the next plan looks.
        self.wire.has_tables = False
        if self.link is None or self.connection is None:
            return
        try:
            if self.connection.in_transaction:
                self.connection.execute("ROLLBACK")
        except sqlite3.Error:
            broken = True
        if broken:
            self.link.close()

    def leave(self) -> None:
        if self.link is not None:
            link, self.link, self.connection = self.link, None, None
            link.lock.release()


def _file_system(path: str) -> str:
    """The type of the file system that holds this path; empty where the system does not say."""
    try:
        mounts = Path("/proc/self/mountinfo").read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return ""
    best, kind = -1, ""
    for mount in mounts:
        before, _, behind = mount.partition(" - ")
        point = before.split()[4].encode().decode("unicode_escape").rstrip("/")
        if (path == point or path.startswith(f"{point}/")) and len(point) >= best:
            best, kind = len(point), behind.split()[0]
    return kind
