"""Keeps leases alive, and settles what could not be settled at once, from a thread of its own.

A thread, because a blocked event loop must not lose its leases. It starts with the first attempt, sleeps while there
is none, and renews in batches. A renewal that is refused, or that does not succeed before the lease's end, loses the
lease: the attempt is told, nothing is stopped by force.
"""

from __future__ import annotations

import os
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from typing import NamedTuple

from oncekey.core.commands import Renewal, Settlement, Stale, Written
from oncekey.core.keys import key_ref
from oncekey.core.policy import ms
from oncekey.engine import events
from oncekey.engine.attempt import Attempt
from oncekey.engine.events import Events, log
from oncekey.errors import OnceKeyError

# The longest nap: a lease is at least this much longer than its renewal may be late.
NAP_FOR = 1.0
# How long an outcome that the store did not take is offered again before it is given up (and found by a sweep).
OWED_FOR = 900.0


class Owed(NamedTuple):
    """A settlement that the store has not confirmed yet. A `quiet` one may well find nothing to settle."""

    settlement: Settlement
    until: float
    quiet: bool


class Writer(NamedTuple):
    """The two store verbs that the keeper uses, under threads."""

    renew: Callable[[Sequence[Renewal]], list[Written]]
    settle: Callable[[Sequence[Settlement]], list[Written]]


class Keeper:
    """One per engine. `open_writer` is called in the thread, the first time something is due."""

    def __init__(self, open_writer: Callable[[], Writer], said: Events, settled: Callable[[bytes], None]) -> None:
        self._open_writer = open_writer
        self._said = said
        self._settled = settled
        self._reset()

    def _reset(self) -> None:
        self._pid = os.getpid()
        self._writer: Writer | None = None
        self._attempts: dict[bytes, Attempt] = {}
        self._owed: deque[Owed] = deque()
        self._work = threading.Event()
        self._closed = False
        self._thread: threading.Thread | None = None
        self._nap_for = NAP_FOR

    def keep(self, attempt: Attempt) -> None:
        """Renew this attempt's lease until it is dropped."""
        if self._pid != os.getpid():
            self._reset()
        self._attempts[attempt.token] = attempt
        self._nap_for = min(self._nap_for, attempt.lease_for / 6)
        if not self._work.is_set():
            self._wake()

    def drop(self, attempt: Attempt) -> None:
        """Its outcome is recorded, or will be: stop renewing."""
        self._attempts.pop(attempt.token, None)

    def owe(self, settlement: Settlement, *, quiet: bool = False) -> None:
        """Settle this as soon as the store is back."""
        if not quiet:
            self._said.say(events.SETTLE_OWED, settlement.id)
        self._owed.append(Owed(settlement, time.monotonic() + OWED_FOR, quiet))
        self._wake()

    def _wake(self) -> None:
        self._work.set()
        if self._thread is None or not self._thread.is_alive():
            self._thread = threading.Thread(target=self._run, name="oncekey-keeper", daemon=True)
            self._thread.start()

    def _run(self) -> None:
        while not self._closed:
            self._work.wait()
            try:
                self.run_once(time.monotonic())
            except Exception:  # noqa: BLE001 - the thread must survive whatever a driver throws
                log.exception("lease renewal failed; it is tried again")
            if not self._attempts and not self._owed:
                self._work.clear()
                if self._attempts or self._owed:
                    self._work.set()
            time.sleep(self._nap_for)

    def run_once(self, now: float) -> None:
        """Renew what is due, settle what is owed."""
        due = [attempt for attempt in list(self._attempts.values()) if attempt.renew_at <= now and attempt.lost is None]
        for attempt in due:
            if now - attempt.started >= attempt.cap_for:
                self._lose(attempt, f"the attempt has run for its cap of {attempt.cap_for:g} s")
        due = [attempt for attempt in due if attempt.lost is None]
        if due:
            self._renew(due)
        if self._owed:
            self._pay()

    def _use(self) -> Writer:
        if self._writer is None:
            self._writer = self._open_writer()
        return self._writer

    def _renew(self, due: list[Attempt]) -> None:
        sent = time.monotonic()
        try:
            answers = self._use().renew([_renewal(attempt) for attempt in due])
        except OnceKeyError as error:
            log.warning("leases could not be renewed: %s", error)
            for attempt in due:
                if time.monotonic() >= attempt.until:
                    self._lose(attempt, f"it could not be renewed in time: {error}")
            return
        for attempt, answer in zip(due, answers, strict=True):
            if isinstance(answer, Stale):
                if attempt.token in self._attempts:
                    self._lose(attempt, "the store no longer knows this lease")
            else:
                attempt.until = sent + attempt.lease_for
                attempt.renew_at = sent + attempt.lease_for / 3

    def _lose(self, attempt: Attempt, why: str) -> None:
        self._said.say(events.LEASE_LOST, attempt.id, why)
        log.warning("lease lost on operation %s: %s", key_ref(attempt.id), why)
        attempt.lose(why)
        self.drop(attempt)

    def _pay(self) -> None:
        now = time.monotonic()
        for _ in range(len(self._owed)):
            debt = self._owed.popleft()
            try:
                [answer] = self._use().settle([debt.settlement])
            except OnceKeyError:
                if now < debt.until:
                    self._owed.append(debt)
                continue
            if isinstance(answer, Stale):
                if not debt.quiet:
                    self._said.say(events.SETTLE_REFUSED, debt.settlement.id)
            else:
                self._settled(debt.settlement.id)

    def close(self) -> None:
        """Stop the thread; a last attempt is made to settle what is owed."""
        if self._owed:
            self._pay()
        self._closed = True
        self._work.set()


def _renewal(attempt: Attempt) -> Renewal:
    return Renewal(attempt.id, attempt.token, ms(attempt.lease_for), ms(attempt.cap_for))
