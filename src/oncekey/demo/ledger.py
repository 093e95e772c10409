"""The provider's ledger: an SQLite file that all workers share, and that knows nothing of idempotency keys.

It stands for somebody else's database, so a run is durable before anything else happens. One thread per process owns
the connection.
"""

from __future__ import annotations

import re
import sqlite3
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import NamedTuple

from oncekey.errors import ConfigurationError

_NAME = re.compile(r"^-- name: (\w+)\n", re.MULTILINE)
_COMMENT = re.compile(r"^--.*\n?", re.MULTILINE)
BUSY_FOR = 30.0


def _statements() -> dict[str, str]:
    text = Path(__file__).with_name("ledger.sql").read_text(encoding="utf-8")
    _, *parts = _NAME.split(text)
    return {name: _COMMENT.sub("", sql).strip() for name, sql in zip(parts[::2], parts[1::2], strict=True)}


SQL = _statements()


class Entry(NamedTuple):
    """One run, as it is written down; instants and durations in milliseconds."""

    ref: str
    api: str
    kind: str
    caller: bytes
    object: str
    told: str
    begun_at: int
    delay_for: int
    fails_with: int | None
    worker: int


class Made(NamedTuple):
    """What was made under a reference."""

    run: int
    object: str
    told: str
    fails_with: int | None


class Sent(NamedTuple):
    """What the provider tells of a run."""

    reference: str
    run: int
    object: str
    told: str


class Cancelled(Exception):
    """The reference was cancelled: nothing is done under it any more."""


class Run(NamedTuple):
    """One run, as it is shown."""

    run: int
    ref: str
    api: str
    kind: str
    object: str
    begun_at: int
    delay_for: int
    fails_with: int | None
    worker: int


class Ledger:
    """The file, as one process uses it. The methods block: run them on `thread`."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix="provider")
        self._connection: sqlite3.Connection | None = None

    def _open(self) -> sqlite3.Connection:
        if self._connection is None:
            connection = sqlite3.connect(
                self.path, timeout=BUSY_FOR, isolation_level=None, check_same_thread=False, cached_statements=16
            )
            connection.execute("PRAGMA journal_mode = WAL").close()
            connection.execute("PRAGMA synchronous = FULL").close()
            self._connection = connection
        return self._connection

    def prepare(self) -> None:
        """Make the tables of a new file; refuse a file that is none of ours."""
        try:
            connection = self._open()
            connection.execute("BEGIN IMMEDIATE")
            for name in ("runs", "references", "by_ref", "by_object"):
                connection.execute(SQL[name])
            connection.execute("COMMIT")
        except sqlite3.Error as error:
            raise ConfigurationError(
                f"the provider's ledger {self.path} cannot be used ({error}): start the demo in a folder that you may "
                f"write to, or move that file away"
            ) from error

    def begin(self, entry: Entry, fail_once: int | None, reference: str = "") -> Entry:
        """Write one run down and return it; with `fail_once`, the first run of its ref fails with that.

        Under a reference that was cancelled nothing is run: Cancelled is raised.
        """
        connection = self._open()
        connection.execute("BEGIN IMMEDIATE")
        try:
            if entry.fails_with is None and fail_once is not None and self.executions(entry.ref) == 0:
                entry = entry._replace(fails_with=fail_once)
            self._refuse_cancelled(reference)
            connection.execute(SQL["begin"], entry)
            if reference:
                connection.execute(SQL["refer"], (reference,))
            connection.execute("COMMIT")
        except BaseException:
            connection.rollback()
            raise
        return entry

    def _refuse_cancelled(self, reference: str) -> None:
        (shut,) = self._open().execute(SQL["cancelled"], (reference,)).fetchone()
        if shut:
            raise Cancelled(reference)

    def executions(self, ref: str) -> int:
        """How often the provider acted for a ref."""
        (count,) = self._open().execute(SQL["count"], (ref,)).fetchone()
        return int(count)

    def found(self, object_: str, kind: str, caller: bytes) -> str | None:
        """What was told when a caller's object was made; None if there is none of that kind."""
        row = self._open().execute(SQL["object"], (object_, kind, caller)).fetchone()
        return row[0] if row is not None else None

    def cancel(self, reference: str) -> None:
        """Shut a reference, unless something was run under it."""
        self._open().execute(SQL["cancel"], (reference,))

    def made(self, reference: str) -> Made | None:
        """What was run under a reference."""
        row = self._open().execute(SQL["referred"], (reference,)).fetchone()
        return Made(*row) if row is not None else None

    def sent(self, ref: str) -> Sent | None:
        """The latest run for a ref that was made under a reference, and did not fail."""
        row = self._open().execute(SQL["sent"], (ref,)).fetchone()
        return Sent(*row) if row is not None else None

    def recent(self, limit: int) -> tuple[int, list[Run]]:
        """How often the provider has acted in all, and its latest runs."""
        connection = self._open()
        (total,) = connection.execute(SQL["total"]).fetchone()
        return total, [Run(*row) for row in connection.execute(SQL["recent"], (limit,))]

    def close(self) -> None:
        """Finish what was asked, then close the file."""
        self.thread.submit(self._close).result()
        self.thread.shutdown()

    def _close(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None
