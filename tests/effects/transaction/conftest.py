from __future__ import annotations

import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.effects.transaction.shop import Shop
from tests.infra import PostgresServer


@pytest.fixture(scope="session")
def transaction_postgres(postgres_server: PostgresServer) -> Iterator[str]:
    """One database for all of these tests: making one takes longer than a test."""
    with postgres_server.new_database(f"transaction_{uuid.uuid4().hex}") as url:
        yield url


@pytest.fixture
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """The database for the `kind` that a test is run with; PostgreSQL where there is none."""
    kind = request.getfixturevalue("kind") if "kind" in request.fixturenames else None
    if kind is not None and kind.database == "sqlite":
        return f"sqlite:///{tmp_path}/app.db"
    found: str = request.getfixturevalue("transaction_postgres")
    return found


@pytest.fixture
def shop(url: str) -> Shop:
    """An installation, its tables empty."""
    made = Shop(url)
    made.empty()
    return made
