"""One demo for most tests."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.demo.server import DemoServer


@pytest.fixture(scope="session")
def demo() -> Iterator[DemoServer]:
    """Two workers on an SQLite file."""
    with DemoServer() as server:
        yield server
