from __future__ import annotations

import uuid
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import pytest

from oncekey.effects.outbox import Outbox, Pace, Relay
from tests.effects.inbox.places import Place, postgres_place, sqlite_place
from tests.effects.outbox.brokers import Shelf
from tests.infra import PostgresServer

Make = Callable[..., Relay]


@pytest.fixture(scope="session")
def outbox_postgres(postgres_server: PostgresServer) -> Iterator[str]:
    """One database for all tests of the outbox: making one takes longer than a test."""
    with postgres_server.new_database(f"outbox_{uuid.uuid4().hex}") as url:
        yield url


@pytest.fixture(params=["sqlite", "postgres"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Place:
    """A database with an empty outbox."""
    if request.param == "sqlite":
        return with_outbox(sqlite_place(tmp_path / "shop.db"))
    return with_outbox(postgres_place(request.getfixturevalue("outbox_postgres")))


@pytest.fixture
def postgres(outbox_postgres: str) -> Place:
    """The same, on PostgreSQL only."""
    return with_outbox(postgres_place(outbox_postgres))


@pytest.fixture
def sqlite(tmp_path: Path) -> Place:
    """The same, on SQLite only."""
    return with_outbox(sqlite_place(tmp_path / "shop.db"))


def with_outbox(place: Place) -> Place:
    with place.connect() as connection:
        Outbox().migrate(connection)
    return place


def store_of(place: Place) -> str:
    """The store's URL of a place."""
    return place.url if place.url.startswith("postgresql") else f"sqlite:///{place.url}"


@pytest.fixture
def shelf() -> Shelf:
    return Shelf()


@pytest.fixture
async def relay_on(shelf: Shelf) -> AsyncIterator[Make]:
    """Make a relay from a place to a publisher, closed in the end."""
    async with AsyncExitStack() as stack:

        def made(place: Place, publisher: Any = shelf, **chosen: Any) -> Relay:
            pace = Pace(**chosen.pop("pace", {}))
            relay = Relay(store_of(place), publisher, pace=pace, **chosen)
            stack.push_async_exit(relay)
            return relay

        yield made


def stage(place: Place, *bodies: str, topic: str = "orders", key: str | None = None) -> list[str]:
    """Stage messages, each in a transaction of its own."""
    ids = []
    for body in bodies:
        with place.connect() as connection:
            ids.append(Outbox().stage(connection, topic, body, key=key))
            connection.commit()
    return ids
