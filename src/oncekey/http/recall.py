"""Finished answers in this process's memory too, for a short while: most retries come soon, and to the same worker.

A completed record does not change before it expires, so its answer may be given without asking the store again, to a
request that is the same byte for byte. Whatever differs, and whatever is not here, is the store's to decide. What an
operator changes reaches a worker when its entry's time is over; a policy with recall_for=None keeps none.
"""

from __future__ import annotations

import os
import threading
import time
from collections import OrderedDict
from typing import TYPE_CHECKING

from oncekey.engine.current import TRACE
from oncekey.http.answer import marked

if TYPE_CHECKING:
    from collections.abc import Callable

    from oncekey.core.commands import Claim
    from oncekey.core.fingerprint import Parts
    from oncekey.core.outcome import Answer
    from oncekey.http.grammar import Dialect
    from oncekey.http.messages import Reply, Request

# Memory for one installation in one process, in bytes, and the most that one answer with its request may take of it.
ROOM = 8 << 20
LARGEST = 1 << 16
AROUND = 1024
HEADER = 200
_FORKED = threading.Lock()


class Entry:
    """One answer, to what request, and until when. The reply is made when it is first asked for."""

    __slots__ = ("id", "kept", "label", "parts", "reply", "size", "trace", "until")

    def __init__(self, claim: Claim, parts: Parts, kept: Answer, until: float) -> None:
        self.id = claim.id
        self.label = claim.label
        self.parts = parts
        self.kept = kept
        self.until = until
        heads = sum([len(name) + len(value) for name, value in kept.headers])
        asked = len(parts.path) + len(parts.query) + len(parts.content_type) + len(parts.body)
        # A reply has a list of headers of its own.
        self.size = AROUND + asked + heads + HEADER * len(kept.headers) + len(kept.body)
        self.reply: Reply | None = None
        # The request that ran the work, where requests are traced.
        running = TRACE.get()
        self.trace = running.here if running is not None else b""


class Recall:
    """The answers of one installation. When they need too much room, the oldest go first."""

    def __init__(self, dialect: Dialect, recall_for: float, room: int = ROOM) -> None:
        self._dialect = dialect
        # In seconds; a store in memory has a clock of its own, which tests may move.
        self.now: Callable[[], float] = time.monotonic
        self._recall_for = recall_for
        self._room = room
        # Ordered: a plain dict looks for its first entry among all that have gone before it.
        self._kept: OrderedDict[tuple[str, str], Entry] = OrderedDict()
        self._size = 0
        self._changing = threading.Lock()
        self._pid = os.getpid()

    def find(self, caller: str, key: str, request: Request) -> Reply | None:
        """The answer to the same request of the same caller, if it is here."""
        entry = self._kept.get((caller, key))
        if entry is None or entry.until <= self.now():
            return None
        method, path, query, content_type, body = entry.parts
        if request.body != body or request.path != path or request.method != method or request.query != query:
            return None
        if request.header(b"content-type") != content_type:
            return None
        reply = entry.reply
        if reply is None:
            reply = marked(self._dialect, entry.kept, key)
            reply.replays, reply.label = entry.id, entry.label
            entry.reply = reply  # last: another thread that sees it sees all of it
        if entry.trace and (replaying := TRACE.get()) is not None:
            replaying.link(entry.trace)
        return reply

    def keep(self, caller: str, claim: Claim, parts: Parts, kept: Answer, at: float) -> None:
        """Keep an answer that the store holds; `at` is when it was sent there, so that the record outlives this."""
        entry, place = Entry(claim, parts, kept, at + self._recall_for), (caller, claim.label.key)
        if entry.size > LARGEST:
            return
        if self._pid != os.getpid():
            self._begin_anew()
        with self._changing:
            entries, size = self._kept, self._size + entry.size
            if place in entries:
                size -= entries.pop(place).size
            entries[place] = entry
            while size > self._room:
                size -= entries.popitem(last=False)[1].size
            self._size = size

    def _begin_anew(self) -> None:
        """In a forked child: whoever held the lock at the fork will not let go of it here."""
        with _FORKED:
            if self._pid != os.getpid():
                self._changing = threading.Lock()
                self._pid = os.getpid()
