from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any, ClassVar

from confluent_kafka import Consumer, Producer, TopicPartition

from oncekey.effects.brokers.consumers.kafka import KafkaConsumer
from oncekey.effects.brokers.consumers.kafka_aio import AioKafkaConsumer
from tests.effects.brokers.rigs import Rig

PARTITIONS = 4


class KafkaRig(Rig):
    acknowledgement: ClassVar[str] = "commit"
    tells_late: ClassVar[bool] = True
    # After so many seconds without a word a member is taken for dead.
    session_for = 1.0
    group = "workers"

    async def create(self) -> None:
        """The mock cluster makes topics when they are first used."""

    async def publish(self, ids: Sequence[str | None], body: bytes = b"{}", partition: int | None = None) -> None:
        await asyncio.to_thread(self._publish, ids, body, partition)

    def _publish(self, ids: Sequence[str | None], body: bytes, partition: int | None) -> None:
        producer = Producer({"bootstrap.servers": self.address, "linger.ms": 0})
        where: dict[str, Any] = {} if partition is None else {"partition": partition}
        for id_ in ids:
            producer.produce(self.queue, body, headers={"oncekey-id": id_} if id_ else None, **where)
        assert producer.flush(10) == 0

    @property
    def session_ms(self) -> int:
        return round(self.session_for * 1000)

    @property
    def settings(self) -> dict[str, Any]:
        timing = {"session.timeout.ms": self.session_ms, "heartbeat.interval.ms": 100, "fetch.wait.max.ms": 50}
        return {"bootstrap.servers": self.address, "group.id": f"{self.group}-{self.queue}", "log_level": 2, **timing}

    def consumer(self, handler: Any) -> Any:
        return KafkaConsumer(handler, self.queue, self.settings, batch=4)

    async def left(self) -> int:
        return await asyncio.to_thread(self._left)

    def _left(self) -> int:
        client = Consumer(self.settings)
        wanted = [TopicPartition(self.queue, number) for number in range(PARTITIONS)]
        try:
            told = client.committed(wanted, timeout=10)
            return sum(client.get_watermark_offsets(one, timeout=10)[1] - max(0, one.offset) for one in told)
        finally:
            client.close()


class AioKafkaRig(KafkaRig):
    def consumer(self, handler: Any) -> Any:
        return AioKafkaConsumer(
            handler,
            self.queue,
            batch=4,
            bootstrap_servers=self.address,
            group_id=self.settings["group.id"],
            session_timeout_ms=self.session_ms,
            heartbeat_interval_ms=100,
            fetch_max_wait_ms=50,
        )
