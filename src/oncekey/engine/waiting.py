"""Duplicates that are held until the first answer is there: bounded in number, woken by notification."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable
from typing import TYPE_CHECKING

from oncekey.stores.contract import MISSED

if TYPE_CHECKING:
    from oncekey.stores.contract import Listener

Wake = Callable[[], None]


class Waiting:
    """Who waits for which record in this process. `told` may be called from any thread."""

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self.listener: Listener | None = None
        self._wakers: dict[bytes, list[Wake]] = {}
        self._count = 0
        self._lock = threading.Lock()

    def enter(self) -> bool:
        """Take one of the places; False when all are taken."""
        with self._lock:
            if self._count >= self.limit:
                return False
            self._count += 1
            return True

    def leave(self) -> None:
        """Give the place back."""
        with self._lock:
            self._count -= 1

    def add(self, id_: bytes, wake: Wake) -> None:
        """Call `wake` when this record is told of."""
        with self._lock:
            self._wakers.setdefault(id_, []).append(wake)

    def remove(self, id_: bytes, wake: Wake) -> None:
        """No longer."""
        with self._lock:
            wakers = self._wakers.get(id_, [])
            if wake in wakers:
                wakers.remove(wake)
            if not wakers:
                self._wakers.pop(id_, None)

    def told(self, id_: bytes) -> None:
        """The record has changed: wake whoever waits for it. MISSED: any may have changed, so wake all."""
        if not self._wakers:
            return
        with self._lock:
            if id_ == MISSED:
                wakers = [wake for waiting in self._wakers.values() for wake in waiting]
                self._wakers.clear()
            else:
                wakers = self._wakers.pop(id_, [])
        for wake in wakers:
            with contextlib.suppress(RuntimeError):  # that waiter's event loop is closed
                wake()

    def close(self) -> None:
        """End the subscription."""
        if self.listener is not None:
            self.listener.close()
            self.listener = None
