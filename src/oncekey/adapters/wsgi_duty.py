"""What WSGI has no messages for: the store is checked before the first work, and work is waited for at the end."""

from __future__ import annotations

import atexit
import os
import threading
import time
import weakref
from typing import TYPE_CHECKING

from oncekey.engine.events import log
from oncekey.errors import OnceKeyError, StoreUnavailable
from oncekey.http.fitness import weigh

if TYPE_CHECKING:
    from oncekey.adapters.wsgi_work import Work
    from oncekey.engine.threaded import Engine

# How long work may run on at shutdown before it is recorded as unknown.
GRACE_FOR = 25.0
# A store that was not fit is looked at again after this long, not at every request.
RECHECK_FOR = 1.0
_FORKED = threading.Lock()


class Duty:
    """The readiness and the running work of one installation."""

    def __init__(self, engine: Engine, *, owned: bool) -> None:
        self._engine = engine
        self._owned = owned
        self._fit = False
        self._unfit: OnceKeyError | None = None
        self._again_at = 0.0
        self._ended = False
        self._running: set[Work] = set()
        # The process whose work this is. A fork takes a copy of the set along, but the work stays behind.
        self._pid = 0
        self._looking = threading.Lock()
        self._idle = threading.Condition()
        atexit.register(_at_exit, weakref.ref(self))

    def check(self) -> None:
        """Refuse a store that would lose or evict records."""
        self._ours()
        weigh(self._engine.store.check())
        self._fit = True

    def ready(self) -> None:
        """Raise unless the store is fit for work and we are not on our way out."""
        if self._ended:
            raise StoreUnavailable("this process is shutting down and takes no new work; nothing was run")
        self._ours()
        if not self._fit:
            with self._looking:
                self._look()

    def _ours(self) -> None:
        if self._pid != os.getpid():
            with _FORKED:
                if self._pid != os.getpid():
                    self._running, self._idle, self._looking = set(), threading.Condition(), threading.Lock()
                    self._pid = os.getpid()  # last: whoever sees it sees the others

    def _look(self) -> None:
        if self._fit:
            return
        if self._unfit is None or time.monotonic() >= self._again_at:
            try:
                self.check()
            except OnceKeyError as error:
                log.error("guarded requests are answered 503 until the store is fit: %s", error)
                self._unfit, self._again_at = error, time.monotonic() + RECHECK_FOR
            else:
                return
        raise StoreUnavailable(f"the store is not fit for use: {self._unfit}")

    def begins(self, work: Work) -> None:
        """This one runs."""
        with self._idle:
            self._running.add(work)

    def ends(self, work: Work) -> None:
        """It has ended."""
        with self._idle:
            self._running.discard(work)
            self._idle.notify_all()

    def end(self, grace_for: float) -> None:
        """Take no new work, wait for what runs, record the rest as unknown, let go of the store."""
        if self._ended or self._pid not in {0, os.getpid()}:
            return
        self._ended = True
        with self._idle:
            self._idle.wait_for(lambda: not self._running, grace_for)
            late = list(self._running)
        for work in late:
            try:
                work.abandon()
            except OnceKeyError as error:
                log.error("%s", error)
        if self._owned:
            self._engine.close()


def _at_exit(duty: weakref.ref[Duty]) -> None:
    found = duty()
    if found is not None:
        found.end(GRACE_FOR)
