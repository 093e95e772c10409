"""Records in Redis or Valkey: one key each, all hot work in scripts that run where the data is.

What Redis can lose, it can lose: see the findings of `check`, and docs/stores/redis.md.
"""

from __future__ import annotations

from oncekey.stores.planned import PlannedStore
from oncekey.stores.posting import PostingStore
from oncekey.stores.redis.address import parse
from oncekey.stores.redis.plan import RedisPlan
from oncekey.stores.redis.wire import RedisWire
from oncekey.stores.redis.wire_async import AsyncRedisWire


def open_sync(url: str, *, store_for: float) -> PlannedStore:
    """The store for threads. Nothing is contacted before the first verb."""
    address = parse(url, store_for)
    return PlannedStore(url, RedisPlan(address.prefix, scopes=address.scopes), RedisWire(address, store_for))


def open_async(url: str, *, store_for: float) -> PostingStore:
    """The store for asyncio. Nothing is contacted before the first verb."""
    address = parse(url, store_for)
    return PostingStore(url, RedisPlan(address.prefix, scopes=address.scopes), AsyncRedisWire(address, store_for))
