"""Messages go to RabbitMQ with confirms, and none is lost where no queue takes it or the broker is away."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from typing import Any

import aio_pika
import pytest

from oncekey.effects.brokers.publishers import open_publisher
from oncekey.effects.outbox import Outgoing, Relay
from oncekey.errors import BrokerUnavailable, ConfigurationError, MessageRefused
from tests.conftest import started
from tests.effects.inbox.places import Place
from tests.effects.outbox.conftest import stage, store_of
from tests.infra import RabbitServer

LIMIT = 4096


class StrictRabbit(RabbitServer):
    """One that takes small messages only."""

    def prepare(self) -> None:
        super().prepare()
        with (self.folder / "rabbitmq.conf").open("a") as file:
            file.write(f"max_message_size = {LIMIT}\n")


@pytest.fixture(scope="module")
def strict_rabbit() -> Iterator[StrictRabbit]:
    with started(StrictRabbit) as server:
        yield server


@pytest.fixture(autouse=True)
async def aiormq_tidies_up() -> AsyncIterator[None]:
    """It does so in tasks that nobody waits for."""
    yield
    for _ in range(100):
        if len(asyncio.all_tasks()) == 1:
            break
        await asyncio.sleep(0.01)


@asynccontextmanager
async def channel(url: str) -> AsyncIterator[Any]:
    async with await aio_pika.connect(url) as connection, await connection.channel() as opened:
        yield opened


async def make_queue(url: str, name: str) -> None:
    async with channel(url) as opened:
        await opened.declare_queue(name, durable=True)


async def taken(url: str, name: str) -> list[Any]:
    """All messages of a queue."""
    found = []
    async with channel(url) as opened:
        queue = await opened.declare_queue(name, durable=True)
        while (message := await queue.get(fail=False, no_ack=True)) is not None:
            found.append(message)
    return found


async def test_a_message_arrives_with_its_id(rabbitmq_server: RabbitServer) -> None:
    """In the property and in the header, persistent, with all that was staged."""
    name = uuid.uuid4().hex
    await make_queue(rabbitmq_server.url, name)
    publisher = open_publisher(rabbitmq_server.url)
    await publisher.open()
    await publisher.publish(
        Outgoing("id-1", name, b"\0body", {"trace": "x", "Content-Type": "a/b"}, "A-1", "OrderPlaced")
    )
    await publisher.close()
    (message,) = await taken(rabbitmq_server.url, name)
    assert (message.body, message.message_id, message.type) == (b"\0body", "id-1", "OrderPlaced")
    assert (message.content_type, message.delivery_mode) == ("a/b", aio_pika.DeliveryMode.PERSISTENT)
    wanted = {"trace": "x", "Content-Type": "a/b", "oncekey-id": "id-1", "oncekey-key": "A-1"}
    assert message.headers == wanted


async def test_what_no_queue_takes_is_refused(rabbitmq_server: RabbitServer) -> None:
    """It is mandatory: RabbitMQ would confirm it and drop it. Those around it arrive."""
    name = uuid.uuid4().hex
    await make_queue(rabbitmq_server.url, name)
    publisher = open_publisher(rabbitmq_server.url)
    await publisher.open()
    topics = [name, f"{name}-none", name]
    messages = [Outgoing(str(number), topic, b"") for number, topic in enumerate(topics)]
    ended = await asyncio.gather(*map(publisher.publish, messages), return_exceptions=True)
    assert [type(end) for end in ended] == [type(None), MessageRefused, type(None)]
    assert "declare and bind one" in str(ended[1])
    await publisher.close()
    assert len(await taken(rabbitmq_server.url, name)) == 2


async def test_an_exchange_routes_by_topic(rabbitmq_server: RabbitServer) -> None:
    """One that is not there is waited for, with a sentence."""
    name = uuid.uuid4().hex
    publisher = open_publisher(f"{rabbitmq_server.url}?exchange={name}")
    with pytest.raises(BrokerUnavailable, match="declare it"):
        await publisher.open()
    async with channel(rabbitmq_server.url) as opened:
        exchange = await opened.declare_exchange(name, aio_pika.ExchangeType.TOPIC, durable=True)
        queue = await opened.declare_queue(name, durable=True)
        await queue.bind(exchange, "orders.*")
    await publisher.open()
    await publisher.publish(Outgoing("1", "orders.placed", b"one"))
    await publisher.close()
    assert [message.body for message in await taken(rabbitmq_server.url, name)] == [b"one"]


async def test_a_broker_that_is_away_is_waited_for(strict_rabbit: RabbitServer, sqlite: Place) -> None:
    """Killed and started again: all messages arrive, and nothing was held against them."""
    name, url = uuid.uuid4().hex, strict_rabbit.url
    await make_queue(url, name)
    async with Relay(store_of(sqlite), open_publisher(url)) as relay:
        stage(sqlite, "one", topic=name)
        assert (await relay.run_once()).sent == 1
        stage(sqlite, "two", topic=name)
        await asyncio.to_thread(strict_rabbit.checkpoint)
        await asyncio.to_thread(strict_rabbit.kill)
        report = await relay.run_once()
        assert (report.untried, report.refused) == (1, 0)
        assert "is it running?" in report.trouble
        await asyncio.to_thread(strict_rabbit.start)
        while not (await relay.run_once()).sent:
            await asyncio.sleep(0.05)
    assert [message.body for message in await taken(url, name)] == [b"one", b"two"]


async def test_one_that_is_too_large_is_held_against_itself_alone(strict_rabbit: RabbitServer) -> None:
    """RabbitMQ closes the channel for it; the others are no worse for that."""
    name = uuid.uuid4().hex
    await make_queue(strict_rabbit.url, name)
    publisher = open_publisher(strict_rabbit.url)
    await publisher.open()
    messages = [Outgoing(str(number), name, b"x" * size) for number, size in enumerate((1, LIMIT + 1, 1))]
    ended = await asyncio.gather(*map(publisher.publish, messages), return_exceptions=True)
    assert isinstance(ended[1], MessageRefused)
    assert {type(ended[0]), type(ended[2])} <= {type(None), BrokerUnavailable}
    await publisher.open()
    await publisher.publish(messages[0])
    await publisher.close()


async def test_a_wrong_password_is_said_without_it(rabbitmq_server: RabbitServer) -> None:
    """And a vhost that is not there in the same way: the broker does not tell them apart."""
    publisher = open_publisher(rabbitmq_server.url.replace("guest:guest", "guest:secret"))
    with pytest.raises(BrokerUnavailable) as told:
        await publisher.open()
    assert "user, password or vhost" in str(told.value)
    assert "secret" not in str(told.value)


@pytest.mark.parametrize(
    ("url", "says"),
    [
        ("amqp:///", "names no host"),
        ("amqp://user:secret@h?exchnge=x", "did you mean exchange=?"),
        ("amqp://user:secret@h:port/", "is not a URL"),
    ],
)
def test_a_wrong_address_is_told_what_to_write(url: str, says: str) -> None:
    """Without showing what may be a password."""
    with pytest.raises(ConfigurationError) as told:
        open_publisher(url)
    assert says in str(told.value)
    assert "secret" not in str(told.value)
