"""For each broker: how a test makes a queue, publishes into it, consumes it, and sees what is left.

Rigs are made again in child processes, from their name and the broker's address, so they hold nothing open.
"""

from __future__ import annotations

import importlib
from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any, ClassVar

# The file of each rig, and what it is called there.
RIGS = {
    "rabbitmq": "rig_rabbitmq:RabbitRig",
    "nats": "rig_nats:NatsRig",
    "kafka": "rig_kafka:KafkaRig",
    "aiokafka": "rig_kafka:AioKafkaRig",
    "sqs": "rig_sqs:SqsRig",
    "redis": "rig_redis:RedisRig",
    "async redis": "rig_redis:AsyncRedisRig",
}


class Rig(ABC):
    """One queue of one broker."""

    awaited: ClassVar[bool] = True
    # What dies when a consumer is to be killed between its commit and its acknowledgement.
    acknowledgement: ClassVar[str] = "acknowledge"
    # Whether the broker gives every message a name that it keeps.
    names_by_itself: ClassVar[bool] = False
    # Whether a member may leave without being heard, while its group is being arranged anew.
    tells_late: ClassVar[bool] = False
    # How long a message may be unheard of before it is given to somebody else.
    lapses_for: ClassVar[float]

    def __init__(self, address: str, queue: str) -> None:
        self.address = address
        self.queue = queue

    @abstractmethod
    async def create(self) -> None:
        """Make the queue."""

    @abstractmethod
    async def publish(self, ids: Sequence[str | None], body: bytes = b"{}") -> None:
        """Send messages with these ids, in order."""

    @abstractmethod
    def consumer(self, handler: Any) -> Any:
        """A consumer of the queue."""

    @abstractmethod
    async def left(self) -> int:
        """How many messages are not acknowledged."""


def rig(name: str, address: str, queue: str) -> Rig:
    """The rig of a broker."""
    file, _, called = RIGS[name].partition(":")
    made: Rig = getattr(importlib.import_module(f"tests.effects.brokers.{file}"), called)(address, queue)
    return made
