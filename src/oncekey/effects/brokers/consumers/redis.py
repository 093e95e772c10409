"""Redis and Valkey streams, by redis-py: a consumer group, for threads and for asyncio from one text."""

from __future__ import annotations

import secrets
import socket
from collections.abc import Iterable, Sequence
from typing import Any, Final

import orjson
import redis
import redis.asyncio
from redis.exceptions import ResponseError

from oncekey.effects.brokers.consumers.life import AnyHandler, within
from oncekey.effects.brokers.consumers.pulling import AsyncPullingConsumer, Pulling, PullingConsumer, Received
from oncekey.effects.brokers.consumers.reading import id_in, text, texts
from oncekey.effects.inbox import Message
from oncekey.effects.link import Flow
from oncekey.errors import ConfigurationError

BLOCK_FOR: Final = 500  # milliseconds
BATCH_MOST: Final = 1000
# Where the outbox puts them; all other fields are headers.
BODY, KEY, HEADERS = "body", "key", "headers"


class _Streams(Pulling):
    """What both colours share. Everything that is asked of the client is a value or an awaitable."""

    def __init__(
        self, handler: AnyHandler, server: Any, stream: str, group: str, *, batch: int = 10, idle_for: float = 60.0
    ) -> None:
        super().__init__(handler, f"the stream {stream!r} of Redis")
        if not idle_for > 0:
            raise ConfigurationError(f"idle_for={idle_for!r} makes no sense: write a number of seconds above 0")
        self._server = server
        self._stream = stream
        self._group = group
        self._batch = within("batch", batch, BATCH_MOST)
        self._idle_for = round(idle_for * 1000)
        self._member = f"{socket.gethostname()}-{secrets.token_hex(6)}"
        self._client: Any = None
        self.keep_every = idle_for / 3

    def connected(self, url: str) -> Any:
        """A client of the right colour."""
        raise NotImplementedError

    def open(self) -> Any:
        return self.drive(self._open())

    def _open(self) -> Flow[None]:
        self._client = self.connected(self._server) if isinstance(self._server, str) else self._server
        try:
            yield self._client.xgroup_create(self._stream, self._group, id="0", mkstream=True)
        except ResponseError as error:
            if not str(error).startswith("BUSYGROUP"):
                raise
        self.horizon(None)

    def receive(self) -> Flow[list[Received]]:
        lapsed = yield self._client.xautoclaim(
            self._stream, self._group, self._member, self._idle_for, count=self._batch
        )
        received = self._received(lapsed[1], again=True)
        if received:
            return received
        answer = yield self._client.xreadgroup(
            self._group, self._member, {self._stream: ">"}, count=self._batch, block=BLOCK_FOR
        )
        return self._received(_entries(answer), again=False)

    def _received(self, entries: Iterable[Any], *, again: bool) -> list[Received]:
        # An entry that was trimmed away while it waited has no fields.
        return [Received(self.message(id_, fields, again=again), id_) for id_, fields in entries if fields]

    def message(self, entry_id: Any, fields: dict[Any, Any], *, again: bool) -> Message:
        """The message in our words; its id is our field, or the entry's own."""
        known = {text(name): value for name, value in fields.items()}
        body, key, packed = (known.pop(name, None) for name in (BODY, KEY, HEADERS))
        headers = texts(known.items()) | _unpacked(packed)
        milliseconds, _, _ = text(entry_id).partition("-")
        return Message(
            self.source,
            body if isinstance(body, bytes) else (body or "").encode(),
            id_in(headers, entry_id),
            headers,
            None if key is None else text(key),
            int(milliseconds) / 1000,
            redelivered=again,
            raw=entry_id,
        )

    def beat(self, raws: Sequence[Any]) -> Any:
        return self._claim(raws, idle=0)

    def acknowledge(self, raws: Sequence[Any]) -> Any:
        return self._client.xack(self._stream, self._group, *raws)

    def put_back(self, raw: Any, after: float) -> Any:
        """Claimable again by the time; Redis knows no longer wait than `idle_for`."""
        return self._claim([raw], idle=max(0, self._idle_for - round(after * 1000)))

    def give_up(self, raw: Any, reason: str) -> Any:
        """A stream has no dead letters: it stays pending, and comes again."""
        return self.put_back(raw, self._idle_for / 1000)

    def _claim(self, raws: Sequence[Any], *, idle: int) -> Any:
        return self._client.xclaim(self._stream, self._group, self._member, 0, list(raws), idle=idle, justid=True)

    def close(self) -> Any:
        return self.drive(self._close())

    def _close(self) -> Flow[None]:
        client, self._client = self._client, None
        if client is None:
            return
        try:
            # A member that still has entries keeps its name: with it they would be forgotten.
            pending = yield client.xpending_range(self._stream, self._group, "-", "+", 1, self._member)
            if not pending:
                yield client.xgroup_delconsumer(self._stream, self._group, self._member)
        except Exception:
            yield self._let_go(client)
            raise
        yield self._let_go(client)

    def _let_go(self, client: Any) -> Any:
        """Close what we have opened."""
        raise NotImplementedError


class RedisConsumer(_Streams, PullingConsumer):
    """Handle the entries of a stream in a consumer group, which is made if it is not there.

    `server` is a URL, or a client of yours. `batch` entries are handled in one transaction. What a member has not
    acknowledged for `idle_for` seconds is taken over by another; while a handler runs, its entries are kept.
    """

    def connected(self, url: str) -> Any:
        return redis.Redis.from_url(url)

    def _let_go(self, client: Any) -> Any:
        if client is not self._server:
            client.close()


class AsyncRedisConsumer(_Streams, AsyncPullingConsumer):
    """The same for asyncio. Async handlers are awaited, others run in threads."""

    def connected(self, url: str) -> Any:
        return redis.asyncio.Redis.from_url(url)

    async def _let_go(self, client: Any) -> None:
        if client is not self._server:
            await client.aclose()


def _entries(answer: Any) -> list[Any]:
    """The entries of the one stream that was asked for, in either protocol of Redis."""
    if not answer:
        return []
    ((_, found),) = answer.items() if isinstance(answer, dict) else answer
    return found[0] if isinstance(answer, dict) else found  # type: ignore[no-any-return]


def _unpacked(packed: Any) -> dict[str, str]:
    try:
        read = orjson.loads(packed) if packed else {}
    except orjson.JSONDecodeError:
        read = packed
    return texts(read.items()) if isinstance(read, dict) else {HEADERS: text(packed)}
