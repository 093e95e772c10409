"""Keeps leases alive, and settles what could not be settled at once, from a thread of its own.

A thread, because a blocked event loop must not lose its leases. It starts with the first attempt, sleeps while there
is none, and renews in batches. A renewal that is refused, or that does not succeed before the lease's end, loses the
lease: the attempt is told, nothing is stopped by force.
"""

from __future__ import annotations

import contextlib
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
from oncekey.errors import OnceKeyError, StoreUnavailable

# The longest nap: a lease is at least this much longer than its renewal may be late.
NAP_FOR = 1.0
# How long an outcome that the store did not take is offered again before it is given up (and found by a sweep).
OWED_FOR = 900.0
# How long a claim whose caller has left may still be on its way: until then its release is offered again.
LANDING_FOR = 30.0
# Two failures in a row are a store that is away: the rest of what is owed waits, because leases must not.
PATIENCE = 2
# How long the end of the thread is waited for.
END_FOR = 5.0


class Owed(NamedTuple):
    """A settlement that the store has not confirmed yet. A `quiet` one may well find nothing to settle, yet.

    It is offered again `after` that time; `gap` is how long that took the last time.
    """

    settlement: Settlement
    until: float
    quiet: bool
    after: float = 0.0
    gap: float = NAP_FOR


def _nothing() -> None:
    pass


class Writer(NamedTuple):
    """The two store verbs that the keeper uses, under threads, and how to let go of the connection behind them."""

    renew: Callable[[Sequence[Renewal]], list[Written]]
    settle: Callable[[Sequence[Settlement]], list[Written]]
    close: Callable[[], None] = _nothing


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
        self._hurry = threading.Event()
        self._starting = threading.Lock()
        self._closed = False
        self._thread: threading.Thread | None = None
        self._nap_for = NAP_FOR

    def keep(self, attempt: Attempt) -> None:
        """Renew this attempt's lease until it is dropped."""
        if self._pid != os.getpid():
            self._reset()
        self._attempts[attempt.token] = attempt
        self._nap_for = min(self._nap_for, attempt.lease_for / 6)
        if self._closed or not self._work.is_set():
            self._wake()

    def drop(self, attempt: Attempt) -> None:
        """Its outcome is recorded, or will be: stop renewing."""
        self._attempts.pop(attempt.token, None)

    def owe(self, settlement: Settlement, *, quiet: bool = False) -> None:
        """Settle this as soon as the store is back."""
        if not quiet:
            self._said.say(events.SETTLE_OWED, settlement.id)
        if self._pid != os.getpid():
            self._reset()
        first = not self._owed
        self._owed.append(Owed(settlement, time.monotonic() + (LANDING_FOR if quiet else OWED_FOR), quiet))
        self._wake()
        if first:
            self._hurry.set()

    def owes(self, token: bytes) -> bool:
        """Whether a settlement with this token has not been confirmed yet."""
        return bool(self._owed) and any(debt.settlement.token == token for debt in list(self._owed))

    def _wake(self) -> None:
        self._work.set()
        with self._starting:
            self._closed = False
            if self._thread is None or not self._thread.is_alive():
                self._thread = threading.Thread(target=self._run, name="oncekey-keeper", daemon=True)
                try:
                    self._thread.start()
                except RuntimeError as full:
                    self._work.clear()  # so that the next attempt asks for a thread again
                    log.error("leases are not renewed for now: %s", full)

    def _run(self) -> None:
        while not self._closed:
            self._work.wait()
            try:
                self.run_once(time.monotonic())
            except BaseException:  # noqa: BLE001 - the thread must survive whatever a driver throws
                log.exception("lease renewal failed; it is tried again")
            if not self._attempts and not self._owed:
                self._work.clear()
                if self._attempts or self._owed or self._closed:
                    self._work.set()
            if not self._closed:
                self._hurry.wait(self._nap_for)
                self._hurry.clear()

    def run_once(self, now: float) -> None:
        """Renew what is due, settle what is owed."""
        due = [attempt for attempt in list(self._attempts.values()) if attempt.renew_at <= now and attempt.lost is None]
        for attempt in due:
            if now - attempt.started >= attempt.cap_for:
                self._lose(attempt, f"the attempt has run for its cap of {attempt.cap_for:g} s")
        due = [attempt for attempt in due if attempt.lost is None]
        if due:
            # Of two attempts on one record the older one waits: the ids of one call differ.
            self._renew(list({attempt.id: attempt for attempt in due}.values()))
        if self._owed:
            self._pay(now)

    def _use(self) -> Writer:
        if self._writer is None:
            self._writer = self._open_writer()
        return self._writer

    def _renew(self, due: list[Attempt]) -> None:
        sent = time.monotonic()
        try:
            answers = self._use().renew([_renewal(attempt) for attempt in due])
        except Exception as error:  # noqa: BLE001 - whatever a driver throws, leases that are over are told so
            if len(due) > 1 and not isinstance(error, StoreUnavailable):
                for attempt in due:
                    self._renew([attempt])
                return
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

    def _pay(self, now: float) -> None:
        failures = 0
        for debt in [debt for debt in list(self._owed) if debt.after <= now]:
            if failures >= PATIENCE:
                return
            try:
                [answer] = self._use().settle([debt.settlement])
            except Exception as error:  # noqa: BLE001 - what a driver throws is no reason to forget an outcome
                failures += not isinstance(error, OnceKeyError) or isinstance(error, StoreUnavailable)
                self._put_off(debt, now, f"the store did not take it: {error}")
                continue
            failures = 0
            if not isinstance(answer, Stale):
                self._forget(debt)
                self._settled(debt.settlement.id)
            elif debt.quiet:
                self._put_off(debt._replace(after=now + debt.gap, gap=2 * debt.gap), now, "")
            else:
                self._forget(debt)
                self._said.say(events.SETTLE_REFUSED, debt.settlement.id)

    def _put_off(self, debt: Owed, now: float, why: str) -> None:
        """To the end of the row, so that one record that cannot be written does not stand before the others."""
        self._forget(debt)
        if now < debt.until:
            self._owed.append(debt)
        elif not debt.quiet:
            log.error("the outcome of operation %s is given up: %s", key_ref(debt.settlement.id), why)

    def _forget(self, debt: Owed) -> None:
        for held in list(self._owed):
            if held.settlement is debt.settlement:
                with contextlib.suppress(ValueError):
                    self._owed.remove(held)

    def close(self) -> None:
        """Stop the thread and let go of the store; a last attempt is made to settle what is owed."""
        self._closed = True
        self._work.set()
        self._hurry.set()
        thread = self._thread
        if thread is not None and thread.is_alive() and thread is not threading.current_thread():
            thread.join(END_FOR)
            if thread.is_alive():
                return  # it hangs in the store, and what it uses cannot be taken from it
        if self._owed:
            self._pay(time.monotonic())
        writer, self._writer = self._writer, None
        if writer is not None:
            writer.close()


def _renewal(attempt: Attempt) -> Renewal:
    return Renewal(attempt.id, attempt.token, ms(attempt.lease_for), ms(attempt.cap_for))
