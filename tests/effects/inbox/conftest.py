from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from oncekey.effects.inbox import Inbox
from tests.effects.inbox.places import Place, postgres_place, sqlite_place
from tests.infra import PostgresServer


@pytest.fixture(scope="session")
def inbox_postgres(postgres_server: PostgresServer) -> Iterator[str]:
    """One database for all tests of the inbox: making one takes longer than a test."""
    with postgres_server.new_database(f"inbox_{uuid.uuid4().hex}") as url:
        yield url


@pytest.fixture(params=["sqlite", "postgres"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Place:
    """A database with an empty table of shipments."""
    if request.param == "sqlite":
        return sqlite_place(tmp_path / "shop.db")
    return postgres_place(request.getfixturevalue("inbox_postgres"))


@pytest.fixture
def postgres(inbox_postgres: str) -> Place:
    """The same, on PostgreSQL only."""
    return postgres_place(inbox_postgres)


@pytest.fixture
def make(place: Place) -> Callable[..., Inbox]:
    """Make an inbox in that database."""

    def made(**chosen: Any) -> Inbox:
        inbox = Inbox(place.connect, **{"redelivery_for": 60} | chosen)
        inbox.migrate()
        return inbox

    return made
