"""The consumer of RabbitMQ, on a real broker."""

from __future__ import annotations

import asyncio
import uuid
from pathlib import Path
from typing import Any, ClassVar

import aio_pika
import aiosqlite
import pytest

from oncekey.effects.brokers.consumers.rabbitmq import RabbitConsumer
from oncekey.effects.inbox import AsyncHandler, AsyncInbox, GivenUp, Handler, Message
from oncekey.errors import ConfigurationError
from tests.effects.brokers.rig_rabbitmq import RabbitRig
from tests.effects.brokers.rigs import Rig
from tests.effects.brokers.running import PATIENCE, running, shop, until
from tests.effects.brokers.scenarios import EveryConsumer
from tests.infra import RabbitServer


@pytest.fixture
def address(rabbitmq_server: RabbitServer) -> str:
    return rabbitmq_server.url


@pytest.fixture
async def rabbit(address: str) -> Rig:
    """An empty queue."""
    made = RabbitRig(address, uuid.uuid4().hex)
    await made.create()
    return made


class TestRabbit(EveryConsumer):
    """Every scenario."""

    name: ClassVar[str] = "rabbitmq"


async def test_a_lost_connection_is_made_again(rabbit: Rig, tmp_path: Path) -> None:
    """The message at hand is committed, comes again on the new connection, and has one effect."""
    ours = shop(tmp_path)
    consumer = rabbit.consumer(ours.handler)
    loop = asyncio.get_running_loop()

    def cut(name: str) -> None:
        ours.hook = lambda name: None
        asyncio.run_coroutine_threadsafe(consumer._connection.close(), loop).result()

    ours.hook = cut
    await rabbit.publish(["1"])
    async with running(consumer):
        await until(lambda: ours.events["message_duplicate"] == 1)
    assert ours.shipped == ["1"]
    assert ours.events["broker_lost"] == 1
    assert await rabbit.left() == 0


async def test_a_deleted_queue_is_noticed(rabbit: Rig, tmp_path: Path) -> None:
    """The broker says so once and is silent afterwards: the consumer tries until the queue is there again."""
    ours = shop(tmp_path)
    async with running(rabbit.consumer(ours.handler)):
        await rabbit.publish(["1"])
        await until(lambda: ours.shipped == ["1"])
        async with await aio_pika.connect(rabbit.address) as connection, await connection.channel() as channel:
            await channel.queue_delete(rabbit.queue)
        await until(lambda: ours.events["broker_lost"])
        await rabbit.create()
        await rabbit.publish(["2"])
        await until(lambda: ours.shipped == ["1", "2"])


async def test_async_handlers_are_awaited_side_by_side(rabbit: Rig, tmp_path: Path) -> None:
    """As many as are prefetched are at work at the same time."""
    inbox = AsyncInbox(lambda: aiosqlite.connect(tmp_path / "shop.db"), keep_for=None)
    await inbox.migrate()
    together = asyncio.Barrier(4)

    @inbox.once("orders")
    async def ship(message: Message) -> None:
        seen.append(message.headers["kind"])

    seen: list[str] = []

    class Side(AsyncHandler):
        async def deliver(self, message: Any) -> Any:
            await asyncio.wait_for(together.wait(), PATIENCE)
            return await super().deliver(message)

    await rabbit.publish(["1", "2", "3", "4"])
    async with running(rabbit.consumer(Side(inbox, ship.rules))):
        await until(lambda: len(seen) == 4)
    assert await rabbit.left() == 0


@pytest.mark.parametrize(
    ("declare", "said"),
    [
        ({"x-message-ttl": 60_000}, r"keeps messages for 1860 s, which is longer than keep_for=300"),
        (None, r"keeps messages for ever, .*write redelivery_for="),
    ],
)
async def test_a_window_that_is_too_short_is_refused(
    address: str, tmp_path: Path, declare: dict[str, Any] | None, said: str
) -> None:
    """What the queue's arguments say of its messages is compared before the first is taken."""
    ours = shop(tmp_path, redelivery_for=None, keep_for=300)
    queue = uuid.uuid4().hex
    async with await aio_pika.connect(address) as connection, await connection.channel() as channel:
        await channel.declare_queue(queue, durable=True, arguments=declare)
    with pytest.raises(ConfigurationError, match=said):
        await RabbitConsumer(ours.handler, address, queue, declare=declare).run()


async def test_a_queue_that_gives_up_sooner_is_warned_of(
    address: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """A delivery limit below the inbox's attempts would lose messages to dead letters before they are parked."""
    ours = shop(tmp_path)
    declare = {"x-queue-type": "quorum", "x-delivery-limit": 2}
    consumer = RabbitConsumer(ours.handler, address, uuid.uuid4().hex, declare=declare)
    async with running(consumer):
        await until(lambda: "gives a message up after 2 deliveries" in caplog.text)


async def test_what_is_given_up_goes_to_the_dead_letters(address: str, tmp_path: Path) -> None:
    """Where the inbox keeps no copy, the broker's own dead letters do."""
    ours = shop(tmp_path)
    queue, dead = uuid.uuid4().hex, uuid.uuid4().hex
    declare = {"x-dead-letter-exchange": "", "x-dead-letter-routing-key": dead}

    class Refusing(Handler):
        def deliver(self, message: Any) -> Any:
            return GivenUp("no place to keep it")

    async with await aio_pika.connect(address) as connection, await connection.channel() as channel:
        letters = await channel.declare_queue(dead)
        consumer = RabbitConsumer(Refusing(ours.inbox, ours.handler.rules), address, queue, declare=declare)
        async with running(consumer):
            await until(lambda: consumer._connection is not None and consumer._still_consuming())
            await RabbitRig(address, queue).publish(["1"])
            async with asyncio.timeout(PATIENCE):
                async with letters.iterator() as arrived:
                    found = await anext(arrived)
                    await found.ack()
    assert found.message_id == "1"
