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
from typing import TYPE_CHECKING, cast

from oncekey.core.outcome import unpack
from oncekey.core.record import Label
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
_FORKED = threading.Lock()


# Until when, its size, the record, its scope and endpoint, the trace of the request that ran the work; what was asked:
# method, path, query, content type, body; and what was told, packed. A plain tuple of bytes and texts, because the
# garbage collector leaves that alone after its first look: objects it would walk through in every round, as many as
# there are answers here.
Entry = tuple[float, int, bytes, str, str, bytes, str, str, bytes, bytes, bytes, bytes]


def entry_of(claim: Claim, parts: Parts, told: bytes, until: float) -> Entry:
    """A packed answer, to what request, and until when."""
    method, path, query, content_type, body = parts
    size = AROUND + len(path) + len(query) + len(content_type) + len(body) + len(told)
    running = TRACE.get()
    trace = running.here if running is not None else b""
    scope, endpoint, _ = claim.label
    return (until, size, claim.id, scope, endpoint, trace, method, path, query, content_type, body, told)


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
        if entry is None or entry[0] <= self.now():
            return None
        _, _, id_, scope, endpoint, trace, method, path, query, content_type, body, told = entry
        if request.body != body or request.path != path or request.method != method or request.query != query:
            return None
        if request.header(b"content-type") != content_type:
            return None
        if trace and (replaying := TRACE.get()) is not None:
            replaying.link(trace)
        reply = marked(self._dialect, cast("Answer", unpack(told)), key)
        reply.replays, reply.label = id_, Label(scope, endpoint, key)
        return reply

    def keep(self, caller: str, claim: Claim, parts: Parts, told: bytes, at: float) -> None:
        """Keep a packed answer that the store holds; `at` is when it was sent there, so the record outlives it."""
        entry, place = entry_of(claim, parts, told, at + self._recall_for), (caller, claim.label.key)
        if entry[1] > LARGEST:
            return
        if self._pid != os.getpid():
            self._begin_anew()
        with self._changing:
            entries, size = self._kept, self._size + entry[1]
            if place in entries:
                size -= entries.pop(place)[1]
            entries[place] = entry
            while size > self._room:
                size -= entries.popitem(last=False)[1][1]
            self._size = size

    def _begin_anew(self) -> None:
        """In a forked child: whoever held the lock at the fork will not let go of it here."""
        with _FORKED:
            if self._pid != os.getpid():
                self._changing = threading.Lock()
                self._pid = os.getpid()
