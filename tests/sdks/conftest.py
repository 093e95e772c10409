"""One demo for all SDKs, and a line to it for each test."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.demo.server import DemoServer
from tests.sdks.line import Line


@pytest.fixture(scope="session")
def demo() -> Iterator[DemoServer]:
    """Two workers on an SQLite file."""
    with DemoServer() as server:
        yield server


@pytest.fixture
def line(demo: DemoServer) -> Iterator[Line]:
    """A line to the demo."""
    with Line(demo.port) as between:
        yield between
