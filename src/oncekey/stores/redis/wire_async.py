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
from oncekey.stores.redis.address import Address
from oncekey.stores.redis.commands import Command
from oncekey.stores.redis.line_async import AsyncLine
from oncekey.stores.redis.listen import RedisListener
from oncekey.stores.redis.listing import Keys
from oncekey.stores.redis.talk import Message, talk
from oncekey.stores.redis.trouble import unreachable

T = TypeVar("T")
Steps = Generator[list[Command], list[Any], T]


class Pool:
    """The connections of one event loop."""

    def __init__(self, places: int) -> None:
        self.idle: deque[AsyncLine] = deque()
        self.places = asyncio.Semaphore(places)


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
        if self._closed:
            line.close()
        else:
            pool.idle.append(line)
        return replies

    def listen(self, told: Callable[[bytes], None]) -> Listener:
        return RedisListener(self.address, Keys(self.address.prefix), told, self.store_for)

    async def close(self) -> None:
        self._closed = True
        pool = self._pools.pop(asyncio.get_running_loop(), None)
        while pool is not None and pool.idle:
            pool.idle.pop().close()
