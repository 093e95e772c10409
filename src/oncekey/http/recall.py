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

# Until when, its size; method, path, query, content type and body of the request; id, scope and endpoint of the record,
# the trace of the work; the answer, packed. One flat tuple of texts, bytes and numbers: the garbage collector lets go
# of those, and thousands of objects that it looked at again and again cost a first request a tenth of its time.
Entry = tuple[float, int, str, str, bytes, bytes, bytes, bytes, str, str, bytes, bytes]


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
        if entry is None:
            return None
        until, _, method, path, query, content_type, body, id_, scope, endpoint, trace, told = entry
        if until <= self.now():
            return None
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
        """Keep a packed answer that the store holds; `at` is when it was sent there: the record outlives this."""
        _, path, query, content_type, body = parts
        size = AROUND + len(path) + len(query) + len(content_type) + len(body) + len(told)
        if size > LARGEST:
            return
        if self._pid != os.getpid():
            self._begin_anew()
        # The request that ran the work, where requests are traced.
        running = TRACE.get()
        trace = running.here if running is not None else b""
        label, until = claim.label, at + self._recall_for
        owner = caller, label.key
        entry = (until, size, *parts, claim.id, label.scope, label.endpoint, trace, told)
        with self._changing:
            entries = self._kept
            former = entries.pop(owner, None)
            entries[owner] = entry
            self._size += size - (former[1] if former is not None else 0)
            while self._size > self._room:
                self._size -= entries.popitem(last=False)[1][1]

    def _begin_anew(self) -> None:
        """In a forked child: whoever held the lock at the fork will not let go of it here."""
        with _FORKED:
            if self._pid != os.getpid():
                self._changing = threading.Lock()
                self._pid = os.getpid()
