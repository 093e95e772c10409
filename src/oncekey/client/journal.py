"""The client's memory: which operations were begun, under which keys, and how they ended. One SQLite file.

An operation is on the disk, flushed, before its first request leaves. A program that is killed at any moment finds its
key again by the name of the intent, or sends what is left with `oncekey client resume`. Credentials are not kept:
whoever resumes brings them.
"""

from __future__ import annotations

import json
import logging
import os
import re
import sqlite3
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit, urlunsplit

from oncekey.client import keys
from oncekey.client.errors import IntentOver, JournalUnusable, OutcomeUnknown, QueueFull
from oncekey.client.file import JournalFile
from oncekey.errors import ConfigurationError

log = logging.getLogger("oncekey.client")
VARIABLE = "ONCEKEY_JOURNAL"
_DAY = 86_400
_MOST_KEPT = 262_144
# Clocks are corrected by seconds; an operation that was made later than this from now says that the clock was set back.
_FUTURE = 300.0
_HEADER = re.compile(r"^-- name: (\w+)\n", re.MULTILINE)
_SECRET = re.compile(r"auth|cookie|token|secret|password|api-?key|signature|session", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class Request:
    """A request as the journal keeps it."""

    method: str
    url: str
    headers: tuple[tuple[str, str], ...] = ()
    body: bytes = b""


@dataclass(frozen=True, slots=True)
class Kept:
    """An answer as the journal keeps it. `body` is None where it was too large."""

    status: int
    headers: tuple[tuple[str, str], ...] = ()
    body: bytes | None = None


@dataclass(frozen=True, slots=True)
class Entry:
    """One operation in the journal. Instants are seconds since the epoch."""

    name: str
    identity: tuple[str, ...]
    key: str
    done: bool
    made_at: float
    queue: str
    attempts: int
    trouble: str
    request: Request | None
    answer: Kept | None


class IntentKey(str):
    """The key of an intent: text, to be given to any client. `first` is false where an earlier run has begun it."""

    __slots__ = ("entry", "first", "journal")

    entry: Entry
    first: bool
    journal: Journal

    def settle(self) -> None:
        """There is a definite answer, although an exception is on its way: a card that was declined, for example."""
        self.journal.done(self)


CURRENT: ContextVar[IntentKey | None] = ContextVar("oncekey_intent", default=None)


class Journal:
    """One file of operations, shared by the threads and processes of a program.

    `keep_for` is how long the server keeps its answers: an open operation that is older is unresolved, and never sent
    again. Finished ones are remembered for `remember_for`: an intent of the same name and identity gets its answer.
    """

    def __init__(
        self, path: str | Path, *, keep_for: float = _DAY, remember_for: float = 90 * _DAY, at_most: int = 10_000
    ) -> None:
        if keep_for <= 0 or remember_for < keep_for or at_most < 1:
            raise ConfigurationError(
                "a journal needs keep_for above 0, remember_for not below keep_for, and at_most of at least 1"
            )
        self.path = Path(path)
        self.keep_for = keep_for
        self.remember_for = remember_for
        self.at_most = at_most
        self._file = JournalFile(self.path, _statements()["schema"])

    # ---- intents -------------------------------------------------------------------------------------------------

    @contextmanager
    def intent(self, name: str, *identity: str | int) -> Iterator[IntentKey]:
        """One thing that somebody wants done: the same name and identity have the same key, over restarts too.

        It ends when a RetryTransport has its definite answer. Without one, it ends when the block ends without an
        exception. Where a RetryTransport gave up, it stays open, whatever the block does with the error.
        """
        key = self.begin(name, *identity)
        token = CURRENT.set(key)
        try:
            yield key
        finally:
            CURRENT.reset(token)
        self.kept(self._left, key)

    def begin(self, name: str, *identity: str | int) -> IntentKey:
        """The key of an intent, kept on the disk. `intent` is this with its end."""
        if not name or not identity:
            raise ConfigurationError("an intent needs a name and whose it is: intent('checkout', order_id)")
        entry, first = self._added(name, _text(identity), keys.new_key())
        if not first and self.age(entry) >= self.keep_for:
            raise too_old(entry)
        key = IntentKey(entry.key)
        key.entry, key.first, key.journal = entry, first, self
        return key

    def put(self, name: str, *identity: str | int, request: Request, queue: str = "default") -> str:
        """Keep a request that is sent later, by `resume`: in order within its queue. The same intent is put once."""
        return self._added(name, _text(identity), keys.new_key(), request, queue)[0].key

    def _added(
        self, name: str, identity: str, key: str, request: Request | None = None, queue: str = ""
    ) -> tuple[Entry, bool]:
        values = {"name": name, "identity": identity, "key": key, "queue": queue, "now": _now()}
        with self._file.writing() as db:
            return self._add(db, values | _kept_request(request))

    def _add(self, db: sqlite3.Connection, values: dict[str, Any]) -> tuple[Entry, bool]:
        found = self._one(db, "by_identity", values)
        if found is not None:
            return found, False
        if db.execute(_statements()["count"]).fetchone()[0] >= self.at_most:
            raise QueueFull(
                f"{self.path} holds {self.at_most} open operations: run `oncekey client resume`, or raise at_most"
            )
        db.execute(_statements()["prune"], {"before": _now() - int(self.remember_for * 1000)})
        db.execute(_statements()["add"], values)
        found = self._one(db, "by_identity", values)
        if found is None:
            raise ConfigurationError(f"the key {values['key']!r} is in {self.path} already, under another name")
        return found, True

    # ---- what transports tell ------------------------------------------------------------------------------------

    def sending(self, key: str, request: Request, name: str) -> None:
        """A request is about to leave: it is on the disk when this returns."""
        values = {"key": key, "now": _now()} | _kept_request(request)
        with self._file.writing() as db:
            if self._one(db, "by_key", values) is None:
                self._add(db, values | {"name": name, "identity": _text((key,)), "queue": ""})
            db.execute(_statements()["sending"], values)

    def troubled(self, key: str, trouble: str) -> None:
        """The attempts ended without a definite answer."""
        with self._file.writing() as db:
            db.execute(_statements()["trouble"], {"key": key, "trouble": trouble[:2000]})

    def done(self, key: str, answer: Kept | None = None) -> None:
        """There is a definite answer."""
        kept: dict[str, Any] = {"status": None, "answer_headers": None, "answer": None}
        if answer is not None:
            body = answer.body if answer.body is not None and len(answer.body) <= _MOST_KEPT else None
            kept = {"status": answer.status, "answer_headers": json.dumps(_public(answer.headers)), "answer": body}
        with self._file.writing() as db:
            db.execute(_statements()["done"], {"key": str(key), "now": _now()} | kept)

    def _left(self, key: str) -> None:
        """The block has ended well: that is the end, unless a transport knows better."""
        with self._file.writing() as db:
            db.execute(_statements()["left"], {"key": str(key), "now": _now()})

    def kept(self, write: Callable[..., None], *given: Any) -> None:
        """Write what came after the request. If that fails, the operation stays open: safe, and no reason to raise."""
        try:
            write(*given)
        except JournalUnusable as error:
            log.warning("an operation stays open although it has ended, and is asked for again later: %s", error)

    # ---- looking -------------------------------------------------------------------------------------------------

    def look(self, key: str) -> Entry | None:
        """The operation with this key."""
        with self._file.reading() as db:
            return self._one(db, "by_key", {"key": str(key)})

    def pending(self, queue: str | None = None, limit: int = 1_000) -> list[Entry]:
        """The operations without a definite answer, in the order in which they were begun."""
        with self._file.reading() as db:
            rows = db.execute(_statements()["open"], {"queue": queue, "limit": limit}).fetchall()
            return [_entry(row) for row in rows]

    def unresolved(self, entry: Entry) -> bool:
        """Older than the server keeps answers: sending it again could run it as new."""
        return not entry.done and self.age(entry) >= self.keep_for

    def age(self, entry: Entry) -> float:
        """How many seconds ago it was made; without an end, where the clock was set back since."""
        passed = time.time() - entry.made_at
        return float("inf") if passed < -_FUTURE else max(0.0, passed)

    def forget(self, key: str) -> bool:
        """Drop an operation: somebody has found out by other means what became of it."""
        with self._file.writing() as db:
            return db.execute(_statements()["forget"], {"key": key}).rowcount > 0

    def close(self) -> None:
        """Let go of the file."""
        self._file.close()

    @staticmethod
    def _one(db: sqlite3.Connection, statement: str, values: Mapping[str, object]) -> Entry | None:
        row = db.execute(_statements()[statement], values).fetchone()
        return None if row is None else _entry(row)


@cache
def _statements() -> dict[str, str]:
    text = files("oncekey.client").joinpath("journal.sql").read_text("utf-8")
    parts = _HEADER.split(text)[1:]
    return dict(zip(parts[::2], parts[1::2], strict=True))


def _now() -> int:
    return time.time_ns() // 1_000_000


def _text(identity: tuple[str | int, ...]) -> str:
    for part in identity:
        if isinstance(part, bool) or not isinstance(part, str | int):
            raise ConfigurationError(f"{part!r} is no part of an identity: write text or a whole number")
    return json.dumps([str(part) for part in identity])


def _public(headers: tuple[tuple[str, str], ...]) -> list[tuple[str, str]]:
    return [(name, value) for name, value in headers if not _SECRET.search(name)]


def _kept_request(request: Request | None) -> dict[str, Any]:
    if request is None:
        return {"method": None, "url": None, "headers": None, "body": None}
    parts = urlsplit(request.url)
    url = urlunsplit(parts._replace(netloc=parts.netloc.rpartition("@")[2]))
    headers = json.dumps(_public(request.headers))
    return {"method": request.method, "url": url, "headers": headers, "body": request.body}


def _entry(row: sqlite3.Row) -> Entry:
    request = answer = None
    if row["method"] is not None:
        headers = _pairs(row["headers"])
        request = Request(row["method"], row["url"], headers, row["body"] or b"")
    if row["status"] is not None:
        answer = Kept(row["status"], _pairs(row["answer_headers"]), row["answer"])
    return Entry(
        name=row["name"],
        identity=tuple(json.loads(row["identity"])),
        key=row["key"],
        done=row["state"] == "done",
        made_at=row["made_at"] / 1000,
        queue=row["queue"],
        attempts=row["attempts"],
        trouble=row["trouble"],
        request=request,
        answer=answer,
    )


def _pairs(text: str | None) -> tuple[tuple[str, str], ...]:
    return tuple((name, value) for name, value in json.loads(text or "[]"))


def too_old(entry: Entry) -> Exception:
    """What is raised for an intent that the server may have forgotten: sending it again could run it anew."""
    if entry.done:
        how = "" if entry.answer is None else f" with status {entry.answer.status}"
        return IntentOver(
            f"the intent {entry.name!r} of {', '.join(entry.identity)} has ended{how}, and the server no longer keeps "
            "its answer: read what it made by other means; for a new operation, use another identity",
            key=entry.key,
            answer=entry.answer,
        )
    return OutcomeUnknown(key=entry.key, attempts=entry.attempts, reason="age")


# ---- the journal of the program --------------------------------------------------------------------------------------

_default: dict[str, Journal] = {}


def default_journal() -> Journal:
    """The journal that the environment names in ONCEKEY_JOURNAL."""
    path = os.environ.get(VARIABLE)
    if not path:
        raise ConfigurationError(
            f"no journal is named: set {VARIABLE} to a file, or write Journal('intents.db').intent(...)"
        )
    return _default.setdefault(path, Journal(path))


def intent(name: str, *identity: str | int) -> AbstractContextManager[IntentKey]:
    """Open an intent in the journal that ONCEKEY_JOURNAL names, as `Journal.intent` does."""
    return default_journal().intent(name, *identity)
