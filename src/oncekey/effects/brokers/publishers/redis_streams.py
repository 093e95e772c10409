"""Redis and Valkey streams: `redis://host:6379/0`, one stream for each topic, named like it.

maxlen=1000000   lets Redis trim a stream to about so many entries; without it nothing is trimmed

An entry has the fields `oncekey-id`, `body`, `key`, `type`, and `headers` as JSON. A confirmed entry is in
the memory of Redis; what survives a crash of Redis is up to its appendfsync and its replicas.
"""

from __future__ import annotations

from typing import Any
from urllib.parse import urlsplit

import orjson
import redis.asyncio as aioredis
import redis.exceptions as wrong

from oncekey.effects.brokers.publishers import address
from oncekey.effects.inbox.message import ID_HEADER
from oncekey.effects.outbox.message import Outgoing
from oncekey.errors import BrokerUnavailable, ConfigurationError, MessageRefused

# One connection carries one command at a time.
CONNECTIONS = 8
SCHEMES = {"valkey": "redis", "valkeys": "rediss"}


class RedisStreams:
    """A server with streams."""

    def __init__(self, url: str) -> None:
        self.shown = address.shown(url)
        chosen = address.options(url, ("maxlen",))
        self._maxlen = address.number(chosen["maxlen"], "maxlen") if "maxlen" in chosen else None
        scheme, rest = url.partition("?")[0].split(":", 1)
        self._url = f"{SCHEMES.get(scheme.lower(), scheme.lower())}:{rest}"
        if address.path(url) and not address.path(url).isdecimal():
            raise ConfigurationError("what follows the host is a database number: write redis://host:6379/0")
        self._client: aioredis.Redis | None = None

    async def open(self) -> None:
        if self._client is None:
            pool: Any = aioredis.BlockingConnectionPool.from_url(
                self._url, max_connections=CONNECTIONS, timeout=None, socket_keepalive=True
            )
            self._client = aioredis.Redis(connection_pool=pool)
        try:
            await self._client.ping()
        except wrong.RedisError as error:
            raise self._unavailable(error) from error

    async def publish(self, message: Outgoing) -> None:
        fields: dict[Any, Any] = {ID_HEADER: message.id, "body": message.body}
        fields |= {"key": message.key} if message.key is not None else {}
        fields |= {"type": message.type} if message.type else {}
        fields |= {"headers": orjson.dumps(dict(message.headers))} if message.headers else {}
        try:
            await self._connected().xadd(message.topic, fields, maxlen=self._maxlen, approximate=True)
        except wrong.ResponseError as error:
            if str(error).startswith(("WRONGTYPE", "Operation against a key")):
                raise MessageRefused(f"the key {message.topic} in Redis is no stream") from error
            raise self._unavailable(error) from error
        except wrong.RedisError as error:
            raise self._unavailable(error) from error

    async def close(self) -> None:
        client, self._client = self._client, None
        if client is not None:
            await client.aclose()
            await client.connection_pool.disconnect()

    def _connected(self) -> aioredis.Redis:
        if self._client is None:
            raise BrokerUnavailable(f"{self.shown} is not connected")
        return self._client

    def _unavailable(self, error: Exception) -> BrokerUnavailable:
        said = "refused" if isinstance(error, wrong.ResponseError) else "cannot be reached; is it running?"
        return BrokerUnavailable(f"Redis at {self.shown} {said} ({address.plain(error)})")


def publisher(url: str) -> RedisStreams:
    """A publisher for a Redis or Valkey address."""
    if not urlsplit(url).hostname:
        raise ConfigurationError("the broker's address names no host: write it like redis://host:6379/0")
    return RedisStreams(url)
