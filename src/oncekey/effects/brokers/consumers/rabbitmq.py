"""RabbitMQ, by aio-pika: a task for each message, as many at once as are prefetched."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from typing import Any, Final

import aio_pika
from aio_pika.abc import AbstractChannel, AbstractConnection, AbstractIncomingMessage, AbstractQueue

from oncekey.effects.brokers.consumers.life import AnyHandler, AsyncConsumer, within
from oncekey.effects.brokers.consumers.pulling import Settling
from oncekey.effects.brokers.consumers.reading import id_in, texts
from oncekey.effects.inbox import Later, Message
from oncekey.engine.events import log

# RabbitMQ closes the channel of a consumer that holds a message for longer than this (consumer_timeout).
HELD_MOST: Final = 1800.0
# So no message waits for its next attempt longer than this before it goes back.
WAIT_MOST: Final = 900.0
LOOK_EVERY: Final = 0.2
PREFETCH_MOST: Final = 65_535


class RabbitConsumer(AsyncConsumer, Settling):
    """Handle the messages of a queue, which must be there. Async handlers are awaited, others run in threads.

    `prefetch` is how many are handled at once. `declare` gives the arguments that the queue was declared with; RabbitMQ
    refuses others, so its x-message-ttl can be believed. `connect` opens a connection, if a URL does not say enough.
    """

    def __init__(
        self,
        handler: AnyHandler,
        url: str,
        queue: str,
        *,
        prefetch: int = 10,
        declare: Mapping[str, Any] | None = None,
        connect: Callable[[str], Awaitable[AbstractConnection]] = aio_pika.connect,
    ) -> None:
        super().__init__(handler, f"the queue {queue!r} of RabbitMQ")
        self._url = url
        self._queue = queue
        self._prefetch = within("prefetch", prefetch, PREFETCH_MOST)
        self._declare = None if declare is None else dict(declare)
        self._connect = connect
        self._connection: AbstractConnection | None = None
        self._running: set[asyncio.Task[None]] = set()
        self._leaving = asyncio.Event()
        self._still_consuming: Callable[[], bool] = bool
        self._cancel: Callable[[], Awaitable[Any]] | None = None

    async def open(self) -> None:
        self._leaving = asyncio.Event()
        self._connection = await self._connect(self._url)
        channel = await self._connection.channel()
        await channel.set_qos(self._prefetch)
        queue = await self._found(channel)
        tag = await queue.consume(self._take)
        under: Any = await channel.get_underlay_channel()
        self._still_consuming = lambda: not channel.is_closed and tag in under.consumers
        self._cancel = lambda: queue.cancel(tag)

    async def _found(self, channel: AbstractChannel) -> AbstractQueue:
        """The queue, and what it says of how long it keeps messages."""
        known = self._declare
        if known is None:
            queue = await channel.declare_queue(self._queue, passive=True)
        else:
            queue = await channel.declare_queue(self._queue, durable=True, arguments=known)
        kept_for = (known or {}).get("x-message-ttl")
        # A message does not grow old while somebody holds it.
        self.horizon(None if kept_for is None else kept_for / 1000 + HELD_MOST)
        self.patience((known or {}).get("x-delivery-limit"))
        return queue

    async def step(self) -> None:
        await self.wait(LOOK_EVERY)
        if not self._still_consuming():
            raise ConnectionError("the connection was lost, or the queue deleted")

    async def close(self) -> None:
        connection, self._connection = self._connection, None
        cancel, self._cancel = self._cancel, None
        if connection is None:
            return
        try:
            if cancel is not None:
                with suppress(Exception):  # the connection may be lost: then nothing comes any more
                    await cancel()
            self._leaving.set()
            await asyncio.gather(*self._running, return_exceptions=True)
        finally:
            await connection.close()

    async def _take(self, raw: AbstractIncomingMessage) -> None:
        # A task of ours: the client's own tasks are cancelled when the connection is lost.
        task = asyncio.create_task(self._handle(raw))
        self._running.add(task)
        task.add_done_callback(self._running.discard)

    async def _handle(self, raw: AbstractIncomingMessage) -> None:
        try:
            verdict = await self.ask(self.handler.deliver, self.message(raw))
            if isinstance(verdict, Later):
                with suppress(TimeoutError):
                    async with asyncio.timeout(min(verdict.after, WAIT_MOST)):
                        await self._leaving.wait()
            await self.settle(raw, verdict)
        except Exception as error:  # noqa: BLE001 - it was not acknowledged, so it comes again
            log.warning("a message of %s was not acknowledged, and comes again: %s", self.broker, error)

    def message(self, raw: AbstractIncomingMessage) -> Message:
        return message_of(raw, self.source, raw)

    async def acknowledge(self, raws: Sequence[AbstractIncomingMessage]) -> None:
        for raw in raws:
            await raw.ack()

    async def put_back(self, raw: AbstractIncomingMessage, after: float) -> None:
        await raw.nack(requeue=True)

    async def give_up(self, raw: AbstractIncomingMessage, reason: str) -> None:
        await raw.reject(requeue=False)


def message_of(received: AbstractIncomingMessage, source: str, raw: Any) -> Message:
    """The message in our words; its id is our header, or the property message_id."""
    headers = texts(received.headers.items())
    return Message(
        source,
        received.body,
        id_in(headers, received.message_id),
        headers,
        received.routing_key,
        received.timestamp.timestamp() if received.timestamp else None,
        redelivered=bool(received.redelivered) or "x-death" in headers,
        raw=raw,
    )
