"""Many requests, one round trip, for asyncio.

While a batch is in flight, whatever arrives queues; when it lands, the queue leaves as the next batch. There is no
timer: a lone request never waits. A few batches are in flight at a time, each in a lane: a task that asks the store
for one batch after the other until the queue is empty. A store that can answer in a callback needs no task.
"""

from __future__ import annotations

import asyncio
import contextvars
import os
import time
from collections import deque
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from functools import partial
from typing import Any, Generic, Protocol, TypeVar

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
# Sends a batch at once and calls back with the answers or what went wrong; False: it cannot, ask in the usual way.
Post = Callable[[Sequence[C], Callable[[Any], None]], bool]

# A command and who waits for its answer.
Waiting = tuple[C, asyncio.Future[R]]
Batch = list[tuple[C, asyncio.Future[R]]]

# Two consecutive failures of single items are a broken store, not two bad items.
PATIENCE = 2
# Smaller batches than this are not parted among lanes: each message costs something of its own.
PART = 16


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
        post: Post[C] | None = None,
        orphaned: Callable[[C, R], None] | None = None,
        shared: Callable[[R], bool] | None = None,
    ) -> None:
        self._send = send
        self._post = post
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
        self._queue: deque[Waiting[C, R]] = deque()
        self._running: set[asyncio.Task[None]] = set()
        self._in_flight = 0
        self._leaving = self._alone = False
        self._over: asyncio.Future[None] | None = None
        # Not the context of the request that happens to be the first.
        self._nobodys = contextvars.Context()

    def __call__(self, command: C) -> asyncio.Future[R]:
        """Queue one command; await the future for its answer."""
        loop = asyncio.get_running_loop()
        if loop is not self._loop or self._pid != os.getpid():
            self._move(loop)
        future: asyncio.Future[R] = loop.create_future()
        self._queue.append((command, future))
        if not self._leaving and self._in_flight < self._lanes:
            self._set_out(loop)
        return future

    def _set_out(self, loop: asyncio.AbstractEventLoop) -> None:
        """See to it that what is queued is sent, with what else this turn of the loop brings."""
        if self._post is None:
            self._open_lane(loop)
        elif self._alone and not self._in_flight:
            # The last batch had no neighbours either: they are worth no turn.
            self._nobodys.run(self._leave, loop)
        else:
            self._leaving = True
            loop.call_soon(self._leave, loop, context=self._nobodys)

    def _go_on(self, loop: asyncio.AbstractEventLoop) -> None:
        """A lane is free."""
        if self._leaving:
            return
        if any(not future.done() for _, future in self._queue):
            if self._post is None:
                self._open_lane(loop)
            else:
                self._leave(loop)
        elif self._over is not None and not self._in_flight and not self._over.done():
            self._over.set_result(None)

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
            self._queue.append((command, future))
            if not self._leaving and self._in_flight < self._lanes:
                self._set_out(future.get_loop())

    def _move(self, loop: asyncio.AbstractEventLoop) -> None:
        if self._loop is not None and self._pid == os.getpid() and self._loop.is_running():
            raise ConfigurationError(
                "this engine serves another event loop that is running: make one engine for each event loop"
            )
        self._reset(loop)

    def _take(self, limit: int) -> Batch[C, R]:
        """The next batch. Equal ids never share a batch: the later one waits for the earlier answer, or takes it."""
        self._leaving = False
        batch: Batch[C, R] = []
        again: Batch[C, R] = []
        ids: dict[bytes, asyncio.Future[R]] = {}
        queue = self._queue
        while queue and len(batch) < limit:
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

    def _count(self, batch: Batch[C, R]) -> None:
        self.batches += 1
        self.items += len(batch)
        if self._counted is not None:
            self._counted(len(batch))

    def _hand(self, command: C, future: asyncio.Future[R], answer: R) -> None:
        if not future.done():
            future.set_result(answer)
        elif self._orphaned is not None:
            self._orphaned(command, answer)

    async def close(self) -> None:
        """Return when all that is queued has been answered."""
        while self._loop is asyncio.get_running_loop() and (self._in_flight or self._leaving):
            self._over = self._loop.create_future()
            await self._over

    # ---- without a task ----------------------------------------------------------------------------------------------

    def _leave(self, loop: asyncio.AbstractEventLoop) -> None:
        """Send what is queued, as far as there are lanes for it."""
        self._leaving = False
        while self._queue and self._in_flight < self._lanes:
            if not self._posted():
                self._open_lane(loop)
                return

    def _posted(self) -> bool:
        """Post one batch. Of a long queue only the share of one lane: then the server and we work at the same time."""
        waiting = len(self._queue)
        batch = self._take(min(self._limit, max(PART, -(-waiting // (self._lanes - self._in_flight)))))
        self._alone = waiting == 1
        if not batch:
            return True
        if not self._sent(batch):
            self._queue.extendleft(reversed(batch))
            return False
        self._in_flight += 1
        self._count(batch)
        return True

    def _sent(self, batch: Batch[C, R]) -> bool:
        if self._post is None:
            return False
        try:
            return self._post([command for command, _ in batch], partial(self._landed, batch, time.monotonic()))
        except Exception:  # noqa: BLE001 - the usual way meets it too, and tells whoever waits
            return False

    def _landed(self, batch: Batch[C, R], began: float, answers: list[R] | Exception) -> None:
        loop = batch[0][1].get_loop()
        self._in_flight -= 1
        if isinstance(answers, list):
            for (command, future), answer in zip(batch, answers, strict=True):
                self._hand(command, future, answer)
            self._go_on(loop)
        else:
            self._start(self._guarded(batch, partial(self._fallen, began, answers)), loop, batch)

    async def _fallen(self, began: float, error: Exception, batch: Batch[C, R]) -> None:
        """Each is asked again in the usual way: its connection may have been closed while it lay there."""
        await self._singly(batch, own(error), 0 if self._is_quick(began) else PATIENCE)

    def _is_quick(self, began: float) -> bool:
        return time.monotonic() - began < self._store_for / 2

    # ---- in a task ---------------------------------------------------------------------------------------------------

    def _open_lane(self, loop: asyncio.AbstractEventLoop) -> None:
        self._leaving = True
        self._start(self._lane(loop), loop)

    def _start(
        self,
        work: Coroutine[Any, Any, None],
        loop: asyncio.AbstractEventLoop,
        batch: Sequence[Waiting[C, R]] = (),
    ) -> None:
        lane = loop.create_task(work, name="oncekey-lane", context=contextvars.Context())
        self._in_flight += 1
        self._running.add(lane)
        lane.add_done_callback(partial(self._ended, loop, batch))

    def _ended(
        self,
        loop: asyncio.AbstractEventLoop,
        batch: Sequence[Waiting[C, R]],
        lane: asyncio.Task[None],
    ) -> None:
        self._running.discard(lane)
        self._in_flight -= 1
        if lane.cancelled() or lane.exception() is not None:
            # All tasks are cancelled at shutdown, some before their first step; outcomes still have to be stored then.
            self._leaving = False
            for _, future in batch:
                _fail(future, asyncio.CancelledError())
        self._go_on(loop)

    async def _lane(self, loop: asyncio.AbstractEventLoop) -> None:
        while batch := self._take(self._limit):
            if self._queue and self._in_flight < self._lanes:
                self._open_lane(loop)
            self._count(batch)
            await self._guarded(batch, self._exchange)

    async def _guarded(
        self,
        batch: Batch[C, R],
        ask: Callable[[Batch[C, R]], Awaitable[None]],
    ) -> None:
        """Whatever happens, nobody in the batch is left waiting."""
        try:
            await ask(batch)
        except BaseException as error:
            for _, future in batch:
                _fail(future, error)
            if not isinstance(error, Exception):
                raise
            log.exception("a store call failed in a way that its store does not know")

    async def _exchange(self, batch: Batch[C, R]) -> None:
        started = time.monotonic()
        try:
            answers = await self._ask([command for command, _ in batch])
        except OnceKeyError as error:
            await self._singly(batch, error, 0 if self._is_quick(started) else PATIENCE)
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

    async def _singly(self, batch: Batch[C, R], error: OnceKeyError, failures: int) -> None:
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
