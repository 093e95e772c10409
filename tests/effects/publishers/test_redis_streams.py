"""Messages go to Redis streams, and stay with the outbox while Redis is away."""

from __future__ import annotations

import asyncio
import signal
import subprocess
import sys
import textwrap
import uuid
from typing import Any

import orjson
import pytest
import redis

from oncekey.effects.brokers.publishers import open_publisher
from oncekey.effects.outbox import Outgoing, Relay, Report
from oncekey.errors import BrokerUnavailable, ConfigurationError, MessageRefused
from tests.conftest import started
from tests.effects.inbox.places import Place
from tests.effects.outbox.conftest import stage, store_of
from tests.infra import RedisServer

MESSAGE = Outgoing(str(uuid.uuid4()), "orders", b"\0body", {"trace": "x"}, "A-1", "OrderPlaced")

# Sends a batch and dies before it can mark it.
DYING = """
import asyncio, os, signal, sys
from oncekey.effects.brokers.publishers import open_publisher
from oncekey.effects.outbox import Pace, Relay

async def main():
    relay = Relay(sys.argv[1], open_publisher(sys.argv[2]), pace=Pace(lease_for=0.5))
    relay._settle = lambda *given: os.kill(os.getpid(), signal.SIGKILL)
    await relay.run_once()

asyncio.run(main())
"""


def entries(url: str, stream: str) -> list[dict[bytes, bytes]]:
    with redis.Redis.from_url(url) as client:
        found: Any = client.xrange(stream)
    return [fields for _, fields in found]


async def test_a_message_becomes_an_entry(redis_url: str) -> None:
    """With its id, and only with the fields that it has."""
    publisher = open_publisher(f"{redis_url}?maxlen=1000")
    await publisher.open()
    await publisher.publish(MESSAGE)
    await publisher.publish(Outgoing("2", "orders", b""))
    first, second = entries(redis_url, "orders")
    headers = orjson.loads(first.pop(b"headers"))
    assert (headers, second) == ({"trace": "x"}, {b"oncekey-id": b"2", b"body": b""})
    wanted = {b"oncekey-id": MESSAGE.id.encode(), b"body": b"\0body", b"key": b"A-1", b"type": b"OrderPlaced"}
    assert first == wanted
    await publisher.close()


async def test_a_key_that_is_no_stream_refuses_the_message(redis_url: str) -> None:
    """That is the message's fault, or its topic's: others may fare better."""
    with redis.Redis.from_url(redis_url) as client:
        client.set("orders", "text")
    publisher = open_publisher(redis_url)
    await publisher.open()
    with pytest.raises(MessageRefused, match="no stream"):
        await publisher.publish(MESSAGE)
    await publisher.close()


async def test_a_server_that_is_away_is_waited_for(sqlite: Place) -> None:
    """Killed and started again: the message arrives, and nothing was held against it."""
    with started(lambda: RedisServer(appendonly="yes")) as server:
        async with Relay(store_of(sqlite), open_publisher(server.url)) as relay:
            stage(sqlite, "one")
            assert (await relay.run_once()).sent == 1
            stage(sqlite, "two")
            server.kill()
            report = await relay.run_once()
            assert (report.untried, report.refused) == (1, 0)
            assert "cannot be reached" in report.trouble
            server.start()
            assert (await relay.run_once()).sent == 1
        assert [entry[b"body"] for entry in entries(server.url, "orders")] == [b"one", b"two"]


async def test_a_relay_killed_before_it_could_mark_sends_again(postgres: Place, redis_url: str) -> None:
    """A kill -9 between publishing and marking: the message comes twice, with the same id, and is not lost."""
    (id_,) = stage(postgres, "one")
    program = [sys.executable, "-c", textwrap.dedent(DYING), postgres.url, redis_url]
    assert await asyncio.to_thread(subprocess.call, program, timeout=60) == -signal.SIGKILL
    total = Report()
    async with Relay(postgres.url, open_publisher(redis_url)) as relay:
        while not total.sent:
            total += await relay.run_once()
    assert [entry[b"oncekey-id"] for entry in entries(redis_url, "orders")] == [id_.encode()] * 2


@pytest.mark.parametrize(
    ("url", "says"),
    [
        ("redis://", "names no host"),
        ("redis://h/orders", "database number"),
        ("redis://h?maxlen=0", "maxlen="),
        ("redis://h?maxlan=1", "did you mean maxlen=?"),
        ("redsi://user:secret@h", "did you mean redis:?"),
        ("orders", "must start with a broker's name"),
        ("redis://h:port", "is not a URL"),
    ],
)
def test_a_wrong_address_is_told_what_to_write(url: str, says: str) -> None:
    """Without showing what may be a password."""
    with pytest.raises(ConfigurationError) as told:
        open_publisher(url)
    assert says in str(told.value)
    assert "secret" not in str(told.value)


async def test_a_password_is_not_shown() -> None:
    """Not in what is said of a server that is away either."""
    publisher = open_publisher("redis://user:secret@127.0.0.1:1/0")
    with pytest.raises(BrokerUnavailable) as told:
        await publisher.open()
    assert "secret" not in str(told.value)
    assert "127.0.0.1:1" in str(told.value)
    await publisher.close()
