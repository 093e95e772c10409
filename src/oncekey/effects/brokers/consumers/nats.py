"""NATS JetStream, by nats-py: a durable pull consumer, whose members share its messages."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from typing import Any, Final

import nats
from nats.aio.client import Client
from nats.aio.msg import Msg
from nats.js.api import AckPolicy, ConsumerConfig, StreamInfo
from nats.js.client import JetStreamContext
from nats.js.errors import NotFoundError

from oncekey.effects.brokers.consumers.life import AnyHandler, within
from oncekey.effects.brokers.consumers.pulling import AsyncPullingConsumer, Received
from oncekey.effects.brokers.consumers.reading import id_in, texts
from oncekey.effects.inbox import Message
from oncekey.effects.link import Flow
from oncekey.errors import ConfigurationError

ASK_FOR: Final = 0.5
BATCH_MOST: Final = 1000


class NatsConsumer(AsyncPullingConsumer):
    """Handle the messages of a stream, which must be there. Async handlers are awaited, others run in threads.

    The durable consumer is made where it is not there; `config` says how. `batch` messages are handled in one
    transaction. `connect` opens a connection, if a URL does not say enough.
    """

    def __init__(
        self,
        handler: AnyHandler,
        url: str,
        stream: str,
        durable: str,
        *,
        batch: int = 10,
        config: ConsumerConfig | None = None,
        connect: Callable[[str], Awaitable[Client]] = nats.connect,
    ) -> None:
        super().__init__(handler, f"the stream {stream!r} of NATS")
        self._url = url
        self._stream = stream
        self._durable = durable
        self._batch = within("batch", batch, BATCH_MOST)
        self._config = config or ConsumerConfig()
        self._connect = connect
        self._client: Client | None = None
        self._subscription: JetStreamContext.PullSubscription | None = None

    async def open(self) -> None:
        self._client = await self._connect(self._url)
        jetstream = self._client.jetstream()
        self._compare(await jetstream.stream_info(self._stream))
        config = await self._settings(jetstream)
        if config.ack_policy != AckPolicy.EXPLICIT:
            raise ConfigurationError(
                f"the consumer {self._durable!r} of {self.broker} has ack_policy={config.ack_policy}: a message would "
                f"be forgotten before its effect is committed; make it with ack_policy='explicit'"
            )
        self.patience(config.max_deliver)
        # Three times within the time after which it would come again.
        self.keep_every = (config.ack_wait or 30.0) / 3
        self._subscription = await jetstream.pull_subscribe_bind(self._durable, self._stream)

    async def _settings(self, jetstream: JetStreamContext) -> ConsumerConfig:
        """How the durable consumer is set up; it is made if it is not there."""
        try:
            found = await jetstream.consumer_info(self._stream, self._durable)
        except NotFoundError:
            config = self._config.evolve(durable_name=self._durable, ack_policy=AckPolicy.EXPLICIT)
            found = await jetstream.add_consumer(self._stream, config)
        settings: ConsumerConfig = found.config
        return settings

    def _compare(self, info: StreamInfo) -> None:
        self.horizon(info.config.max_age or None)

    def receive(self) -> Flow[list[Received]]:
        messages = yield self._fetch()
        return [Received(self.message(raw), raw) for raw in messages]

    async def _fetch(self) -> list[Msg]:
        assert self._subscription is not None  # noqa: S101 - opened before any step
        assert self._client is not None  # noqa: S101
        try:
            return await self._subscription.fetch(self._batch, timeout=ASK_FOR)
        except TimeoutError:
            if not self._client.is_connected:
                raise ConnectionError("the connection was lost") from None
            return []

    async def close(self) -> None:
        client, self._client = self._client, None
        if client is None:
            return
        with suppress(Exception):  # what was acknowledged leaves first, if the connection still stands
            await client.flush(timeout=2)
        await client.close()

    def message(self, raw: Msg) -> Message:
        return message_of(raw, self.source, raw)

    async def beat(self, raws: Sequence[Msg]) -> None:
        await asyncio.gather(*(raw.in_progress() for raw in raws))

    async def acknowledge(self, raws: Sequence[Msg]) -> None:
        await asyncio.gather(*(raw.ack() for raw in raws))

    async def put_back(self, raw: Msg, after: float) -> None:
        await raw.nak(delay=after)

    async def give_up(self, raw: Msg, reason: str) -> None:
        await raw.term()


def message_of(received: Msg, source: str, raw: Any) -> Message:
    """The message in our words; its id is our header, Nats-Msg-Id, or its stream, number and time."""
    headers = texts((received.headers or {}).items())
    about = received.metadata
    stored_at = about.timestamp.timestamp()
    number = f"{about.stream}/{about.sequence.stream}/{stored_at:.6f}"
    return Message(
        source,
        received.data,
        id_in(headers, headers.get("Nats-Msg-Id"), number),
        headers,
        received.subject,
        stored_at,
        redelivered=about.num_delivered > 1,
        raw=raw,
    )
