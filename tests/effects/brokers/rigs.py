"""For each broker: how a test makes a queue, publishes into it, consumes it, and sees what is left.

Rigs are made again in child processes, from their name and the broker's address, so they hold nothing open.
"""

from __future__ import annotations

import importlib
from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any, ClassVar

RIGS = {
    "rabbitmq": "tests.effects.brokers.rig_rabbitmq",
    "nats": "tests.effects.brokers.rig_nats",
}


class Rig(ABC):
    """One queue of one broker."""

    awaited: ClassVar[bool] = True
    # What dies when a consumer is to be killed between its commit and its acknowledgement.
    acknowledgement: ClassVar[str] = "acknowledge"
    # Whether the broker gives every message a name that it keeps.
    names_by_itself: ClassVar[bool] = False

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
    made: Rig = importlib.import_module(RIGS[name]).made(address, queue)
    return made
