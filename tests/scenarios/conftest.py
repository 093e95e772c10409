"""The stores that several processes share, by URL, with their schema in place."""

from __future__ import annotations

from pathlib import Path

import pytest

from oncekey.stores.open import open_store

SERVERS = ("sqlite", "postgres", "redis", "valkey")


@pytest.fixture(params=SERVERS)
def store_url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """A store of this test's own, migrated."""
    name = request.param
    url: str = f"sqlite:///{tmp_path / 'once.db'}" if name == "sqlite" else request.getfixturevalue(f"{name}_url")
    store = open_store(url)
    store.migrate()
    store.close()
    return url
