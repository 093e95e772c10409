"""A store on a new file with a clock that stands still, and short ways to make commands."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from oncekey.stores.planned import PlannedStore
from oncekey.stores.sqlite import open_sync
from oncekey.testing import ManualClock


@pytest.fixture
def clock() -> ManualClock:
    """The store's clock."""
    return ManualClock()


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """Where the store's file is, or will be."""
    return tmp_path / "oncekey.db"


@pytest.fixture
def store(path: Path, clock: ManualClock) -> Iterator[PlannedStore]:
    """An open store."""
    store = open_sync(f"sqlite:///{path}", store_for=5.0, clock=clock)
    yield store
    store.close()


@pytest.fixture
def other(path: Path, clock: ManualClock) -> Iterator[PlannedStore]:
    """A second client of the same file, as another process would be."""
    other = open_sync(f"sqlite:///{path}", store_for=0.3, clock=clock)
    yield other
    other.close()
