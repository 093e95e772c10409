"""A store in memory with one operation of each kind, whose time a test moves, and somebody who looks at it."""

from __future__ import annotations

import pytest

from oncekey.stores.memory import MemoryStore
from oncekey.testing.clock import ManualClock
from tests.console.kit import Visitor, let_in
from tests.operations.filled import Made, fill


@pytest.fixture
def clock() -> ManualClock:
    """The clock of `store`."""
    return ManualClock()


@pytest.fixture
def store(clock: ManualClock) -> MemoryStore:
    """An empty store."""
    return MemoryStore(clock)


@pytest.fixture
def made(store: MemoryStore) -> dict[str, Made]:
    """One of each kind in it."""
    return fill(store)


@pytest.fixture
async def alice(store: MemoryStore) -> Visitor:
    """Somebody who has signed in."""
    return await let_in(store)
