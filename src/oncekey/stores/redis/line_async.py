"""A connection for asyncio: redis-py opens it (names, TLS, login, database), then its replies come straight to us.

One batch is under way on a connection at a time, and its replies are one event: read in the callback of the socket,
without a stream, a buffer and a chain of coroutines in between.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import partial
from typing import Any

import hiredis
from redis.asyncio import Connection, SSLConnection
from redis.exceptions import ConnectionError as Disconnected
from redis.exceptions import NoScriptError, RedisError, ResponseError

from oncekey.stores.redis.address import Address
from oncekey.stores.redis.talk import Message

_NOT_YET = object()
_GONE = "the server closed the connection"


class AsyncLine(asyncio.Protocol):
    """Opens with the first message, never repeats one by itself. One that failed in any way is closed for good."""

    def __init__(self, address: Address) -> None:
        # No socket_timeout: redis-py would start a task for each write to keep it. The wire's own budget covers all.
        made = SSLConnection if address.tls else Connection
        self._connection: Any = made(**address.arguments, socket_timeout=None)
        self._transport: Any = None
        self._reader = hiredis.Reader(protocolError=RedisError, replyError=_refusal, notEnoughData=_NOT_YET)
        self._told: Callable[[list[Any] | Exception], None] | None = None
        self._replies: list[Any] = []
        self._wanted = 0
        self.closed = False

    async def ask(self, message: Message) -> list[Any]:
        """Send one message and return its replies, errors among them as values."""
        if self._transport is None:
            await self._open()
        answer: asyncio.Future[list[Any]] = asyncio.get_running_loop().create_future()
        self.tell(message, partial(_resolve, answer))
        return await answer

    def tell(self, message: Message, told: Callable[[list[Any] | Exception], None]) -> None:
        """Send one message on an open connection; `told` is called with its replies, or with why there are none."""
        self._told, self._wanted = told, message.replies
        self._transport.write(message.payload)

    async def _open(self) -> None:
        await self._connection.connect()
        self._transport = self._connection._writer.transport  # noqa: SLF001 - redis-py has no other door to it
        self._transport.set_protocol(self)

    def data_received(self, data: bytes) -> None:
        """Replies, or parts of them."""
        try:
            self._reader.feed(data)
            while (reply := self._reader.gets()) is not _NOT_YET:
                self._replies.append(reply)
        except RedisError as garbled:
            self.end(garbled)
            return
        if len(self._replies) < self._wanted:
            return
        if self._told is None or len(self._replies) > self._wanted:
            self.end(Disconnected("the server said more than it was asked"))
            return
        replies, self._replies, self._wanted = self._replies, [], 0
        told, self._told = self._told, None
        told(replies)

    def connection_lost(self, exc: Exception | None) -> None:
        """The server, or the way to it, is gone."""
        self.end(Disconnected(f"{_GONE}: {exc}" if exc else _GONE))

    def end(self, why: Exception) -> None:
        """Close it, and tell whoever waits."""
        self.close()
        told, self._told = self._told, None
        if told is not None:
            told(why)

    def close(self) -> None:
        """Let go of it at once; whatever is still under way reaches nobody."""
        self.closed = True
        if self._transport is not None:
            self._transport.abort()
        self._connection._close()  # noqa: SLF001 - as above; or it complains of itself when it is collected


def _resolve(answer: asyncio.Future[list[Any]], replies: list[Any] | Exception) -> None:
    if answer.done():
        return
    if isinstance(replies, Exception):
        answer.set_exception(replies)
    else:
        answer.set_result(replies)


def _refusal(text: str) -> ResponseError:
    return NoScriptError(text) if text.startswith("NOSCRIPT") else ResponseError(text)
