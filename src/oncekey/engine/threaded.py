"""The front door for threads. Its twin is engine.aio: read them side by side."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import TYPE_CHECKING

from oncekey.core import flows
from oncekey.core.commands import Claim, Claimed, Look, Renewal, Settlement, Stale, Swap, Won, Written
from oncekey.core.decision import Decision, Execute, InProgress
from oncekey.core.policy import ms
from oncekey.engine import events
from oncekey.engine.common import (
    check_colour,
    check_not_released,
    clock_of,
    lost,
    open_writer,
    pause,
    release,
    say,
    say_settled,
    seen,
    swapped,
)
from oncekey.engine.drivers import drive
from oncekey.engine.events import Events, Sink
from oncekey.engine.keeper import Keeper, Writer
from oncekey.engine.threads import ThreadCombiner
from oncekey.engine.tuning import Tuning
from oncekey.engine.waiting import Waiting
from oncekey.errors import StoreError
from oncekey.stores.memory import MemoryStore
from oncekey.stores.open import open_store

if TYPE_CHECKING:
    from oncekey.core.flows import Asked, Terms
    from oncekey.core.record import Seen
    from oncekey.engine.attempt import Attempt
    from oncekey.stores.contract import Store


class Direct:
    """Single commands on a store where nothing waits."""

    def __init__(self, store: Store, said: Events) -> None:
        self.store = store
        self.said = said

    def claim(self, command: Claim) -> Claimed:
        return self.store.claim((command,))[0]

    def settle(self, command: Settlement) -> Written:
        return self.store.settle((command,))[0]

    def renew(self, command: Renewal) -> Written:
        return self.store.renew((command,))[0]

    def swap(self, command: Swap) -> Written:
        return swapped(self.said, command, self.store.swap(command))

    def look(self, command: Look) -> Seen | None:
        return self.store.get(command.id)


class _Batched:
    """Single commands, sent with their neighbours."""

    def __init__(self, store: Store, tuning: Tuning, said: Events) -> None:
        self.store = store
        self.said = said
        self.claim: ThreadCombiner[Claim, Claimed] = ThreadCombiner(
            store.claim, tuning, said.counting("claim"), shared=seen
        )
        self.settle: ThreadCombiner[Settlement, Written] = ThreadCombiner(store.settle, tuning, said.counting("settle"))
        self.renew: ThreadCombiner[Renewal, Written] = ThreadCombiner(store.renew, tuning, said.counting("renew"))

    def swap(self, command: Swap) -> Written:
        return swapped(self.said, command, self.store.swap(command))

    def look(self, command: Look) -> Seen | None:
        return self.store.get(command.id)


class Engine:
    """Enter, settle and renew operations on one store, from threads."""

    def __init__(self, store: str | Store, tuning: Tuning | None = None, sinks: tuple[Sink, ...] = ()) -> None:
        self.tuning = tuning = tuning or Tuning()
        self.store = open_store(store, store_for=tuning.store_for) if isinstance(store, str) else store
        check_colour(self.store, awaited=False)
        self.now = clock_of(self.store)
        self.said = Events(sinks)
        self.waiting = Waiting(tuning.waiting)
        self.keeper = Keeper(self._writer, self.said, self.waiting.told)
        direct = isinstance(self.store, MemoryStore)
        self._performer = Direct(self.store, self.said) if direct else _Batched(self.store, tuning, self.said)
        self._opening = threading.Lock()

    def _writer(self) -> Writer:
        if isinstance(self.store, MemoryStore):
            return Writer(self.store.renew, self.store.settle)
        return open_writer(self.store.url, self.tuning.store_for)

    def enter(
        self, claim: Claim, asked: Asked, terms: Terms, wait_for: float | None = None, *, late: bool = False
    ) -> Decision:
        """What this request may do now; with `wait_for`, hold a duplicate for the first answer.

        A `late` request, older than answers are kept, may find its answer and is never run as new. A claim that failed
        is given back and cannot be entered again: make a new one, with a new token.
        """
        began = time.monotonic() if self.said.sinks else 0.0
        decision = self._decide(claim, asked, terms, late=late)
        if wait_for is not None and isinstance(decision, InProgress):
            decision = self._hold(lambda: self._decide(claim, asked, terms, late=late), claim.id, decision, wait_for)
            began = 0.0
        if self.said.sinks:
            say(self.said, decision, claim, began)
        return decision

    def _decide(self, claim: Claim, asked: Asked, terms: Terms, *, late: bool = False) -> Decision:
        check_not_released(self.keeper, claim)
        try:
            met = None if late else self._performer.claim(claim)
            if type(met) is Won:
                return flows.granted(claim, met)
            return drive(flows.enter(claim, asked, terms, late=late, met=met), self._performer)
        except BaseException as error:
            if isinstance(error, StoreError):
                self.said.say(events.STORE_ERROR, claim.id, str(error))
            # It may have been granted all the same: give it back, by its token, as soon as that can be done.
            self.keeper.owe(release(claim), quiet=True)
            raise

    def _hold(self, decide: Callable[[], Decision], id_: bytes, decision: InProgress, wait_for: float) -> Decision:
        began = asked_at = time.monotonic()
        if not self.waiting.enter():
            return decision
        self.said.say(events.HELD, id_)
        found: Decision = decision
        try:
            while isinstance(found, InProgress) and (left := began + wait_for - time.monotonic()) > 0:
                self._news(id_, left)
                asked_at = time.monotonic()
                found = decide()
        finally:
            self.waiting.leave()
            self.said.say(events.LET_GO, id_, took_for=time.monotonic() - began)
        # The lease counts from when it was asked for, not from when the waiting began.
        return found._replace(waited_for=ms(asked_at - began)) if isinstance(found, Execute) else found

    def _news(self, id_: bytes, left: float) -> None:
        """Return when the record has changed, its lease has ended, or the time is up."""
        news = threading.Event()
        with self._opening:
            if self.waiting.listener is None:
                self.waiting.listener = self.store.listen(self.waiting.told)
        self.waiting.add(id_, news.set)
        try:
            for_ = pause(self.store.watch(id_), left)
            if for_ is not None:
                news.wait(for_)
        finally:
            self.waiting.remove(id_, news.set)

    def settle(self, attempt: Attempt, settlement: Settlement) -> Written:
        """Record how an attempt ended. If the store cannot take it now it is owed, and StoreError says so."""
        began = time.monotonic() if self.said.sinks else 0.0
        try:
            written = self._performer.settle(settlement)
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

    def mark(self, attempt: Attempt, renewal: Renewal) -> None:
        """Set the latch, or keep the journal, or both. LeaseLost: nothing was written, and no effect may begin."""
        if isinstance(self._performer.renew(renewal), Stale):
            raise lost(attempt)

    def close(self) -> None:
        """Let go of the store."""
        try:
            self.keeper.close()
        finally:
            try:
                self.waiting.close()
            finally:
                self.store.close()
