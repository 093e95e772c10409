"""SQLite's errors, each as one of ours with the fix in its sentence. The cause is kept by `raise ... from`."""

from __future__ import annotations

import sqlite3
from pathlib import Path

from oncekey.errors import ConfigurationError, OnceKeyError, StoreError, StoreUnavailable

# Primary result codes; sqlite3 has these names only since Python 3.11.
BUSY = {sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED}
UNFIT = {sqlite3.SQLITE_CONSTRAINT, sqlite3.SQLITE_MISMATCH, sqlite3.SQLITE_TOOBIG}
# After these the connection itself is not to be trusted any more.
BROKEN = {sqlite3.SQLITE_IOERR, sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB, sqlite3.SQLITE_CANTOPEN}
# Seen at opening, these are a wrong set-up; in the midst of work they are an outage.
SETUP = {sqlite3.SQLITE_NOTADB, sqlite3.SQLITE_READONLY, sqlite3.SQLITE_CANTOPEN, sqlite3.SQLITE_PERM}
PRIMARY = 0xFF


def code(error: BaseException) -> int:
    """The primary result code, -1 where there is none."""
    number: int | None = getattr(error, "sqlite_errorcode", None)
    return -1 if number is None else number & PRIMARY


def translated(error: Exception, path: str, *, opening: bool = False) -> OnceKeyError:
    """The error to raise instead."""
    number = code(error)
    if isinstance(error, OverflowError | UnicodeError | sqlite3.ProgrammingError) or number in UNFIT:
        return StoreError(f"the record does not fit the table of {path} ({error}); nothing was written")
    sentence = SENTENCES.get(number, "the database could not be used")
    what = f"{path}: {sentence(path) if callable(sentence) else sentence} (SQLite says: {error})"
    return ConfigurationError(what) if opening and number in SETUP else StoreUnavailable(what)


def _cannot_open(path: str) -> str:
    folder = Path(path).parent
    if not folder.is_dir():
        return f"its folder is missing: run `mkdir -p {folder}`, or correct the store's URL"
    if Path(path).is_dir():
        return "it is a folder: write the name of a file in the store's URL"
    return "it cannot be opened: give this process read and write permission on the file and its folder"


SENTENCES = {
    sqlite3.SQLITE_BUSY: "other processes kept it locked for the whole time budget: raise store_for, or use a server "
    "such as postgresql:// for so many writers",
    sqlite3.SQLITE_LOCKED: "another connection of this process kept it locked: raise store_for",
    sqlite3.SQLITE_CANTOPEN: _cannot_open,
    sqlite3.SQLITE_PERM: _cannot_open,
    sqlite3.SQLITE_NOTADB: "it is not an SQLite database: name another file in the store's URL, or move this one away",
    sqlite3.SQLITE_READONLY: "it cannot be written: give this process write permission on the file and its folder",
    sqlite3.SQLITE_FULL: "the disk is full: make room, then requests are accepted again by themselves",
    sqlite3.SQLITE_IOERR: "the disk gave an error: look at the system's log and at the free space",
    sqlite3.SQLITE_CORRUPT: "the file is damaged: stop, keep a copy, and restore it from a backup",
    sqlite3.SQLITE_NOMEM: "out of memory",
    sqlite3.SQLITE_PROTOCOL: "the locks of its log kept failing: put the file on a local disk",
}
