from __future__ import annotations

import threading
import time

from oncekey.core.commands import Settlement
from oncekey.core.decision import Execute
from oncekey.core.record import State
from oncekey.engine.attempt import Attempt
from oncekey.engine.events import Event, Events
from oncekey.engine.keeper import Keeper, Writer
from tests.engine.stubs import Shaky, claim


class Bench:
    """A keeper over a store, an attempt on it, and what was said."""

    def __init__(self, lease_for: float = 30.0, cap_for: float = 900.0) -> None:
        self.store = Shaky()
        self.events: list[Event] = []
        self.settled: list[bytes] = []
        self.keeper = Keeper(
            lambda: Writer(self.store.renew, self.store.settle), Events((self.events.append,)), self.settled.append
        )
        self.claim = claim(lease_for=round(lease_for * 1000))
        self.store.inner.claim([self.claim])
        execute = Execute(self.claim.id, self.claim.token, 1, self.claim.lease_for)
        self.attempt = Attempt(execute, time.monotonic(), lease_for, cap_for, State.EXECUTING)
        self.keeper._attempts[self.attempt.token] = self.attempt

    def record(self) -> State:
        seen = self.store.inner.get(self.claim.id)
        assert seen is not None
        return seen.record.state

    def names(self) -> list[str]:
        return [event.name for event in self.events]


def test_a_lease_is_renewed_after_a_third_of_it() -> None:
    """Before that nothing is sent; then the owner's deadline moves on."""
    bench = Bench()
    now = bench.attempt.started
    bench.keeper.run_once(now + 9.9)
    assert not bench.store.called.is_set()
    until = bench.attempt.until
    bench.keeper.run_once(now + 10.1)
    assert bench.store.called.is_set()
    assert bench.attempt.until >= until
    assert bench.attempt.alive


def test_a_renewal_that_the_store_refuses_loses_the_lease() -> None:
    """Somebody settled the record: the owner is told, once, with the reason."""
    bench = Bench()
    told: list[str] = []
    bench.attempt.on_lost(told.append)
    bench.store.inner.settle([Settlement(bench.claim.id, bench.claim.token, State.UNKNOWN)])
    for _ in range(2):
        bench.keeper.run_once(bench.attempt.started + 11)
    assert told == ["the store no longer knows this lease"]
    assert not bench.attempt.alive
    assert bench.names() == ["lease_lost"]


def test_a_store_that_is_away_loses_the_lease_only_at_its_end() -> None:
    """A failed renewal is tried again while the lease lives."""
    bench = Bench(lease_for=0.2)
    bench.store.down = {"renew"}
    bench.keeper.run_once(bench.attempt.renew_at + 0.001)
    assert bench.names() == []
    time.sleep(max(0.0, bench.attempt.until - time.monotonic()))
    bench.keeper.run_once(time.monotonic())
    assert bench.attempt.lost is not None
    assert "could not be renewed in time" in bench.attempt.lost


def test_renewal_ends_at_the_cap() -> None:
    """A hung handler does not hold its key for ever."""
    bench = Bench(cap_for=60.0)
    bench.attempt.started -= 60.0
    bench.keeper.run_once(bench.attempt.renew_at + 0.001)
    assert bench.attempt.lost == "the attempt has run for its cap of 60 s"
    assert not bench.store.called.is_set()


def test_an_owed_settlement_is_paid_when_the_store_is_back() -> None:
    """Store trouble after the effect never releases the key: the outcome is offered until it is taken."""
    bench = Bench()
    bench.store.down = {"settle"}
    bench.keeper._owed.clear()
    bench.keeper._work.set()  # no thread: the test turns the crank itself
    bench.keeper._thread = threading.current_thread()
    bench.keeper.owe(Settlement(bench.claim.id, bench.claim.token, State.COMPLETED, b"out", 1000))
    bench.keeper.run_once(time.monotonic())
    assert bench.record() is State.EXECUTING
    bench.store.down.clear()
    bench.keeper.run_once(time.monotonic())
    assert bench.record() is State.COMPLETED
    assert bench.settled == [bench.claim.id]


def test_a_debt_whose_reply_was_lost_is_paid_once() -> None:
    """Repeating a settlement with its token changes nothing."""
    bench = Bench()
    bench.store.down, bench.store.lose_replies = {"settle"}, True
    bench.keeper._thread = threading.current_thread()
    bench.keeper.owe(Settlement(bench.claim.id, bench.claim.token, State.COMPLETED, b"out", 1000))
    bench.keeper.run_once(time.monotonic())
    bench.store.down.clear()
    bench.keeper.run_once(time.monotonic())
    seen = bench.store.inner.get(bench.claim.id)
    assert seen is not None
    assert (seen.record.version, seen.record.outcome) == (2, b"out")
    assert not bench.keeper._owed


def test_the_thread_renews_by_itself_and_sleeps_when_there_is_nothing_to_do() -> None:
    """The thread starts with the first attempt; a busy caller does not starve it."""
    bench = Bench(lease_for=0.3)
    bench.keeper._attempts.clear()
    bench.keeper.keep(bench.attempt)
    assert bench.store.called.wait(5)
    bench.keeper.drop(bench.attempt)
    deadline = time.monotonic() + 5
    while bench.keeper._work.is_set() and time.monotonic() < deadline:
        threading.Event().wait(0.01)
    assert not bench.keeper._work.is_set()
    bench.keeper.close()
