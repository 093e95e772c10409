"""Stores on real servers, and second sessions that hold what a test needs held."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import psycopg
import pytest

from oncekey.stores.planned import PlannedStore
from oncekey.stores.postgres import open_sync

Session = psycopg.Connection[Any]


@pytest.fixture
def store(postgres_url: str) -> Iterator[PlannedStore]:
    """A store whose schema is there."""
    opened = open_sync(postgres_url, store_for=5.0)
    opened.migrate()
    yield opened
    opened.close()


@pytest.fixture
def session(postgres_url: str) -> Iterator[Session]:
    """Somebody else in the same database, in a transaction until it says otherwise."""
    with psycopg.connect(postgres_url) as connection:
        yield connection


@pytest.fixture
def watcher(postgres_url: str) -> Iterator[Session]:
    """A third session, which looks at the other two."""
    with psycopg.connect(postgres_url, autocommit=True) as connection:
        yield connection
