"""An empty database of each sort."""

from __future__ import annotations

from pathlib import Path

import pytest


@pytest.fixture
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """The database for the `kind` that a test is run with."""
    if request.getfixturevalue("kind").database == "sqlite":
        return f"sqlite:///{tmp_path}/app.db"
    found: str = request.getfixturevalue("postgres_url")
    return found
