"""Many requests, one round trip, for asyncio.

While a batch is in flight, whatever arrives queues; when it lands, the queue leaves as the next batch. There is no
timer: a lone request never waits. A lane is a task that sends one batch at a time; there are a few.
"""

from __future__ import annotations

import asyncio
import contextvars
import os
import time
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import Generic, Protocol, TypeVar

from oncekey.engine.events import log
from oncekey.engine.tuning import DEFAULT, Tuning
from oncekey.errors import ConfigurationError, OnceKeyError, StoreUnavailable


class HasId(Protocol):
    """A command on one record."""

    @property
    def id(self) -> bytes:
        """The record's id."""
        ...


C = TypeVar("C", bound=HasId)
R = TypeVar("R")
Send = Callable[[Sequence[C]], Awaitable[list[R]]]

# Two consecutive failures of single items are a broken store, not two bad items.
PATIENCE = 2


class Combiner(Generic[C, R]):
    """Call it with one command; it goes out in a batch with its neighbours and its own answer comes back.

    Cancelling a caller leaves the batch alone. If its answer arrives all the same, `orphaned` is told, so that a claim
    that nobody waits for any more can be given back. Where `shared` says so, an answer is that of all commands on the
    same record that stood in the queue when it was asked for: a hot key costs one question, not one for each duplicate.
    """

    def __init__(
        self,
        send: Send[C, R],
        tuning: Tuning = DEFAULT,
        counted: Callable[[int], None] | None = None,
        *,
        orphaned: Callable[[C, R], None] | None = None,
        shared: Callable[[R], bool] | None = None,
    ) -> None:
        self._send = send
        self._store_for = tuning.store_for
        self._limit = tuning.batch
        self._lanes = tuning.lanes
        self._orphaned = orphaned
        self._counted = counted
        self._shared = shared
        self.batches = 0
        self.items = 0
        self._reset(None)

    def _reset(self, loop: asyncio.AbstractEventLoop | None) -> None:
        self._loop = loop
        self._pid = os.getpid()
        self._queue: deque[tuple[C, asyncio.Future[R]]] = deque()
        self._idle: list[asyncio.Future[None]] = []
        self._running: set[asyncio.Task[None]] = set()
        self._waking = False
        self._closing = False

    def __call__(self, command: C) -> asyncio.Future[R]:
        """Queue one command; await the future for its answer."""
        loop = asyncio.get_running_loop()
        if loop is not self._loop or self._pid != os.getpid():
            self._move(loop)
        future: asyncio.Future[R] = loop.create_future()
        self._enqueue(command, future, loop)
        return future

    def _enqueue(self, command: C, future: asyncio.Future[R], loop: asyncio.AbstractEventLoop) -> None:
        self._queue.append((command, future))
        if self._waking:
            return  # a lane is on its way and takes this one along
        while self._idle:
            waker = self._idle.pop()
            if not waker.done():  # a lane that was cancelled in its sleep does not wake
                waker.set_result(None)
                self._waking = True
                return
        if len(self._running) < self._lanes:
            self._open_lane(loop)

    def _follow(self, command: C, future: asyncio.Future[R], first: asyncio.Future[R]) -> None:
        """The first command's answer, for one that stood behind it. A record that was won is to be seen anew."""
        if future.done():
            return
        error = None if first.cancelled() else first.exception()
        if error is not None:
            _fail(future, error)
        elif not first.cancelled() and self._shared is not None and self._shared(first.result()):
            future.set_result(first.result())
        else:
            self._enqueue(command, future, future.get_loop())

    def _move(self, loop: asyncio.AbstractEventLoop) -> None:
        if self._loop is not None and self._pid == os.getpid() and self._loop.is_running():
            raise ConfigurationError(
                "this engine serves another event loop that is running: make one engine for each event loop"
            )
        self._reset(loop)

    def _open_lane(self, loop: asyncio.AbstractEventLoop) -> None:
        # Not in the context of the request that happens to be the first.
        lane = loop.create_task(self._lane(), name="oncekey-lane", context=contextvars.Context())
        self._running.add(lane)
        lane.add_done_callback(self._ended)
        self._waking = True

    def _ended(self, lane: asyncio.Task[None]) -> None:
        self._running.discard(lane)
        if lane.cancelled() or lane.exception() is not None:
            # Lanes are cancelled at shutdown; what still has to be settled then gets lanes that end with their work.
            self._closing, self._waking = True, False
        # What came between a lane's last look and its end is nobody else's either.
        if self._loop is not None and any(not future.done() for _, future in self._queue):
            self._open_lane(self._loop)

    async def _lane(self) -> None:
        try:
            while True:
                batch = self._take()
                if batch:
                    await self._deliver(batch)
                elif self._closing:
                    return
                else:
                    waker = asyncio.get_running_loop().create_future()
                    self._idle.append(waker)
                    await waker
        except asyncio.CancelledError:
            self._closing, self._waking = True, False
            raise

    def _take(self) -> list[tuple[C, asyncio.Future[R]]]:
        """The next batch. Equal ids never share a batch: the later one waits for the earlier answer, or takes it."""
        self._waking = False
        batch: list[tuple[C, asyncio.Future[R]]] = []
        again: list[tuple[C, asyncio.Future[R]]] = []
        ids: dict[bytes, asyncio.Future[R]] = {}
        queue = self._queue
        while queue and len(batch) < self._limit:
            entry = queue.popleft()
            if entry[1].cancelled():
                continue
            first = ids.setdefault(entry[0].id, entry[1])
            if first is entry[1]:
                batch.append(entry)
            elif self._shared is not None:
                first.add_done_callback(partial(self._follow, *entry))
            else:
                again.append(entry)
        queue.extendleft(reversed(again))
        return batch

    async def _deliver(self, batch: list[tuple[C, asyncio.Future[R]]]) -> None:
        """Send a batch; whatever happens, nobody in it is left waiting."""
        self.batches += 1
        self.items += len(batch)
        if self._counted is not None:
            self._counted(len(batch))
        try:
            await self._exchange(batch)
        except BaseException as error:
            for _, future in batch:
                _fail(future, error)
            if not isinstance(error, Exception):
                raise
            log.exception("a store call failed in a way that its store does not know")

    async def _exchange(self, batch: list[tuple[C, asyncio.Future[R]]]) -> None:
        started = time.monotonic()
        try:
            answers = await self._ask([command for command, _ in batch])
        except OnceKeyError as error:
            quick = time.monotonic() - started < self._store_for / 2
            await self._singly(batch, error, 0 if quick else PATIENCE)
            return
        for (command, future), answer in zip(batch, answers, strict=True):
            self._hand(command, future, answer)

    async def _ask(self, many: list[C]) -> list[R]:
        """One store call. A store keeps its own time budget; one that hangs past twice of it is given up."""
        try:
            async with asyncio.timeout(2 * self._store_for):
                answers = await self._send(many)
        except TimeoutError as late:
            raise StoreUnavailable("the store did not answer in time; nothing is known of this call") from late
        if len(answers) != len(many):
            raise ValueError(f"the store gave {len(answers)} answers to {len(many)} commands")
        return answers

    async def _singly(self, batch: list[tuple[C, asyncio.Future[R]]], error: OnceKeyError, failures: int) -> None:
        """One bad item must not fail its neighbours: ask again for each. All verbs may be repeated by token."""
        for command, future in batch:
            if failures >= PATIENCE:
                _fail(future, error)
                continue
            try:
                [answer] = await self._ask([command])
            except OnceKeyError as single:
                failures = failures + 1 if isinstance(single, StoreUnavailable) else 0
                _fail(future, single)
            else:
                failures = 0
                self._hand(command, future, answer)

    def _hand(self, command: C, future: asyncio.Future[R], answer: R) -> None:
        if not future.done():
            future.set_result(answer)
        elif self._orphaned is not None:
            self._orphaned(command, answer)

    async def close(self) -> None:
        """End the lanes. Whatever is still queued is answered first."""
        self._closing = True
        for waker in self._idle:
            if not waker.done():
                waker.set_result(None)
        self._idle.clear()
        if self._running and self._loop is asyncio.get_running_loop():
            await asyncio.gather(*self._running, return_exceptions=True)


def _fail(future: asyncio.Future[R], error: BaseException) -> None:
    if not future.done():
        future.set_exception(own(error))


def own(error: BaseException) -> OnceKeyError:
    """An exception for one waiter: a shared one would collect everybody's traceback."""
    if isinstance(error, OnceKeyError):
        kind = type(error)
        mine = kind.__new__(kind, *error.args)  # not by its constructor, which may want other words
        mine.__dict__.update(error.__dict__)
        mine.__cause__ = error.__cause__
        return mine
    failed = StoreUnavailable("the store could not be asked; nothing is known of this call")
    failed.__cause__ = error
    return failed
