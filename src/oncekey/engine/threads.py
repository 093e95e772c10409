"""Many requests, one round trip, for threads.

The first thread to arrive leads: it takes the queue as a batch, sends it and hands out the answers. Whoever arrives
meanwhile queues and sleeps. A leader whose own answer has come passes the lead to the first thread that still waits.
"""

from __future__ import annotations

import os
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from typing import Generic, TypeVar

from oncekey.engine.combiner import PATIENCE, HasId, own
from oncekey.engine.events import log
from oncekey.engine.tuning import DEFAULT, Tuning
from oncekey.errors import OnceKeyError, StoreUnavailable

_FORKED = threading.Lock()

C = TypeVar("C", bound=HasId)
R = TypeVar("R")


class _Slot(Generic[C, R]):
    """One waiting thread: asleep on `gate` until its answer is there or the lead is passed to it."""

    __slots__ = ("answer", "command", "done", "error", "followers", "gate", "gone", "leads")

    def __init__(self, command: C) -> None:
        self.command = command
        self.gate = threading.Lock()
        self.gate.acquire()
        self.done = False
        self.leads = self.gone = False
        # Commands on the same record that stood behind this one when it was sent.
        self.followers: list[_Slot[C, R]] = []
        self.answer: R | None = None
        self.error: BaseException | None = None

    def finish(self, answer: R | None, error: BaseException | None) -> None:
        if not self.done:
            self.answer, self.error, self.done = answer, error, True
            self.gate.release()


class ThreadCombiner(Generic[C, R]):
    """Call it with one command from any thread; it goes out in a batch with its neighbours. `shared` as in combiner."""

    def __init__(
        self,
        send: Callable[[Sequence[C]], list[R]],
        tuning: Tuning = DEFAULT,
        counted: Callable[[int], None] | None = None,
        *,
        shared: Callable[[R], bool] | None = None,
    ) -> None:
        self._send = send
        self._shared = shared
        self._lanes = tuning.lanes
        self._limit = tuning.batch
        self._store_for = tuning.store_for
        self._counted = counted
        self.batches = 0
        self.items = 0
        self._reset()

    def _reset(self) -> None:
        self._mutex = threading.Lock()
        self._queue: deque[_Slot[C, R]] = deque()
        self._leaders = 0
        self._pid = os.getpid()

    def _begin_anew(self) -> None:
        """In a forked child, once, though its first requests may come at the same moment."""
        with _FORKED:
            if self._pid != os.getpid():
                self._reset()

    def __call__(self, command: C) -> R:
        """Do one command and return its answer."""
        if self._pid != os.getpid():
            self._begin_anew()
        slot: _Slot[C, R] = _Slot(command)
        with self._mutex:
            lead = self._leaders < self._lanes
            if lead:
                self._leaders += 1
            else:
                self._queue.append(slot)
        if not lead:
            self._sleep(slot)
        if not slot.done:
            self._lead(slot)
        if slot.error is not None:
            raise slot.error
        return slot.answer  # type: ignore[return-value] # R may itself be None; `done` says that it is there

    def _sleep(self, slot: _Slot[C, R]) -> None:
        """Until the answer is there or the lead is ours. A signal may end it: then the lead goes on to the next."""
        try:
            slot.gate.acquire()
        except BaseException:
            with self._mutex:
                slot.gone = True
                if slot in self._queue:
                    self._queue.remove(slot)
            if slot.leads:
                self._pass_on()
            raise

    def _lead(self, first: _Slot[C, R]) -> None:
        """Send one batch, our own command first; then pass the lead to whoever waits longest."""
        batch = [first]
        try:
            self._take(batch)
            self._deliver(batch)
        except BaseException as error:
            for slot in batch:
                self._finish(slot, None, own(error))
            if not isinstance(error, Exception):
                raise
            log.exception("a store call failed in a way that its store does not know")
        finally:
            self._pass_on()

    def _take(self, batch: list[_Slot[C, R]]) -> None:
        again: list[_Slot[C, R]] = []
        firsts = {batch[0].command.id: batch[0]}
        with self._mutex:
            while self._queue and len(batch) < self._limit:
                slot = self._queue.popleft()
                first = firsts.setdefault(slot.command.id, slot)
                if first is slot:
                    batch.append(slot)
                elif self._shared is not None:
                    first.followers.append(slot)
                else:
                    again.append(slot)
            self._queue.extendleft(reversed(again))
            self.batches += 1
            self.items += len(batch)

    def _deliver(self, batch: list[_Slot[C, R]]) -> None:
        if self._counted is not None:
            self._counted(len(batch))
        started = time.monotonic()
        try:
            answers = self._send([slot.command for slot in batch])
        except OnceKeyError as error:
            quick = time.monotonic() - started < self._store_for / 2
            self._singly(batch, error, 0 if quick else PATIENCE)
            return
        if len(answers) != len(batch):
            raise ValueError(f"the store gave {len(answers)} answers to {len(batch)} commands")
        for slot, answer in zip(batch, answers, strict=True):
            self._finish(slot, answer, None)

    def _finish(self, slot: _Slot[C, R], answer: R | None, error: BaseException | None) -> None:
        """Its answer, and that of who stood behind it. A record won is to be seen anew by the others."""
        followers, slot.followers = slot.followers, []
        shared = error is not None or (self._shared is not None and self._shared(answer))  # type: ignore[arg-type]
        for follower in followers if shared else ():
            follower.finish(answer, own(error) if error is not None else None)
        if not shared and followers:
            with self._mutex:
                self._queue.extendleft(one for one in reversed(followers) if not one.gone)
        slot.finish(answer, error)

    def _singly(self, batch: list[_Slot[C, R]], error: OnceKeyError, failures: int) -> None:
        for slot in batch:
            if failures >= PATIENCE:
                self._finish(slot, None, own(error))
                continue
            try:
                [answer] = self._send([slot.command])
            except OnceKeyError as single:
                failures = failures + 1 if isinstance(single, StoreUnavailable) else 0
                self._finish(slot, None, single)
            else:
                failures = 0
                self._finish(slot, answer, None)

    def _pass_on(self) -> None:
        with self._mutex:
            if not self._queue:
                self._leaders -= 1
                return
            heir = self._queue.popleft()
            heir.leads = True
        heir.gate.release()
