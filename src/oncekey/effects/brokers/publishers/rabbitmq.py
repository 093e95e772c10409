"""RabbitMQ: `amqp://user:password@host:5672/vhost`; the topic is the routing key.

exchange=orders   publishes to that exchange, which must be there; without it the topic names a queue
heartbeat=30      and cafile, capath, certfile, keyfile, no_verify_ssl for amqps://

Messages are persistent and mandatory, and the channel confirms: what no queue takes is refused and not lost. Its
id is in `message_id`, and in the header `oncekey-id`.
"""

from __future__ import annotations

from datetime import UTC, datetime
from urllib.parse import urlsplit

import aio_pika
from aio_pika import exceptions as wrong
from aio_pika.abc import AbstractChannel, AbstractConnection, AbstractExchange

from oncekey.effects.brokers.publishers import address
from oncekey.effects.outbox.message import CONTENT_TYPE, Outgoing
from oncekey.errors import BrokerUnavailable, ConfigurationError, MessageRefused

OPTIONS = ("exchange", "heartbeat", "cafile", "capath", "certfile", "keyfile", "no_verify_ssl")
LONGEST_ROUTING_KEY = 255
# A connection that is being closed answers with a RuntimeError.
_CLOSED = (wrong.AMQPError, RuntimeError, OSError)


class RabbitMQ:
    """A broker that speaks AMQP 0.9.1."""

    def __init__(self, url: str) -> None:
        self.shown = address.shown(url)
        self._exchange_name = address.options(url, OPTIONS).get("exchange", "")
        self._url = url
        self._connection: AbstractConnection | None = None
        self._channel: AbstractChannel | None = None
        self._exchange: AbstractExchange | None = None
        # What has been sent over this channel and not confirmed: closed for one message, it takes all with it.
        self._flying: dict[str, int] = {}

    async def open(self) -> None:
        try:
            if self._connection is None or self._connection.is_closed:
                self._channel = None
                self._connection = await aio_pika.connect(self._url)
            if self._channel is None or self._channel.is_closed:
                self._channel = await self._connection.channel(publisher_confirms=True, on_return_raises=True)
                self._exchange = await self._open_exchange(self._channel)
                self._flying.clear()
        except _CLOSED as error:
            await self.close()
            raise self._unavailable(error) from error

    async def publish(self, message: Outgoing) -> None:
        if self._exchange is None:
            raise BrokerUnavailable(f"{self.shown} is not connected")
        if len(message.topic.encode()) > LONGEST_ROUTING_KEY:
            raise MessageRefused(
                f"the topic is longer than the {LONGEST_ROUTING_KEY} bytes of a routing key", final=True
            )
        self._flying[message.id] = len(message.body)
        try:
            await self._exchange.publish(_made(message), message.topic, mandatory=True)
        except wrong.PublishError as error:
            del self._flying[message.id]
            raise MessageRefused(f"no queue takes {self._where(message)}: declare and bind one") from error
        except wrong.DeliveryError as error:
            raise MessageRefused(f"RabbitMQ did not take it into the queue behind {self._where(message)}") from error
        except wrong.ChannelPreconditionFailed as error:
            raise self._closed_for(message, error) from error
        except _CLOSED as error:
            raise self._unavailable(error) from error
        else:
            del self._flying[message.id]

    async def close(self) -> None:
        connection, self._connection, self._channel, self._exchange = self._connection, None, None, None
        if connection is not None:
            await connection.close()

    async def _open_exchange(self, channel: AbstractChannel) -> AbstractExchange:
        if not self._exchange_name:
            return channel.default_exchange
        try:
            return await channel.get_exchange(self._exchange_name)
        except wrong.ChannelNotFoundEntity as error:
            raise BrokerUnavailable(
                f"RabbitMQ at {self.shown} has no exchange {self._exchange_name}: declare it, or correct exchange="
            ) from error

    def _closed_for(self, message: Outgoing, error: Exception) -> Exception:
        """RabbitMQ closes the channel for a message that is too large: that can only be the largest one."""
        if len(message.body) == max(self._flying.values()):
            return MessageRefused(f"RabbitMQ does not take it ({address.plain(error)})")
        return self._unavailable(error)

    def _where(self, message: Outgoing) -> str:
        place = f"exchange {self._exchange_name}" if self._exchange_name else "the default exchange"
        return f"routing key {message.topic} at {place}"

    def _unavailable(self, error: Exception) -> BrokerUnavailable:
        if isinstance(error, wrong.AuthenticationError | wrong.ProbableAuthenticationError):
            return BrokerUnavailable(f"RabbitMQ at {self.shown} refuses user, password or vhost of the address")
        why = "the connection was closed" if isinstance(error, RuntimeError) else address.plain(error)
        return BrokerUnavailable(f"RabbitMQ at {self.shown} cannot be reached, or broke off ({why}); is it running?")


def _made(message: Outgoing) -> aio_pika.Message:
    headers = {name.lower(): value for name, value in message.headers.items()}
    return aio_pika.Message(
        message.body,
        message_id=message.id,
        delivery_mode=aio_pika.DeliveryMode.PERSISTENT,
        content_type=headers.get(CONTENT_TYPE),
        type=message.type or None,
        timestamp=datetime.fromtimestamp(message.staged_at, UTC),
        headers={**message.named_headers, **({"oncekey-key": message.key} if message.key is not None else {})},
    )


def publisher(url: str) -> RabbitMQ:
    """A publisher for an AMQP address."""
    if not urlsplit(url).hostname:
        raise ConfigurationError("the broker's address names no host: write it like amqp://user:password@host:5672/")
    return RabbitMQ(url)
