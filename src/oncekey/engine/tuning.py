"""How an engine uses its store."""

from __future__ import annotations

from typing import NamedTuple


class Tuning(NamedTuple):
    """`store_for` is the time budget of a store call in seconds; `lanes` batches of at most `batch` go at a time."""

    store_for: float = 5.0
    lanes: int = 2
    batch: int = 128
    waiting: int = 100


DEFAULT = Tuning()
