"""The I/O of Postgres for asyncio: the same lanes, waited for by the running loop. Each loop has its own."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Callable, Generator
from contextlib import asynccontextmanager
from typing import Any, NamedTuple, TypeVar

import psycopg
from psycopg.waiting import Ready, Wait

from oncekey.errors import OnceKeyError
from oncekey.stores.contract import Listener
from oncekey.stores.planned import Steps
from oncekey.stores.postgres import trouble
from oncekey.stores.postgres.lane import Exchange, Idle, Lane, Rows
from oncekey.stores.postgres.listen import listen
from oncekey.stores.postgres.options import Options
from oncekey.stores.postgres.statements import Statement
from oncekey.stores.posting import Places, Told

T = TypeVar("T")


class Pool(NamedTuple):
    """The lanes of one event loop."""

    idle: Idle
    free: Places

    def spare(self) -> Lane | None:
        """A lane that lies idle and may be used now."""
        if not self.free.take():
            return None
        lane = self.idle.take()
        if lane is None:
            self.free.release()
        return lane


class AsyncPostgresWire:
    """Runs plans, one exchange after another on one lane."""

    def __init__(self, options: Options, known: dict[str, Statement]) -> None:
        self._options = options
        self._known = known
        self._pools: dict[asyncio.AbstractEventLoop, Pool] = {}

    async def run(self, steps: Steps[T]) -> T:
        """Carry out one verb within its time budget. A cancelled verb's connection is dropped, never reused."""
        try:
            asks = next(steps)
        except StopIteration as done:
            return done.value  # type: ignore[no-any-return]
        async with self._lane(None if asks[0].statement.patient else self._options.store_for) as lane:
            while True:
                if lane.read_only and not asks[0].statement.anywhere:
                    raise trouble.read_only(self._options)
                answers = await _wait(lane, lane.exchange(asks, None))
                try:
                    asks = steps.send(answers)
                except StopIteration as done:
                    return done.value  # type: ignore[no-any-return]

    def post(self, steps: Steps[Any], told: Told) -> bool:
        """The same without a task: see stores.posting."""
        pool = self._pool()
        lane = pool.spare()
        if lane is None:
            return False
        try:
            Posted(self._options, pool, lane, steps, told).begin()
        except BaseException:  # it could not even begin
            pool.idle.put(lane)
            pool.free.release()
            raise
        return True

    @asynccontextmanager
    async def _lane(self, seconds: float | None) -> AsyncIterator[Lane]:
        idle, free = self._pool()
        late: OnceKeyError = trouble.busy(self._options)
        try:
            async with asyncio.timeout(seconds), free:
                late = trouble.out_of_time(self._options)
                lane = idle.take() or await self._connect()
                try:
                    yield lane
                finally:
                    idle.put(lane)
        except TimeoutError as error:
            raise late from error
        except psycopg.Error as error:
            raise trouble.translated(error, self._options) from error

    def _pool(self) -> Pool:
        loop = asyncio.get_running_loop()
        pool = self._pools.get(loop)
        if pool is None or pool.idle.pid != os.getpid():
            for gone in [old for old in self._pools if old is loop or old.is_closed()]:
                self._pools.pop(gone).idle.close()
            pool = self._pools[loop] = Pool(Idle(), Places(self._options.lanes))
        return pool

    async def _connect(self) -> Lane:
        try:
            connection = await psycopg.AsyncConnection.connect(self._options.conninfo)
        except psycopg.Error as error:
            raise trouble.unreachable(error, self._options) from error
        lane = Lane(connection, self._options, self._known)
        try:
            await _wait(lane, lane.arrive(None))
        except BaseException:
            lane.close()
            raise
        return lane

    def listen(self, told: Callable[[bytes], None]) -> Listener:
        """Be told of records from a thread with a connection of its own."""
        return listen(self._options, told)

    async def close(self) -> None:
        """Close what is idle."""
        while self._pools:
            self._pools.popitem()[1].idle.close()


class Posted:
    """One verb in callbacks: of the socket, and of the clock."""

    def __init__(self, options: Options, pool: Pool, lane: Lane, steps: Steps[Any], told: Told) -> None:
        self._options = options
        self._pool = pool
        self._lane = lane
        self._steps = steps
        self._told = told
        self._loop = asyncio.get_running_loop()
        self._fileno = lane.fileno  # a connection that is lost no longer tells it
        self._writing = False

    def begin(self) -> None:
        self._loop.add_reader(self._fileno, self._go_on, Ready.R)
        self._timer = self._loop.call_later(self._options.store_for, self._late)
        self._conversation = self._talk()
        self._go_on(None)

    def _talk(self) -> Generator[Wait, Ready | int, Any]:
        try:
            asks = next(self._steps)
            while True:
                asks = self._steps.send((yield from self._lane.exchange(asks, None)))
        except StopIteration as done:
            return done.value

    def _late(self) -> None:
        self._end(trouble.out_of_time(self._options))

    def _go_on(self, ready: Ready | None) -> None:
        """As far as it goes without waiting."""
        result: Any
        try:
            wanted = self._conversation.send(ready)  # type: ignore[arg-type] # None begins it
        except StopIteration as done:
            result = done.value
        except psycopg.Error as error:
            result = trouble.translated(error, self._options)
        except Exception as error:  # noqa: BLE001 - a record that cannot be read: whoever asked is told
            result = error
        else:
            self._want(write=wanted & Wait.W != 0)
            return
        self._end(result)

    def _want(self, *, write: bool) -> None:
        if write and not self._writing:
            self._loop.add_writer(self._fileno, self._go_on, Ready.W)
        elif self._writing and not write:
            self._loop.remove_writer(self._fileno)
        self._writing = write

    def _end(self, result: Any) -> None:
        """The lane is somebody else's, or closed, before anybody is told."""
        self._timer.cancel()
        self._want(write=False)
        self._loop.remove_reader(self._fileno)
        self._pool.idle.put(self._lane)
        self._pool.free.release()
        self._told(result)


async def _wait(lane: Lane, exchange: Exchange) -> list[Rows]:
    loop, fileno = asyncio.get_running_loop(), lane.fileno
    try:
        wanted = next(exchange)
        while True:
            wanted = exchange.send(await _ready(loop, fileno, wanted))
    except StopIteration as done:
        return done.value  # type: ignore[no-any-return]


async def _ready(loop: asyncio.AbstractEventLoop, fileno: int, wanted: Wait) -> Ready:
    future: asyncio.Future[Ready] = loop.create_future()

    def told(state: Ready) -> None:
        if not future.done():
            future.set_result(state)

    loop.add_reader(fileno, told, Ready.R)
    if wanted & Wait.W:
        loop.add_writer(fileno, told, Ready.W)
    try:
        return await future
    finally:
        loop.remove_reader(fileno)
        if wanted & Wait.W:
            loop.remove_writer(fileno)
