from __future__ import annotations

from pathlib import Path

import pytest

from oncekey.stores.open import open_store


@pytest.fixture(params=["sqlite", "postgres", "redis"])
def store_url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """A store of each kind, migrated; Valkey runs Redis' scripts."""
    name = request.param
    url: str = f"sqlite:///{tmp_path / 'once.db'}" if name == "sqlite" else request.getfixturevalue(f"{name}_url")
    store = open_store(url)
    store.migrate()
    store.close()
    return url
