"""The store under test, from the table in tests.contract.stores."""

from __future__ import annotations

import uuid
from collections.abc import Iterator

import pytest

from oncekey.stores.open import open_store
from tests.contract.stores import STORES, Subject
from tests.infra import PostgresServer


@pytest.fixture(scope="session")
def contract_postgres_url(postgres_server: PostgresServer) -> Iterator[str]:
    """A database with the schema, shared by the tests of this folder."""
    with postgres_server.new_database(f"contract_{uuid.uuid4().hex}") as url:
        store = open_store(url)
        store.migrate()
        store.close()
        yield url


@pytest.fixture
def subject(request: pytest.FixtureRequest, store: str, colour: str) -> Subject:
    """The store that the test's parameters `store` and `colour` name."""
    assert colour in {"sync", "async"}
    return STORES[store](request, "sync" if colour == "sync" else "async")
