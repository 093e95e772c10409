"""The consumers of Redis streams, on a real server, under threads and asyncio."""

from __future__ import annotations

import time
from pathlib import Path
from typing import ClassVar

import pytest
import redis

from oncekey.effects.brokers.consumers.redis import RedisConsumer, _unpacked
from oncekey.effects.brokers.publishers.open import open_publisher
from oncekey.effects.link import drive
from oncekey.effects.outbox.message import Outgoing
from oncekey.errors import RedeliverLater
from tests.effects.brokers.rig_redis import RedisRig
from tests.effects.brokers.running import running, shop, until
from tests.effects.brokers.scenarios import LapsingConsumer
from tests.infra import RedisServer


@pytest.fixture
def address(redis_server: RedisServer) -> str:
    return redis_server.url


class TestRedis(LapsingConsumer):
    """Every scenario under threads."""

    name: ClassVar[str] = "redis"


class TestAsyncRedis(LapsingConsumer):
    """And under asyncio."""

    name: ClassVar[str] = "async redis"


@pytest.mark.parametrize("protocol", [2, 3])
async def test_what_the_outbox_sends_is_read(redis_url: str, tmp_path: Path, protocol: int) -> None:
    """Its fields are the message's id, body, key, and headers, whatever protocol the client speaks."""
    relay = open_publisher(redis_url)
    await relay.open()
    await relay.publish(Outgoing("m-1", "orders", b'{"n": 1}', {"kind": "test"}, "k", "placed"))
    await relay.close()
    client = redis.Redis.from_url(redis_url, protocol=protocol)
    consumer = RedisConsumer(shop(tmp_path).handler, client, "orders", "workers")
    consumer.open()
    (received,) = drive(consumer.receive())
    client.close()
    found = received.message
    assert (found.id, found.body, found.key) == ("m-1", b'{"n": 1}', "k")
    assert found.headers == {"oncekey-id": "m-1", "type": "placed", "kind": "test"}
    assert abs((found.sent_at or 0) - time.time()) < 3600
    assert not found.redelivered


async def test_a_member_that_leaves_takes_nothing_with_it(redis_url: str, tmp_path: Path) -> None:
    """Its name is removed when it has acknowledged everything, and kept while it has not."""
    ours = shop(tmp_path)
    ours.failing = {"1": RedeliverLater("closed", 60)}
    client = redis.Redis.from_url(redis_url)
    made = RedisRig(redis_url, "orders")
    await made.publish(["1"])
    async with running(RedisConsumer(ours.handler, client, "orders", "workers", idle_for=0.2)):
        await until(lambda: ours.seen)
    assert len(client.xinfo_consumers("orders", "workers")) == 1
    ours.failing.clear()
    async with running(made.consumer(ours.handler)):
        await until(lambda: ours.shipped == ["1"])
    assert len(client.xinfo_consumers("orders", "workers")) == 1
    assert await made.left() == 0
    client.close()


def test_a_foreign_field_named_headers_is_a_header() -> None:
    """Only what the outbox packs is unpacked."""
    assert [_unpacked(value) for value in (None, b"{", b"[1]", b'{"a": "b"}')] == [
        {},
        {"headers": "{"},
        {"headers": "[1]"},
        {"a": "b"},
    ]
