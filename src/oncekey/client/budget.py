"""A retry budget: what one process may add to the load of servers that are already in trouble."""

from __future__ import annotations

import threading

from oncekey.errors import ConfigurationError


class Budget:
    """A bucket of retries that all requests of a program share: each retry takes one out.

    A request that is answered at once puts a tenth back in, and time another one every `refill_for` seconds. So a
    busy program whose server is down retries a tenth of its requests, not each of them eight times. Waiting for an
    operation in flight costs nothing: that server is well.
    """

    def __init__(self, size: int = 100, *, earned: float = 0.1, refill_for: float = 10.0) -> None:
        if size < 1 or earned < 0 or refill_for <= 0:
            raise ConfigurationError("a budget needs a size of at least 1, earned of at least 0, refill_for above 0")
        self._size = size
        self._earned = earned
        self._refill_for = refill_for
        self._left = float(size)
        self._looked_at: float | None = None
        self._lock = threading.Lock()

    @property
    def left(self) -> float:
        """How many retries are left."""
        return self._left

    def earn(self) -> None:
        """A request was answered at once."""
        with self._lock:
            self._left = min(self._size, self._left + self._earned)

    def spend(self, now: float) -> bool:
        """Take one retry out, if there is one. `now` is a monotonic clock's time."""
        with self._lock:
            if self._looked_at is not None:
                self._left = min(self._size, self._left + max(0.0, now - self._looked_at) / self._refill_for)
            self._looked_at = now
            if self._left < 1:
                return False
            self._left -= 1
            return True
