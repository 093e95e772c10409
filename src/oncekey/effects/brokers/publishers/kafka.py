"""Kafka: `kafka://host:9092,other:9092`; the topic is the topic, the key chooses the partition.

What stands behind the question mark goes to librdkafka as it is: `?security.protocol=SASL_SSL&sasl.username=shop&...`

The producer is idempotent and wants the acknowledgement of all in-sync replicas. The message's id is in the header
`oncekey-id`.
"""

from __future__ import annotations

import asyncio
import threading
from typing import Any
from urllib.parse import parse_qsl, unquote, urlsplit

from confluent_kafka import KafkaError, KafkaException, Message, Producer

from oncekey.effects.outbox.message import Outgoing
from oncekey.errors import BrokerUnavailable, ConfigurationError, MessageRefused

# Not what a user may change: without these a confirmation would not mean that the message is kept.
FIXED = {"acks": "all", "enable.idempotence": True}
DEFAULTS = {"message.timeout.ms": 10_000, "linger.ms": 5, "client.id": "oncekey", "log_level": 0}
REACHED_WITHIN = 5.0
POLL_FOR = 0.1
_UNFIT = {KafkaError.MSG_SIZE_TOO_LARGE, KafkaError.TOPIC_EXCEPTION, KafkaError._INVALID_ARG, KafkaError.INVALID_MSG}  # noqa: SLF001 - how librdkafka names it
_TOPICS = {KafkaError.UNKNOWN_TOPIC_OR_PART, KafkaError._UNKNOWN_TOPIC, KafkaError._UNKNOWN_PARTITION}  # noqa: SLF001 - as above
_FORBIDDEN = {KafkaError.TOPIC_AUTHORIZATION_FAILED}


class Kafka:
    """A cluster."""

    def __init__(self, url: str) -> None:
        parts = urlsplit(url)
        self.shown = f"kafka://{parts.netloc}"
        self._settings: dict[str, Any] = dict(DEFAULTS)
        self._settings |= dict(parse_qsl(parts.query, keep_blank_values=True))
        wrong = sorted(set(FIXED) & set(dict(parse_qsl(parts.query))))
        if wrong:
            raise ConfigurationError(
                f"{wrong[0]}= cannot be chosen: a message counts as sent when all replicas have it"
            )
        self._settings |= FIXED | {"bootstrap.servers": unquote(parts.netloc)}
        self._producer: Producer | None = None
        self._closed = threading.Event()
        self._poller: threading.Thread | None = None

    async def open(self) -> None:
        if self._producer is None:
            producer = self._made()
            try:
                await asyncio.to_thread(producer.list_topics, timeout=REACHED_WITHIN)
            except KafkaException as error:
                raise self._unavailable(error.args[0]) from error
            self._producer, self._closed = producer, threading.Event()
            self._poller = threading.Thread(
                target=_poll, args=(producer, self._closed), name="oncekey-kafka", daemon=True
            )
            self._poller.start()

    async def publish(self, message: Outgoing) -> None:
        if self._producer is None:
            raise BrokerUnavailable(f"{self.shown} is not connected")
        loop = asyncio.get_running_loop()
        delivered: asyncio.Future[None] = loop.create_future()

        def told(error: KafkaError | None, _: Message) -> None:
            loop.call_soon_threadsafe(_settle, delivered, error)

        headers: dict[str, str | bytes | None] = {**message.named_headers}
        if message.type:
            headers["oncekey-type"] = message.type
        try:
            self._producer.produce(message.topic, message.body, message.key, headers=headers, on_delivery=told)
            await delivered
        except BufferError as error:
            raise BrokerUnavailable(f"{self.shown} takes messages slower than they come") from error
        except KafkaException as error:
            raise self._read(error.args[0], message) from error

    async def close(self) -> None:
        producer, self._producer = self._producer, None
        if producer is not None and self._poller is not None:
            self._closed.set()
            await asyncio.to_thread(self._poller.join)
            producer.purge()

    def _made(self) -> Producer:
        try:
            return Producer(self._settings)
        except KafkaException as error:
            said = error.args[0]
            raise ConfigurationError(f"librdkafka does not take the options of the address: {said.str()}") from None

    def _read(self, error: KafkaError, message: Outgoing) -> Exception:
        code = error.code()
        if code in _UNFIT:
            return MessageRefused(
                f"Kafka does not take it ({error.str()})", final=code == KafkaError.MSG_SIZE_TOO_LARGE
            )
        if code in _TOPICS:
            return MessageRefused(f"there is no topic {message.topic} in Kafka: create it")
        if code in _FORBIDDEN:
            return MessageRefused(f"Kafka does not let us write to {message.topic}: grant it")
        if error.fatal():
            # An idempotent producer that has lost count is of no more use.
            self._closed.set()
            self._producer = None
        return self._unavailable(error)

    def _unavailable(self, error: KafkaError) -> BrokerUnavailable:
        return BrokerUnavailable(f"Kafka at {self.shown} cannot be reached ({error.str()}); is it running?")


def _poll(producer: Producer, closed: threading.Event) -> None:
    """Confirmations are told from here."""
    while not closed.is_set():
        producer.poll(POLL_FOR)


def _settle(delivered: asyncio.Future[None], error: KafkaError | None) -> None:
    if delivered.done():
        return
    if error is None:
        delivered.set_result(None)
    else:
        delivered.set_exception(KafkaException(error))


def publisher(url: str) -> Kafka:
    """A publisher for a Kafka address."""
    parts = urlsplit(url)
    if not parts.netloc or "@" in parts.netloc or parts.path.strip("/"):
        raise ConfigurationError(
            "write the broker's address like kafka://host:9092,other:9092; user and password are options: "
            "?sasl.username=...&sasl.password=..."
        )
    return Kafka(url)
