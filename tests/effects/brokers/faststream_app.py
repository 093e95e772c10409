"""Subscribers of FastStream as a user would write them; `python -m ... BROKER URL QUEUE FILE` is one that is killed.

It dies where FastStream acknowledges, which is after the commit.
"""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from pathlib import Path
from typing import Annotated, Any

import aiosqlite
from faststream import Context
from faststream.nats import JStream, NatsBroker, NatsRouter
from faststream.nats.message import NatsMessage
from faststream.rabbit import RabbitBroker, RabbitQueue, RabbitRouter
from faststream.rabbit.message import RabbitMessage

from oncekey.effects.brokers.consumers.faststream import OnceMiddleware
from oncekey.effects.inbox import AsyncInbox, Patience

BROKERS: dict[str, Any] = {"rabbitmq": RabbitBroker, "nats": NatsBroker}
ROUTERS: dict[str, Any] = {"rabbitmq": RabbitRouter, "nats": NatsRouter}


class Depot:
    """A broker with one guarded subscriber, that ships, and publishes what it returns."""

    def __init__(self, name: str, url: str, queue: str, file: Path, **chosen: Any) -> None:
        self.name, self.queue = name, queue
        self.seen: list[str] = []
        self.failing: dict[str, Exception] = {}
        patience = Patience(attempts=2, first_for=0.05)
        self.inbox = AsyncInbox(lambda: aiosqlite.connect(file), redelivery_for=60, patience=patience)
        self.once = OnceMiddleware(self.inbox)
        self.broker = BROKERS[name](url, logger=None)
        router = ROUTERS[name](middlewares=[self.once])
        self.answers: list[str] = []
        ship = router.subscriber(*self._place(), **self._words(), **chosen)(self.ship)
        router.publisher(f"{queue}.answers")(ship)
        self.broker.include_router(router)
        self.broker.subscriber(f"{queue}.answers")(self.hear)

    def _place(self) -> tuple[Any, ...]:
        return (RabbitQueue(self.queue, durable=True),) if self.name == "rabbitmq" else (self.queue,)

    def _words(self) -> dict[str, Any]:
        return (
            {} if self.name == "rabbitmq" else {"stream": JStream(self.queue), "durable": "workers", "pull_sub": True}
        )

    async def ship(self, body: dict[str, str], connection: Annotated[Any, Context("connection")]) -> str:
        number = body["number"]
        await connection.execute("INSERT INTO shipment (number) VALUES (?)", (number,))
        self.seen.append(number)
        if number in self.failing:
            raise self.failing[number]
        return number

    async def hear(self, answer: str) -> None:
        self.answers.append(answer)

    async def send(self, number: str, id_: str) -> None:
        words = {} if self.name == "rabbitmq" else {"stream": self.queue}
        await self.broker.publish({"number": number}, self.queue, headers={"oncekey-id": id_}, **words)


async def die(self: Any, **words: Any) -> None:
    """As a crash would."""
    os.kill(os.getpid(), signal.SIGKILL)


async def main(name: str, url: str, queue: str, file: str) -> None:
    RabbitMessage.ack = NatsMessage.ack = die  # type: ignore[method-assign,assignment]
    depot = Depot(name, url, queue, Path(file))
    async with depot.broker:
        await depot.broker.start()
        await asyncio.sleep(60)


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
