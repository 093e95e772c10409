"""What a plan of this room may ask of its wire.

A plan first names a phase and is sent the store's time; then it yields statements and is sent their rows or counts. A
write phase is one `BEGIN IMMEDIATE` transaction: it ends, durably, when the plan returns or names its next phase, and
its time is read after the lock was granted. A plan that raises rolls it back.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import Enum
from typing import Any, NamedTuple


class Phase(Enum):
    """READ waits for no writer. LOOK and BUILD are reading and writing where the tables may not be there yet."""

    READ = 1
    WRITE = 2
    LOOK = 3
    BUILD = 4


class Rows(NamedTuple):
    """Run a statement and send its rows."""

    sql: str
    values: Sequence[Any] = ()


class Change(NamedTuple):
    """Run a statement and send how many rows it changed."""

    sql: str
    values: Sequence[Any] = ()


class Tell(NamedTuple):
    """Tell the listeners of these ids, once the transaction has been committed."""

    ids: Sequence[bytes]


class Watching(NamedTuple):
    """Somebody in this process waits for this record, or no longer does."""

    id: bytes
    on: bool


class Where(Enum):
    """Ask for the Place of the database file."""

    IS_IT = 1


class Place(NamedTuple):
    """The database file, as its folder and its file system show it."""

    path: str
    free: int
    filesystem: str
