"""A publisher by its URL. A typo, a missing extra or a bad address is answered with what to write."""

from __future__ import annotations

import difflib
import importlib
from typing import TYPE_CHECKING, NamedTuple, cast
from urllib.parse import urlsplit

from oncekey.errors import ConfigurationError, MissingExtra

if TYPE_CHECKING:
    from oncekey.effects.outbox.sending import Publisher


class Room(NamedTuple):
    """Where a scheme's publisher lives and which extra it needs. Each module has `publisher(url)`."""

    module: str
    extra: str
    example: str


RABBITMQ = Room("rabbitmq", "rabbitmq", "amqp://user:password@host:5672/")
NATS = Room("nats_jetstream", "nats", "nats://user:password@host:4222")
KAFKA = Room("kafka", "kafka", "kafka://host:9092,other:9092")
SQS = Room("sqs", "sqs", "sqs://eu-west-1/queue")
WEBHOOKS = Room("webhooks", "httpx", "https://host/path")
REDIS = Room("redis_streams", "redis", "redis://host:6379/0")

ROOMS: dict[str, Room] = {
    "amqp": RABBITMQ,
    "amqps": RABBITMQ,
    "redis": REDIS,
    "rediss": REDIS,
    "valkey": REDIS,
    "valkeys": REDIS,
    "nats": NATS,
    "tls": NATS,
    "kafka": KAFKA,
    "sqs": SQS,
    "https": WEBHOOKS,
    "http": WEBHOOKS,
}


def open_publisher(url: str) -> Publisher:
    """The publisher that a URL names. Nothing is contacted before the first message."""
    scheme, colon, _ = url.partition(":")
    room = ROOMS.get(scheme.lower())
    if room is None or not colon:
        raise ConfigurationError(_unknown(url, scheme))
    try:
        # Kafka has several hosts, each with a port.
        _ = [urlsplit(f"//{place}").port for place in urlsplit(url).netloc.split(",")]
    except ValueError as wrong:
        raise ConfigurationError(f"the broker's address is not a URL ({wrong}): write it like {room.example}") from None
    try:
        module = importlib.import_module(f"oncekey.effects.brokers.publishers.{room.module}")
    except ModuleNotFoundError as missing:
        if (missing.name or "").startswith("oncekey"):
            raise
        raise MissingExtra(f"sending to {scheme}://", room.extra) from missing
    return cast("Publisher", module.publisher(url))


def _unknown(url: str, scheme: str) -> str:
    near = difflib.get_close_matches(scheme.lower(), ROOMS, n=1)
    examples = ", ".join(dict.fromkeys(room.example for room in ROOMS.values()))
    meant = f"did you mean {near[0]}:?" if near else "it must start with a broker's name."
    # Only the scheme is repeated: the rest of a URL may hold a password.
    what = repr(f"{scheme}:") if ":" in url else "the text given as its address"
    return f"{what} is not a broker that OnceKey can send to; {meant} Examples: {examples}"
