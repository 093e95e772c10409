"""Keeps leases alive, and settles what could not be settled at once, from a thread of its own.

A thread, because a blocked event loop must not lose its leases. It starts with the first attempt, sleeps while there
is none, and renews in batches. A renewal that is refused, or that does not succeed before the lease's end, loses the
lease: the attempt is told, nothing is stopped by force.
"""

from __future__ import annotations

import os
import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

from oncekey.core.commands import Renewal, Settlement, Stale, Written
from oncekey.core.keys import key_ref
from oncekey.core.policy import ms
from oncekey.core.record import State
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
# How much is settled in one call.
BATCH = 128
# While a store is away every request that it fails leaves a release behind. The first ones may have been granted just
# before; beyond so many none is kept, and what was granted after all lapses by itself.
MOST_QUIET = 10_000
# How long the end of the thread is waited for.
END_FOR = 5.0
ENDS = (State.COMPLETED, State.FAILED_RETRYABLE, State.UNKNOWN)
_FORKED = threading.Lock()


class Owed(NamedTuple):
    """A settlement that the store has not confirmed yet. A `quiet` one may well find nothing to settle, yet.

    It is offered again `after` that time; `gap` is how long that took the last time.
    """

    settlement: Settlement
    until: float
    quiet: bool
    after: float = 0.0
    gap: float = NAP_FOR

    @property
    def name(self) -> bytes:
        """Under which it is owed: an attempt that was given up may still tell the truth, and then owes both."""
        return _name(self.settlement.token, self.settlement.target)


def _name(token: bytes, target: State) -> bytes:
    return token + bytes((target,))


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
        self._writer: Writer | None = None
        self._attempts: dict[bytes, Attempt] = {}
        self._owed: OrderedDict[bytes, Owed] = OrderedDict()
        self._work = threading.Event()
        self._hurry = threading.Event()
        self._starting = threading.Lock()
        self._closed = False
        self._thread: threading.Thread | None = None
        self._nap_for = NAP_FOR
        self._pid = os.getpid()  # last: whoever sees it sees all of the above

    def _mine(self) -> None:
        """In a forked child: begin anew, once, though its first requests may come at the same moment."""
        if self._pid != os.getpid():
            with _FORKED:
                if self._pid != os.getpid():
                    self._reset()

    def keep(self, attempt: Attempt) -> None:
        """Renew this attempt's lease until it is dropped."""
        if self._pid != os.getpid():
            self._mine()
        if self._said.sinks:
            attempt.entered = time.monotonic()
        self._attempts[attempt.token] = attempt
        if attempt.lease_for / 6 < self._nap_for:
            # The nap under way may be longer than this lease.
            self._nap_for = attempt.lease_for / 6
            self._hurry.set()
        if self._closed or not self._work.is_set():
            self._wake()

    def drop(self, attempt: Attempt) -> None:
        """Its outcome is recorded, or will be: stop renewing."""
        self._attempts.pop(attempt.token, None)

    def owe(self, settlement: Settlement, *, quiet: bool = False) -> None:
        """Settle this as soon as the store is back."""
        if not quiet:
            self._said.say(events.SETTLE_OWED, settlement.id)
        self._mine()
        first = not self._owed
        if quiet and len(self._owed) >= MOST_QUIET:
            return
        debt = Owed(settlement, time.monotonic() + (LANDING_FOR if quiet else OWED_FOR), quiet)
        self._owed[debt.name] = debt
        self._wake()
        if first:
            self._hurry.set()

    def owes(self, token: bytes) -> bool:
        """Whether a settlement with this token has not been confirmed yet."""
        return bool(self._owed) and any(_name(token, target) in self._owed for target in ENDS)

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
        """Settle what is owed, in batches, and leave off in time for the next renewals."""
        began, failures = time.monotonic(), 0
        for batch in _batches([debt for debt in list(self._owed.values()) if debt.after <= now]):
            try:
                failures = self._offer(batch, now, failures)
            except Exception as error:  # noqa: BLE001 - whatever a driver throws
                # One bad item must not fail its neighbours: each is offered alone.
                failures = int(isinstance(error, StoreUnavailable))
                for debt in batch:
                    if failures < PATIENCE:
                        failures = self._offer([debt], now, failures)
            if failures >= PATIENCE:
                return
            if time.monotonic() - began > self._nap_for:
                self._hurry.set()
                return

    def _offer(self, batch: list[Owed], now: float, failures: int) -> int:
        """One call of the store. The failures in a row so far; what several together fail with is raised."""
        try:
            answers = self._use().settle([debt.settlement for debt in batch])
        except Exception as error:  # what a driver throws is no reason to forget an outcome
            if len(batch) > 1:
                raise
            for debt in batch:
                self._put_off(debt, now, f"the store did not take it: {error}")
            return failures + (not isinstance(error, OnceKeyError) or isinstance(error, StoreUnavailable))
        for debt, answer in zip(batch, answers, strict=True):
            self._answered(debt, answer, now)
        return 0

    def _answered(self, debt: Owed, answer: Written, now: float) -> None:
        if not isinstance(answer, Stale):
            self._forget(debt)
            self._settled(debt.settlement.id)
            if not debt.quiet:
                done = debt.settlement
                self._said.say(events.ENDED[done.target], done.id, done.note)
        elif debt.quiet:
            self._put_off(debt._replace(after=now + debt.gap, gap=2 * debt.gap), now, "")
        else:
            self._forget(debt)
            self._said.say(events.SETTLE_REFUSED, debt.settlement.id)

    def _put_off(self, debt: Owed, now: float, why: str) -> None:
        """To the end of the row, so that one record that cannot be written does not stand before the others."""
        if now < debt.until:
            held = self._owed.get(debt.name)
            if held is not None and held.settlement is debt.settlement:
                self._owed[debt.name] = debt
                self._owed.move_to_end(debt.name)
            return
        self._forget(debt)
        if not debt.quiet:
            log.error("the outcome of operation %s is given up: %s", key_ref(debt.settlement.id), why)

    def _forget(self, debt: Owed) -> None:
        held = self._owed.get(debt.name)
        if held is not None and held.settlement is debt.settlement:
            del self._owed[debt.name]

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


def _batches(debts: list[Owed]) -> Iterator[list[Owed]]:
    """In their order, at most so many in one call. The ids of a call differ: a record's second debt comes after."""
    while debts:
        batch: dict[bytes, Owed] = {}
        later = []
        for debt in debts:
            if len(batch) < BATCH and debt.settlement.id not in batch:
                batch[debt.settlement.id] = debt
            else:
                later.append(debt)
        yield list(batch.values())
        debts = later


def _renewal(attempt: Attempt) -> Renewal:
    return Renewal(attempt.id, attempt.token, ms(attempt.lease_for), ms(attempt.cap_for))
