"""A clock that moves when it is told to, for the stores that take one (`MemoryStore(clock)`, SQLite's `clock=`)."""

from __future__ import annotations

import threading

# Any day will do, as long as it is not the epoch itself: 0 stands for "no such time" in stored records.
START = 1_700_000_000_000


class ManualClock:
    """Milliseconds since the epoch; call it to read it. It never moves by itself and never goes back."""

    def __init__(self, start: int = START) -> None:
        self._now = start
        self._lock = threading.Lock()

    def __call__(self) -> int:
        return self._now

    def advance(self, milliseconds: int) -> int:
        """Let time pass, and return the new time."""
        if milliseconds < 0:
            raise ValueError(f"a clock cannot be advanced by {milliseconds} ms: write a number of 0 or more")
        with self._lock:
            self._now += milliseconds
            return self._now

    def reach(self, instant: int) -> int:
        """Let time pass until this instant; it may have passed already."""
        with self._lock:
            self._now = max(self._now, instant)
            return self._now


__all__ = ["START", "ManualClock"]
