"""Redis for asyncio: the same conversation, awaited. Each event loop has its own connections."""

from __future__ import annotations

import asyncio
import os
import weakref
from collections import deque
from collections.abc import Callable, Generator
from typing import Any, TypeVar

from redis.exceptions import ConnectionError as Disconnected
from redis.exceptions import RedisError

from oncekey.stores.contract import Listener
from oncekey.stores.posting import Places, Told
from oncekey.stores.redis.address import Address
from oncekey.stores.redis.commands import Command
from oncekey.stores.redis.line_async import AsyncLine
from oncekey.stores.redis.listen import RedisListener
from oncekey.stores.redis.listing import Keys
from oncekey.stores.redis.talk import Message, Talk, talk
from oncekey.stores.redis.trouble import unreachable

T = TypeVar("T")
Steps = Generator[list[Command], list[Any], T]


class Pool:
    """The connections of one event loop."""

    def __init__(self, places: int) -> None:
        self.idle: deque[AsyncLine] = deque()
        self.places = Places(places)

    def spare(self) -> AsyncLine | None:
        """An open connection that lies idle and may be used now."""
        while self.idle and self.places.take():
            line = self.idle.pop()
            if not line.closed:
                return line
            self.places.release()  # the server has closed it while it lay here
        return None


class AsyncRedisWire:
    """Keeps a few connections, most recently used first. One that failed in any way is closed, never put back."""

    def __init__(self, address: Address, store_for: float) -> None:
        self.address = address
        self.store_for = store_for
        self._closed = False
        self._reset()

    def _reset(self) -> None:
        self._pid = os.getpid()
        self._pools: weakref.WeakKeyDictionary[asyncio.AbstractEventLoop, Pool] = weakref.WeakKeyDictionary()

    async def run(self, steps: Steps[T]) -> T:
        conversation = talk(steps)
        try:
            message = next(conversation)
            while True:
                message = conversation.send(await self._ask(message))
        except StopIteration as stop:
            result: T = stop.value
            return result

    def post(self, steps: Steps[Any], told: Told) -> bool:
        """The same without a task and without waiting: `told` is called with the result or a StoreError.

        False if it would have to wait for a connection: nothing was sent then. Nothing is repeated here.
        """
        conversation = talk(steps)
        message = next(conversation)  # what cannot be written down takes no connection
        pool = self._pool()
        line = pool.spare()
        if line is None:
            return False
        _Posted(self, pool, line, conversation, told).begin(message)
        return True

    def _pool(self) -> Pool:
        if self._pid != os.getpid():
            self._reset()  # after a fork the connections are the parent's
        loop = asyncio.get_running_loop()
        pool = self._pools.get(loop)
        if pool is None:
            pool = self._pools[loop] = Pool(self.address.connections)
        return pool

    async def _ask(self, message: Message) -> list[Any]:
        pool = self._pool()
        try:
            # One budget for all: waiting for a connection, opening it, asking and being answered.
            async with asyncio.timeout(self.store_for), pool.places:
                return await self._ask_somebody(pool, message)
        except (RedisError, OSError) as error:  # TimeoutError is an OSError
            raise unreachable(error, self.address.where, self.store_for) from error

    async def _ask_somebody(self, pool: Pool, message: Message) -> list[Any]:
        while pool.idle:
            line = pool.idle.pop()
            if line.closed:
                continue  # the server has closed it while it lay here (a restart, an idle limit)
            try:
                return await self._exchange(pool, line, message)
            except Disconnected as error:
                # All verbs may be repeated: what was done already is recognised by its token or version.
                if type(error) is not Disconnected:
                    raise
                break
        return await self._exchange(pool, AsyncLine(self.address), message)

    async def _exchange(self, pool: Pool, line: AsyncLine, message: Message) -> list[Any]:
        try:
            replies = await line.ask(message)
        except BaseException:
            # Cancelled or failed, a reply may still be under way: nobody else may find it.
            line.close()
            raise
        self.give_back(pool, line)
        return replies

    def give_back(self, pool: Pool, line: AsyncLine) -> None:
        """Nothing is under way on this connection."""
        if self._closed:
            line.close()
        else:
            pool.idle.append(line)

    def listen(self, told: Callable[[bytes], None]) -> Listener:
        return RedisListener(self.address, Keys(self.address.prefix), told, self.store_for)

    async def close(self) -> None:
        self._closed = True
        pool = self._pools.pop(asyncio.get_running_loop(), None)
        while pool is not None and pool.idle:
            pool.idle.pop().close()


class _Posted:
    """One conversation in callbacks: of the socket, and of the clock."""

    __slots__ = ("_conversation", "_line", "_pool", "_timer", "_told", "_wire")

    def __init__(self, wire: AsyncRedisWire, pool: Pool, line: AsyncLine, conversation: Talk[Any], told: Told) -> None:
        self._wire = wire
        self._pool = pool
        self._line = line
        self._conversation = conversation
        self._told = told

    def begin(self, message: Message) -> None:
        self._timer = asyncio.get_running_loop().call_later(self._wire.store_for, self._late)
        self._line.tell(message, self._replied)

    def _late(self) -> None:
        # It tells us that it has ended; a reply may still be under way, and nobody else may find it.
        self._line.end(TimeoutError())

    def _replied(self, replies: list[Any] | Exception) -> None:
        """Go on, or tell how it ended. The connection is somebody else's before anybody is told."""
        if isinstance(replies, Exception):
            self._end()
            self._told(unreachable(replies, self._wire.address.where, self._wire.store_for))
            return
        result: Any
        try:
            message = self._conversation.send(replies)
        except StopIteration as stop:
            result = stop.value
        except Exception as error:  # noqa: BLE001 - a record that cannot be read, a refusal: whoever asked is told
            result = error
        else:
            self._line.tell(message, self._replied)
            return
        self._wire.give_back(self._pool, self._line)
        self._end()
        self._told(result)

    def _end(self) -> None:
        self._timer.cancel()
        self._pool.places.release()
