"""Counters that all processes of one service share: one small file per process, added up when somebody looks.

A file belongs to one process and is written through a memory map, so counting costs neither a call nor a lock between
processes. What a process counted stays when it is killed: no sum ever falls. Without a folder they are one process's.
"""

from __future__ import annotations

import mmap
import os
import threading
import weakref
from bisect import bisect_left
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from oncekey.telemetry.metrics import BY_EVENT, HISTOGRAMS, METRICS, Histogram, Metric, measured, misuse_of

if TYPE_CHECKING:
    from oncekey.engine.events import Event

# A cell is a whole number of this machine's; nobody else reads the files.
_BYTES = 8
_SUFFIX = ".counters"
# Sums of times are kept in whole microseconds, because whole numbers of several files add up exactly.
_PER_UNIT = 1_000_000
# Behind the metrics, each histogram has a cell for each bucket, one for what is above, and its sum.
_BEHIND = 2


class Observed(NamedTuple):
    """What a histogram has seen: how many in each bucket (the last has no bound), and their sum."""

    buckets: tuple[int, ...]
    total: float


class Counters:
    """One process's part of the counters in a folder. It is a sink: give it to an engine as it is."""

    def __init__(self, folder: Path | None = None, more: Iterable[Metric] = ()) -> None:
        self.folder = folder
        self.metrics = (*METRICS, *more)
        self._at = {metric: place for place, metric in enumerate(self.metrics)}
        self._by_event = {name: self._at[metric] for name, metric in BY_EVENT.items()}
        self._histograms_at: dict[Histogram, int] = {}
        self._size = len(self.metrics)
        for histogram in HISTOGRAMS:
            self._histograms_at[histogram] = self._size
            self._size += len(histogram.bounds) + _BEHIND
        self._open()
        _LIVE.add(self)

    def _open(self) -> None:
        """Begin at nothing. A process that was forked does so too: two that wrote to one file would lose counts."""
        self._lock = threading.Lock()
        size = self._size * _BYTES
        self._map = bytearray(size) if self.folder is None else _mapped(self.folder, size)
        self._cells = memoryview(self._map).cast("Q")

    def __call__(self, event: Event) -> None:
        """Count one event."""
        at = self._by_event.get(event.name)
        if at is None:
            return
        with self._lock:
            self._cells[at] += event.size
            if (misuse := misuse_of(event)) is not None:
                self._cells[self._at[misuse]] += 1
            for histogram, value in measured(event):
                self._observe(histogram, value)

    def add(self, metric: Metric, number: int = 1) -> None:
        """Count so many of something."""
        with self._lock:
            self._cells[self._at[metric]] += number

    def _observe(self, histogram: Histogram, value: float) -> None:
        at = self._histograms_at[histogram]
        self._cells[at + bisect_left(histogram.bounds, value)] += 1
        self._cells[at + len(histogram.bounds) + 1] += max(0, round(value * _PER_UNIT))

    def totals(self) -> dict[Metric, int]:
        """The sums over all processes, those that have ended too."""
        return dict(zip(self.metrics, self._sums(), strict=False))

    def observed(self) -> dict[Histogram, Observed]:
        """The same for times and sizes."""
        sums, found = self._sums(), {}
        for histogram, at in self._histograms_at.items():
            cells = sums[at : at + len(histogram.bounds) + _BEHIND]
            found[histogram] = Observed(tuple(cells[:-1]), cells[-1] / _PER_UNIT)
        return found

    def _sums(self) -> list[int]:
        if self.folder is None:
            return self._cells.tolist()
        sums = [0] * self._size
        for path in self.folder.glob(f"*{_SUFFIX}"):
            data = path.read_bytes()
            # One that is only just being made is empty, and has counted nothing.
            if len(data) == self._size * _BYTES:
                sums = [total + count for total, count in zip(sums, memoryview(data).cast("Q"), strict=True)]
        return sums

    def close(self) -> None:
        """Let go of the file; what was counted stays in it."""
        _LIVE.discard(self)
        self._cells.release()
        if isinstance(self._map, mmap.mmap):
            self._map.close()


_LIVE: weakref.WeakSet[Counters] = weakref.WeakSet()


def _forked() -> None:
    for counters in list(_LIVE):
        counters._open()  # noqa: SLF001 - the same module


os.register_at_fork(after_in_child=_forked)


def _mapped(folder: Path, size: int) -> mmap.mmap:
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{os.getpid()}-{os.urandom(4).hex()}{_SUFFIX}"
    with path.open("w+b") as file:
        file.truncate(size)
        return mmap.mmap(file.fileno(), size)
