"""A broker in this process, to see what a relay does: it keeps what it confirms, and fails as it is told."""

from __future__ import annotations

import asyncio

from oncekey.effects.outbox import Outgoing
from oncekey.errors import BrokerUnavailable


class Shelf:
    """A publisher that puts messages on a shelf."""

    shown = "the shelf"

    def __init__(self, slow_for: float = 0) -> None:
        self.messages: list[Outgoing] = []
        self.refusing: dict[str, Exception] = {}
        self.silent: set[str] = set()
        self.down = False
        self.opened = 0
        self.slow_for = slow_for

    async def open(self) -> None:
        self.opened += 1
        if self.down:
            raise BrokerUnavailable("the shelf is away")

    async def publish(self, message: Outgoing) -> None:
        await asyncio.sleep(self.slow_for)
        name = message.body.decode()
        if name in self.silent:
            await asyncio.sleep(60)
        if name in self.refusing:
            raise self.refusing[name]
        self.messages.append(message)

    async def close(self) -> None:
        self.down = False

    @property
    def bodies(self) -> list[str]:
        """What was put there, in order."""
        return [message.body.decode() for message in self.messages]

    @property
    def ids(self) -> list[str]:
        """The same by their ids."""
        return [message.id for message in self.messages]
