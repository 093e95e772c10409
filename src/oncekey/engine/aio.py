"""The front door for asyncio. Its twin is engine.threaded: read them side by side."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING

from oncekey.core import flows
from oncekey.core.commands import Claim, Claimed, Look, Renewal, Settlement, Stale, Swap, Won, Written
from oncekey.core.decision import Decision, Execute, InProgress
from oncekey.core.policy import ms
from oncekey.engine import events
from oncekey.engine.combiner import Combiner
from oncekey.engine.common import (
    check_colour,
    check_not_released,
    clock_of,
    lost,
    open_writer,
    orphaned,
    pause,
    release,
    say,
    say_settled,
    seen,
    swapped,
)
from oncekey.engine.drivers import drive, drive_async
from oncekey.engine.events import Events, Sink
from oncekey.engine.keeper import Keeper, Writer
from oncekey.engine.threaded import Direct
from oncekey.engine.tuning import Tuning
from oncekey.engine.waiting import Waiting
from oncekey.errors import StoreError
from oncekey.stores.memory import AsyncMemoryStore
from oncekey.stores.open import open_async_store
from oncekey.stores.posting import PostingStore

if TYPE_CHECKING:
    from oncekey.core.flows import Answer, Asked, Terms
    from oncekey.engine.attempt import Attempt
    from oncekey.stores.contract import AsyncStore


class _Batched:
    """Single commands, sent with their neighbours."""

    def __init__(self, store: AsyncStore, tuning: Tuning, keeper: Keeper, said: Events) -> None:
        self.store = store
        self.said = said
        # Of exactly this class: one that is made from it, or stands before it, may have changed a verb.
        post = store if type(store) is PostingStore else None
        self.claims: Combiner[Claim, Claimed] = Combiner(
            store.claim,
            tuning,
            said.counting("claim"),
            post=post.post_claims if post is not None else None,
            orphaned=orphaned(keeper),
            shared=seen,
        )
        self.settlements: Combiner[Settlement, Written] = Combiner(
            store.settle,
            tuning,
            said.counting("settle"),
            post=post.post_settlements if post is not None else None,
        )
        self.renewals: Combiner[Renewal, Written] = Combiner(store.renew, tuning, said.counting("renew"))

    def claim(self, command: Claim) -> Awaitable[Answer]:
        return self.claims(command)

    def settle(self, command: Settlement) -> Awaitable[Answer]:
        return self.settlements(command)

    def renew(self, command: Renewal) -> Awaitable[Answer]:
        return self.renewals(command)

    async def swap(self, command: Swap) -> Answer:
        return swapped(self.said, command, await self.store.swap(command))

    def look(self, command: Look) -> Awaitable[Answer]:
        return self.store.get(command.id)


class AsyncEngine:
    """Enter, settle and renew operations on one store, from asyncio. `running` holds work that outlives its request."""

    def __init__(self, store: str | AsyncStore, tuning: Tuning | None = None, sinks: tuple[Sink, ...] = ()) -> None:
        self.tuning = tuning = tuning or Tuning()
        self.store = open_async_store(store, store_for=tuning.store_for) if isinstance(store, str) else store
        check_colour(self.store, awaited=True)
        self.now = clock_of(self.store)
        self.said = Events(sinks)
        self.waiting = Waiting(tuning.waiting)
        self.running: set[asyncio.Task[None]] = set()
        self.closed = False
        self.keeper = Keeper(self._writer, self.said, self.waiting.told)
        # Where nothing waits, nothing is gained by a batch: the memory store is asked on the spot.
        self._direct = Direct(self.store.sync, self.said) if isinstance(self.store, AsyncMemoryStore) else None
        self._batched = _Batched(self.store, tuning, self.keeper, self.said)
        self._opening: tuple[asyncio.AbstractEventLoop | None, asyncio.Lock] = (None, asyncio.Lock())

    def _writer(self) -> Writer:
        if self._direct is not None:
            return Writer(self._direct.store.renew, self._direct.store.settle)
        return open_writer(self.store.url, self.tuning.store_for)

    async def enter(
        self, claim: Claim, asked: Asked, terms: Terms, wait_for: float | None = None, *, late: bool = False
    ) -> Decision:
        """What this request may do now; with `wait_for`, hold a duplicate for the first answer.

        A `late` request, older than answers are kept, may find its answer and is never run as new. A claim that failed
        is given back and cannot be entered again: make a new one, with a new token.
        """
        began = time.monotonic() if self.said.sinks else 0.0
        decision = await self._decide(claim, asked, terms, late=late)
        if wait_for is not None and isinstance(decision, InProgress):
            decision = await self._hold(
                lambda: self._decide(claim, asked, terms, late=late), claim.id, decision, wait_for
            )
            began = 0.0
        if self.said.sinks:
            say(self.said, decision, claim, began)
        return decision

    async def _decide(self, claim: Claim, asked: Asked, terms: Terms, *, late: bool = False) -> Decision:
        check_not_released(self.keeper, claim)
        direct, met = self._direct, None
        try:
            if not late:
                met = direct.claim(claim) if direct is not None else await self._batched.claims(claim)
                if type(met) is Won:
                    return flows.granted(claim, met)
            flow = flows.enter(claim, asked, terms, late=late, met=met)
            return drive(flow, direct) if direct is not None else await drive_async(flow, self._batched)
        except BaseException as error:
            if isinstance(error, StoreError):
                self.said.say(events.STORE_ERROR, claim.id, str(error))
            # It may have been granted all the same: give it back, by its token, as soon as that can be done.
            self.keeper.owe(release(claim), quiet=True)
            raise

    async def _hold(
        self, decide: Callable[[], Awaitable[Decision]], id_: bytes, decision: InProgress, wait_for: float
    ) -> Decision:
        began = asked_at = time.monotonic()
        if not self.waiting.enter():
            return decision
        self.said.say(events.HELD, id_)
        found: Decision = decision
        try:
            while isinstance(found, InProgress) and (left := began + wait_for - time.monotonic()) > 0:
                await self._news(id_, left)
                asked_at = time.monotonic()
                found = await decide()
        finally:
            self.waiting.leave()
            self.said.say(events.LET_GO, id_, took_for=time.monotonic() - began)
        # The lease counts from when it was asked for, not from when the waiting began.
        return found._replace(waited_for=ms(asked_at - began)) if isinstance(found, Execute) else found

    async def _news(self, id_: bytes, left: float) -> None:
        """Return when the record has changed, its lease has ended, or the time is up."""
        loop, news = asyncio.get_running_loop(), asyncio.Event()

        def wake() -> None:
            loop.call_soon_threadsafe(news.set)

        if self._opening[0] is not loop:
            self._opening = (loop, asyncio.Lock())
        async with self._opening[1]:
            if self.waiting.listener is None:
                self.waiting.listener = await self.store.listen(self.waiting.told)
        self.waiting.add(id_, wake)
        try:
            for_ = pause(await self.store.watch(id_), left)
            if for_ is not None:
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(for_):
                        await news.wait()
        finally:
            self.waiting.remove(id_, wake)

    async def settle(self, attempt: Attempt, settlement: Settlement) -> Written:
        """Record how an attempt ended. If the store cannot take it now it is owed, and StoreError says so."""
        began = time.monotonic() if self.said.sinks else 0.0
        try:
            written = self._direct.settle(settlement) if self._direct is not None else await self._written(settlement)
        except BaseException as error:
            if isinstance(error, StoreError):
                self.said.say(events.STORE_ERROR, attempt.id, str(error))
            self.keeper.owe(settlement)
            raise
        finally:
            self.keeper.drop(attempt)
        if isinstance(written, Stale):
            self.said.say(events.SETTLE_REFUSED, attempt.id)
        else:
            self.waiting.told(attempt.id)
            if self.said.sinks:
                say_settled(self.said, attempt, settlement, began)
        return written

    async def _written(self, settlement: Settlement) -> Written:
        try:
            return await self._batched.settlements(settlement)
        except asyncio.CancelledError:
            # The work has ended, and cancelling does not undo it: the outcome goes out again, by its token, and
            # whoever cancels us waits for that, once.
            await self._batched.settlements(settlement)
            raise

    async def mark(self, attempt: Attempt, renewal: Renewal) -> None:
        """Set the latch, or keep the journal, or both. LeaseLost: nothing was written, and no effect may begin."""
        direct = self._direct
        written = direct.renew(renewal) if direct is not None else await self._batched.renewals(renewal)
        if isinstance(written, Stale):
            raise lost(attempt)

    async def close(self) -> None:
        """Answer what is queued and let go of the store."""
        if self.closed:
            return
        self.closed = self._direct is None  # memory is not given back, and may be used on
        try:
            for combiner in (self._batched.claims, self._batched.settlements, self._batched.renewals):
                await combiner.close()
            await asyncio.to_thread(self.keeper.close)
        finally:
            try:
                self.waiting.close()
            finally:
                await self.store.close()
