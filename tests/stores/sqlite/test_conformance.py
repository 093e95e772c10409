"""The shipped conformance suite on this store, in both colours."""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import ClassVar

import pytest

from oncekey.stores.planned import AsyncPlannedStore, PlannedStore
from oncekey.stores.sqlite import open_async, open_sync
from oncekey.testing import ManualClock, StoreConformance

FILES = itertools.count()


class OwnFile(StoreConformance):
    """Each scenario gets a file of its own."""

    clock: ClassVar[ManualClock] = ManualClock()

    @pytest.fixture(autouse=True)
    def _new_file(self, tmp_path: Path) -> None:
        self.url = f"sqlite:///{tmp_path}/{next(FILES)}.db"


class TestSync(OwnFile):
    """Under threads."""

    def open(self) -> PlannedStore:
        """One more client of the same file."""
        return open_sync(self.url, store_for=5.0, clock=self.clock)


class TestAsync(OwnFile):
    """Under asyncio."""

    def open(self) -> AsyncPlannedStore:
        """One more client of the same file."""
        return open_async(self.url, store_for=5.0, clock=self.clock)
