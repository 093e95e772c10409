"""Messages go to Kafka; librdkafka's mock cluster shows what our client does, not what a broker keeps."""

from __future__ import annotations

import asyncio
import uuid

import pytest
from confluent_kafka import Consumer, Message

from oncekey.effects.brokers.publishers import kafka, open_publisher
from oncekey.effects.outbox import Outgoing
from oncekey.errors import BrokerUnavailable, ConfigurationError, MessageRefused
from tests.conftest import started
from tests.infra import KafkaMock


def consumed(bootstrap: str, topic: str, count: int) -> list[Message]:
    settings = {"bootstrap.servers": bootstrap, "group.id": topic, "auto.offset.reset": "earliest"}
    consumer = Consumer(settings)
    consumer.subscribe([topic])
    found = [consumer.poll(20) for _ in range(count)]
    consumer.close()
    return [message for message in found if message is not None]


async def test_messages_arrive_with_their_ids_in_the_order_of_their_key(kafka_mock: KafkaMock) -> None:
    """One key is one partition; the id is a header."""
    topic = uuid.uuid4().hex
    publisher = open_publisher(kafka_mock.url)
    await publisher.open()
    for number in range(3):
        await publisher.publish(Outgoing(str(number), topic, b"\0body", {"trace": "x"}, "A-1", "Placed"))
    await publisher.close()
    found = await asyncio.to_thread(consumed, kafka_mock.bootstrap, topic, 3)
    assert [(message.key(), message.value()) for message in found] == [(b"A-1", b"\0body")] * 3
    assert [dict(message.headers() or [])["oncekey-id"] for message in found] == [b"0", b"1", b"2"]
    assert dict(found[0].headers() or [])["oncekey-type"] == b"Placed"


async def test_many_at_once_are_each_confirmed(kafka_mock: KafkaMock) -> None:
    """Confirmations come in another thread, and find whoever waits."""
    topic = uuid.uuid4().hex
    publisher = open_publisher(kafka_mock.url)
    await publisher.open()
    await asyncio.gather(*(publisher.publish(Outgoing(str(number), topic, b"")) for number in range(200)))
    await publisher.close()
    assert len(await asyncio.to_thread(consumed, kafka_mock.bootstrap, topic, 200)) == 200


async def test_what_is_too_large_is_refused_for_good(kafka_mock: KafkaMock) -> None:
    """The producer knows without asking."""
    publisher = open_publisher(f"{kafka_mock.url}?message.max.bytes=2000")
    await publisher.open()
    with pytest.raises(MessageRefused) as told:
        await publisher.publish(Outgoing("1", "orders", b"x" * 5000))
    assert told.value.final
    await publisher.close()


async def test_a_cluster_that_is_away_is_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """At the start, and when it goes away later."""
    monkeypatch.setattr(kafka, "REACHED_WITHIN", 0.5)
    publisher = open_publisher("kafka://127.0.0.1:1")
    with pytest.raises(BrokerUnavailable, match="is it running"):
        await publisher.open()
    with started(KafkaMock) as server:
        publisher = open_publisher(f"{server.url}?message.timeout.ms=1000")
        await publisher.open()
        await publisher.publish(Outgoing("1", "orders", b"one"))
        server.kill()
        with pytest.raises(BrokerUnavailable):
            await publisher.publish(Outgoing("2", "orders", b"two"))
        await publisher.close()


@pytest.mark.parametrize(
    ("url", "says"),
    [
        ("kafka://", "write the broker's address"),
        ("kafka://user:secret@h:9092", "user and password are options"),
        ("kafka://h:9092?acks=1", "acks= cannot be chosen"),
        ("kafka://h:port", "is not a URL"),
    ],
)
async def test_a_wrong_address_is_told(url: str, says: str) -> None:
    """Without what may be a password."""
    with pytest.raises(ConfigurationError) as told:
        open_publisher(url)
    assert says in str(told.value)
    assert "secret" not in str(told.value)


async def test_an_option_that_librdkafka_does_not_know_is_told() -> None:
    """In its own words."""
    with pytest.raises(ConfigurationError, match="librdkafka does not take"):
        await open_publisher("kafka://h:9092?no.such=1").open()
