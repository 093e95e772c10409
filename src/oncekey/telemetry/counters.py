"""Counters that all processes of one service share: one small file per process, added up when somebody looks.

A file belongs to one process and is written through a memory map, so counting costs neither a call nor a lock between
processes. What a process counted stays when it is killed: no sum ever falls. Without a folder they are one process's.
"""

from __future__ import annotations

import mmap
import os
import struct
import threading
import weakref
from bisect import bisect_left
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from oncekey.telemetry.metrics import HISTOGRAMS, METRICS, Histogram, Metric, counted, measured

if TYPE_CHECKING:
    from oncekey.engine.events import Event

_COUNT = struct.Struct("<Q")
_SUFFIX = ".counters"
# Sums of times are kept in whole microseconds, because whole numbers of several files add up exactly.
_PER_UNIT = 1_000_000
# Behind the metrics that are asked for, each histogram has a cell for each bucket, one for what is above, and its sum.
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
        self._at = {metric: place * _COUNT.size for place, metric in enumerate(self.metrics)}
        self._histograms_at: dict[Histogram, int] = {}
        end = len(self.metrics) * _COUNT.size
        for histogram in HISTOGRAMS:
            self._histograms_at[histogram] = end
            end += (len(histogram.bounds) + _BEHIND) * _COUNT.size
        self._size = end
        self._open()
        _LIVE.add(self)

    def _open(self) -> None:
        """Begin at nothing. A process that was forked does so too: two that wrote to one file would lose counts."""
        self._lock = threading.Lock()
        self._map = bytearray(self._size) if self.folder is None else _mapped(self.folder, self._size)

    def __call__(self, event: Event) -> None:
        """Count one event."""
        for metric in counted(event):
            self.add(metric, event.size)
        for histogram, value in measured(event):
            self.observe(histogram, value)

    def add(self, metric: Metric, number: int = 1) -> None:
        """Count so many of something."""
        with self._lock:
            self._add(self._at[metric], number)

    def observe(self, histogram: Histogram, value: float) -> None:
        """Note one time, or one size."""
        at, bucket = self._histograms_at[histogram], bisect_left(histogram.bounds, value)
        with self._lock:
            self._add(at + bucket * _COUNT.size, 1)
            self._add(at + (len(histogram.bounds) + 1) * _COUNT.size, max(0, round(value * _PER_UNIT)))

    def _add(self, at: int, number: int) -> None:
        (before,) = _COUNT.unpack_from(self._map, at)
        _COUNT.pack_into(self._map, at, before + number)

    def totals(self) -> dict[Metric, int]:
        """The sums over all processes, those that have ended too."""
        return dict(zip(self.metrics, self._sums(), strict=False))

    def observed(self) -> dict[Histogram, Observed]:
        """The same for times and sizes."""
        sums, found = self._sums(), {}
        for histogram, at in self._histograms_at.items():
            cells = sums[at // _COUNT.size :][: len(histogram.bounds) + _BEHIND]
            found[histogram] = Observed(tuple(cells[:-1]), cells[-1] / _PER_UNIT)
        return found

    def _sums(self) -> list[int]:
        if self.folder is None:
            return [count for (count,) in _COUNT.iter_unpack(bytes(self._map))]
        sums = [0] * (self._size // _COUNT.size)
        for path in self.folder.glob(f"*{_SUFFIX}"):
            data = path.read_bytes()
            # One that is only just being made is empty, and has counted nothing.
            if len(data) == self._size:
                sums = [total + count for total, (count,) in zip(sums, _COUNT.iter_unpack(data), strict=True)]
        return sums

    def close(self) -> None:
        """Let go of the file; what was counted stays in it."""
        _LIVE.discard(self)
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
