from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

import aio_pika
from kombu.connection import Connection

from oncekey.effects.brokers.consumers.rabbitmq import RabbitConsumer
from tests.effects.brokers.rigs import Rig


class RabbitRig(Rig):
    async def create(self) -> None:
        async with await aio_pika.connect(self.address) as connection, await connection.channel() as channel:
            await channel.declare_queue(self.queue, durable=True)

    async def publish(self, ids: Sequence[str | None], body: bytes = b"{}") -> None:
        async with await aio_pika.connect(self.address) as connection, await connection.channel() as channel:
            for id_ in ids:
                if id_ is None:
                    await asyncio.to_thread(self._publish_nameless, body)
                    continue
                message = aio_pika.Message(body, message_id=id_, headers={"kind": "test"})
                await channel.default_exchange.publish(message, self.queue)

    def _publish_nameless(self, body: bytes) -> None:
        # aio-pika names everything that it sends.
        with Connection(self.address) as connection, connection.Producer() as producer:
            producer.publish(body, routing_key=self.queue)

    def consumer(self, handler: Any) -> Any:
        return RabbitConsumer(handler, self.address, self.queue, prefetch=4)

    async def left(self) -> int:
        async with await aio_pika.connect(self.address) as connection, await connection.channel() as channel:
            queue = await channel.declare_queue(self.queue, passive=True)
            return queue.declaration_result.message_count or 0
