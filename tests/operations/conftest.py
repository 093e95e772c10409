"""A store in memory whose time a test moves."""

from __future__ import annotations

import pytest

from oncekey.stores.memory import MemoryStore
from oncekey.testing.clock import ManualClock


@pytest.fixture
def clock() -> ManualClock:
    """The clock of `store`."""
    return ManualClock()


@pytest.fixture
def store(clock: ManualClock) -> MemoryStore:
    """An empty store."""
    return MemoryStore(clock)
