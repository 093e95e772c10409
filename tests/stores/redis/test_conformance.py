"""The shipped conformance suite on every server that we support, in both colours."""

from __future__ import annotations

import uuid
from typing import ClassVar

import pytest

from oncekey.stores.planned import AsyncPlannedStore, PlannedStore
from oncekey.stores.redis import open_async, open_sync
from oncekey.testing import StoreConformance


class OwnPrefix(StoreConformance):
    """Each scenario gets a prefix of its own on the shared server."""

    fixture: ClassVar[str]

    @pytest.fixture(autouse=True)
    def _new_prefix(self, request: pytest.FixtureRequest) -> None:
        url: str = request.getfixturevalue(self.fixture)
        self.url = f"{url}?prefix={uuid.uuid4().hex}"


class Sync(OwnPrefix):
    """Under threads."""

    def open(self) -> PlannedStore:
        """One more client of the same records."""
        return open_sync(self.url, store_for=10.0)


class Async(OwnPrefix):
    """Under asyncio."""

    def open(self) -> AsyncPlannedStore:
        """One more client of the same records."""
        return open_async(self.url, store_for=10.0)


class TestRedisSync(Sync):
    """Redis 7."""

    fixture = "redis_url"


class TestRedisAsync(Async):
    """Redis 7."""

    fixture = "redis_url"


class TestRedis62Sync(Sync):
    """The oldest that we support."""

    fixture = "redis62_url"


class TestValkeySync(Sync):
    """Valkey."""

    fixture = "valkey_url"


class TestValkeyAsync(Async):
    """Valkey."""

    fixture = "valkey_url"
