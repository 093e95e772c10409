"""Counters that all processes of one service share: one small file per process, added up when somebody looks.

A file belongs to one process and is written through a memory map, so counting costs neither a call nor a lock between
processes. What a process counted stays when it is killed: no sum ever falls.
"""

from __future__ import annotations

import mmap
import os
import struct
import threading
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING

from oncekey.telemetry.metrics import BY_EVENT, METRICS, Metric

if TYPE_CHECKING:
    from oncekey.engine.events import Event

_COUNT = struct.Struct("<Q")
_SUFFIX = ".counters"


class Counters:
    """One process's part of the counters in a folder. It is a sink: give it to an engine as it is."""

    def __init__(self, folder: Path, more: Iterable[Metric] = ()) -> None:
        self.folder = folder
        self.metrics = (*METRICS, *more)
        self._at = {metric: place * _COUNT.size for place, metric in enumerate(self.metrics)}
        self._size = len(self.metrics) * _COUNT.size
        self._lock = threading.Lock()
        folder.mkdir(parents=True, exist_ok=True)
        path = folder / f"{os.getpid()}-{os.urandom(4).hex()}{_SUFFIX}"
        with path.open("w+b") as file:
            file.truncate(self._size)
            self._map = mmap.mmap(file.fileno(), self._size)

    def __call__(self, event: Event) -> None:
        """Count one event."""
        metric = BY_EVENT.get(event.name)
        if metric is not None:
            self.add(metric)

    def add(self, metric: Metric, number: int = 1) -> None:
        """Count so many of something."""
        at = self._at[metric]
        with self._lock:
            (before,) = _COUNT.unpack_from(self._map, at)
            _COUNT.pack_into(self._map, at, before + number)

    def totals(self) -> dict[Metric, int]:
        """The sums over all processes, those that have ended too."""
        sums = [0] * len(self.metrics)
        for path in self.folder.glob(f"*{_SUFFIX}"):
            data = path.read_bytes()
            # One that is only just being made is empty, and has counted nothing.
            if len(data) == self._size:
                sums = [total + count for total, (count,) in zip(sums, _COUNT.iter_unpack(data), strict=True)]
        return dict(zip(self.metrics, sums, strict=True))

    def close(self) -> None:
        """Let go of the file; what was counted stays in it."""
        self._map.close()
