"""What a database server spent of the processor, read from /proc: a candidate may not hide its work there."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from pathlib import Path


class Meter:
    """Processor time of some processes and their children, since the last start."""

    def __init__(self, pids: Callable[[], list[int]]) -> None:
        self._pids = pids
        self._before = 0.0

    def start(self) -> None:
        """From now on."""
        self._before = self._total()

    def spent(self, requests: int) -> float | None:
        """Microseconds per request since the start; None where there is no server."""
        return (self._total() - self._before) * 1e6 / requests if self._pids() else None

    def _total(self) -> float:
        return sum(map(seconds, self._pids()))


def seconds(pid: int) -> float:
    """What a living process and its living children have used, all threads, to the nanosecond."""
    total = 0
    with contextlib.suppress(OSError):
        for task in Path(f"/proc/{pid}/task").iterdir():
            total += int((task / "schedstat").read_text().split()[0])
    children = 0.0
    with contextlib.suppress(OSError):
        children = sum(seconds(int(child)) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split())
    return total / 1e9 + children
