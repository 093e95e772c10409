from __future__ import annotations

import uuid
from collections.abc import Iterator

import pytest
import redis

from oncekey.stores.contract import Store
from oncekey.stores.redis import open_sync


@pytest.fixture(params=["redis_url", "redis62_url", "valkey_url"])
def any_url(request: pytest.FixtureRequest) -> str:
    """A prefix of this test's own, on each server in turn."""
    url: str = request.getfixturevalue(request.param)
    return f"{url}?prefix={uuid.uuid4().hex[:7]}"


@pytest.fixture
def any_store(any_url: str) -> Iterator[Store]:
    """A store on each server in turn."""
    opened = open_sync(any_url, store_for=10.0)
    yield opened
    opened.close()


@pytest.fixture
def store(redis_url: str) -> Iterator[Store]:
    """A store on Redis, with the default prefix."""
    opened = open_sync(redis_url, store_for=10.0)
    yield opened
    opened.close()


@pytest.fixture
def client(redis_url: str) -> Iterator[redis.Redis]:
    """Somebody who looks into the same Redis."""
    with redis.Redis.from_url(redis_url) as opened:
        yield opened
