"""Messages go to JetStream, whose own dedup sees their ids."""

from __future__ import annotations

import asyncio
import uuid
from typing import Any

import nats
import pytest

from oncekey.effects.brokers.publishers import open_publisher
from oncekey.effects.outbox import Outgoing, Relay
from oncekey.errors import BrokerUnavailable, ConfigurationError, MessageRefused
from tests.conftest import started
from tests.effects.inbox.places import Place
from tests.effects.outbox.conftest import stage, store_of
from tests.infra import NatsServer


async def add_stream(url: str, name: str) -> None:
    client = await nats.connect(url)
    await client.jetstream().add_stream(name=name, subjects=[name])
    await client.close()


async def kept(url: str, name: str) -> list[Any]:
    """All messages of a stream."""
    client = await nats.connect(url)
    stream = client.jetstream()
    count = (await stream.stream_info(name)).state.messages
    found = [await stream.get_msg(name, number) for number in range(1, count + 1)]
    await client.close()
    return found


async def test_the_stream_keeps_one_of_those_that_come_twice(nats_server: NatsServer) -> None:
    """It knows them by Nats-Msg-Id, and both are confirmed."""
    name = uuid.uuid4().hex
    await add_stream(nats_server.url, name)
    publisher = open_publisher(nats_server.url)
    await publisher.open()
    message = Outgoing("id-1", name, b"\0body", {"trace": "x"}, "A-1", "Placed")
    await publisher.publish(message)
    await publisher.publish(message)
    await publisher.close()
    (found,) = await kept(nats_server.url, name)
    wanted = {"trace": "x", "oncekey-id": "id-1", "Nats-Msg-Id": "id-1", "oncekey-key": "A-1", "oncekey-type": "Placed"}
    assert (found.data, found.headers) == (b"\0body", wanted)


async def test_a_subject_without_a_stream_refuses_the_message(nats_server: NatsServer) -> None:
    """Plain NATS would drop it. What cannot be a subject at all is refused for good."""
    publisher = open_publisher(nats_server.url)
    await publisher.open()
    with pytest.raises(MessageRefused, match="no stream has the subject"):
        await publisher.publish(Outgoing("1", uuid.uuid4().hex, b""))
    with pytest.raises(MessageRefused, match="space"):
        await publisher.publish(Outgoing("1", "a b", b""))
    with pytest.raises(MessageRefused, match="cannot carry"):
        await publisher.publish(Outgoing("1", "a", b"x" * 2_000_000))
    await publisher.close()


async def test_a_server_that_is_away_is_waited_for(sqlite: Place) -> None:
    """Killed and started again: all messages arrive."""
    with started(NatsServer) as server:
        await add_stream(server.url, "orders")
        async with Relay(store_of(sqlite), open_publisher(server.url)) as relay:
            stage(sqlite, "one")
            assert (await relay.run_once()).sent == 1
            stage(sqlite, "two")
            server.kill()
            report = await relay.run_once()
            assert (report.untried, report.refused) == (1, 0)
            assert report.trouble
            server.start()
            while not (await relay.run_once()).sent:
                await asyncio.sleep(0.05)
        assert [message.data for message in await kept(server.url, "orders")] == [b"one", b"two"]


async def test_a_wrong_address_is_told() -> None:
    """Without what may be a password."""
    with pytest.raises(ConfigurationError, match="names no host"):
        open_publisher("nats://")
    publisher = open_publisher("nats://user:secret@127.0.0.1:1")
    with pytest.raises(BrokerUnavailable) as told:
        await publisher.open()
    assert "secret" not in str(told.value)
