from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar

import nats
from nats.js.api import ConsumerConfig

from oncekey.effects.brokers.consumers.nats import NatsConsumer
from tests.effects.brokers.rigs import Rig


class NatsRig(Rig):
    names_by_itself: ClassVar[bool] = True
    lapses_for: ClassVar[float] = 0.5

    async def create(self) -> None:
        client = await nats.connect(self.address)
        await client.jetstream().add_stream(name=self.queue, subjects=[self.queue], duplicate_window=0.1)
        await client.jetstream().add_consumer(self.queue, self.config.evolve(durable_name="workers"))
        await client.close()

    @property
    def config(self) -> ConsumerConfig:
        return ConsumerConfig(ack_policy="explicit", ack_wait=0.5)  # type: ignore[arg-type]

    async def publish(self, ids: Sequence[str | None], body: bytes = b"{}") -> None:
        client = await nats.connect(self.address)
        for id_ in ids:
            await client.jetstream().publish(self.queue, body, headers={"oncekey-id": id_} if id_ else None)
        await client.close()

    def consumer(self, handler: Any) -> Any:
        return NatsConsumer(handler, self.address, self.queue, "workers", batch=4)

    async def left(self) -> int:
        client = await nats.connect(self.address)
        info = await client.jetstream().consumer_info(self.queue, "workers")
        await client.close()
        return (info.num_pending or 0) + (info.num_ack_pending or 0)
