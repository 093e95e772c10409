from __future__ import annotations

import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.effects.transaction.shop import Shop
from tests.infra import PostgresServer


@pytest.fixture(scope="session")
def adapters_postgres(postgres_server: PostgresServer) -> Iterator[str]:
    """One database for all of these tests."""
    with postgres_server.new_database(f"adapters_{uuid.uuid4().hex}") as url:
        yield url


@pytest.fixture
def shop(request: pytest.FixtureRequest, tmp_path: Path) -> Shop:
    """Empty tables in the database of the `kind` that a test is run with; in PostgreSQL where there is none."""
    database = request.getfixturevalue("kind").database if "kind" in request.fixturenames else "postgresql"
    url = f"sqlite:///{tmp_path}/app.db" if database == "sqlite" else request.getfixturevalue("adapters_postgres")
    made = Shop(url)
    made.empty()
    return made
