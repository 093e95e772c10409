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

from oncekey.engine.combiner import PATIENCE, HasId
from oncekey.engine.tuning import DEFAULT, Tuning
from oncekey.errors import OnceKeyError, StoreUnavailable

C = TypeVar("C", bound=HasId)
R = TypeVar("R")


class _Slot(Generic[C, R]):
    """One waiting thread: asleep on `gate` until its answer is there or the lead is passed to it."""

    __slots__ = ("answer", "command", "done", "error", "gate")

    def __init__(self, command: C) -> None:
        self.command = command
        self.gate = threading.Lock()
        self.gate.acquire()
        self.done = False
        self.answer: R | None = None
        self.error: BaseException | None = None

    def finish(self, answer: R | None, error: BaseException | None) -> None:
        self.answer, self.error, self.done = answer, error, True
        self.gate.release()


class ThreadCombiner(Generic[C, R]):
    """Call it with one command from any thread; it goes out in a batch with its neighbours."""

    def __init__(self, send: Callable[[Sequence[C]], list[R]], tuning: Tuning = DEFAULT) -> None:
        self._send = send
        self._lanes = tuning.lanes
        self._limit = tuning.batch
        self._store_for = tuning.store_for
        self.batches = 0
        self.items = 0
        self._reset()

    def _reset(self) -> None:
        self._pid = os.getpid()
        self._mutex = threading.Lock()
        self._queue: deque[_Slot[C, R]] = deque()
        self._leaders = 0

    def __call__(self, command: C) -> R:
        """Do one command and return its answer."""
        if self._pid != os.getpid():
            self._reset()
        slot: _Slot[C, R] = _Slot(command)
        with self._mutex:
            lead = self._leaders < self._lanes
            if lead:
                self._leaders += 1
            else:
                self._queue.append(slot)
        if not lead:
            slot.gate.acquire()
        if not slot.done:
            self._lead(slot)
        if slot.error is not None:
            raise slot.error
        return slot.answer  # type: ignore[return-value] # R may itself be None; `done` says that it is there

    def _lead(self, own: _Slot[C, R]) -> None:
        """Send one batch, our own command first; then pass the lead to whoever waits longest."""
        try:
            self._deliver(self._take(own))
        finally:
            self._pass_on()

    def _take(self, own: _Slot[C, R]) -> list[_Slot[C, R]]:
        batch = [own]
        again: list[_Slot[C, R]] = []
        ids = {own.command.id}
        with self._mutex:
            while self._queue and len(batch) < self._limit:
                slot = self._queue.popleft()
                if slot.command.id in ids:
                    again.append(slot)
                else:
                    ids.add(slot.command.id)
                    batch.append(slot)
            self._queue.extendleft(reversed(again))
            self.batches += 1
            self.items += len(batch)
        return batch

    def _deliver(self, batch: list[_Slot[C, R]]) -> None:
        started = time.monotonic()
        try:
            answers = self._send([slot.command for slot in batch])
        except OnceKeyError as error:
            quick = time.monotonic() - started < self._store_for / 2
            self._singly(batch, error, 0 if quick else PATIENCE)
        except BaseException as error:
            for slot in batch:
                slot.finish(None, _own(error))
            raise
        else:
            for slot, answer in zip(batch, answers, strict=True):
                slot.finish(answer, None)

    def _singly(self, batch: list[_Slot[C, R]], error: OnceKeyError, failures: int) -> None:
        for slot in batch:
            if failures >= PATIENCE:
                slot.finish(None, _own(error))
                continue
            try:
                [answer] = self._send([slot.command])
            except OnceKeyError as single:
                failures = failures + 1 if isinstance(single, StoreUnavailable) else 0
                slot.finish(None, single)
            else:
                failures = 0
                slot.finish(answer, None)

    def _pass_on(self) -> None:
        with self._mutex:
            if not self._queue:
                self._leaders -= 1
                return
            heir = self._queue.popleft()
        heir.gate.release()


def _own(error: BaseException) -> BaseException:
    if isinstance(error, OnceKeyError):
        return type(error)(*error.args)
    failed = StoreUnavailable("the store could not be asked; nothing is known of this call")
    failed.__cause__ = error
    return failed
