from __future__ import annotations

import threading
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from oncekey.core.commands import Renewal, Settlement
from oncekey.core.decision import Execute
from oncekey.core.record import State
from oncekey.engine.attempt import Attempt
from oncekey.engine.common import release
from oncekey.engine.keeper import Writer
from oncekey.errors import RecordUnreadable, StoreUnavailable
from tests.engine.stubs import claim
from tests.engine.test_keeper import Bench


class Still(Bench):
    """A bench whose keeper has no thread: the test turns the crank itself."""

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self.keeper._thread = threading.current_thread()
        self.keeper._work.set()

    def turn(self) -> None:
        self.keeper.run_once(time.monotonic())

    def overdue(self) -> None:
        """The time is up for all that is owed."""
        for name, debt in list(self.keeper._owed.items()):
            self.keeper._owed[name] = debt._replace(until=0.0)

    def done(self, state: State = State.COMPLETED) -> Settlement:
        return Settlement(self.claim.id, self.claim.token, state, b"out", 1000)


def test_a_debt_survives_a_fault_of_the_driver() -> None:
    """What a driver throws by itself is no reason to forget an outcome."""
    bench = Still()
    real, bench.store.settle = bench.store.settle, _throw  # type: ignore[method-assign]
    bench.keeper.owe(bench.done())
    bench.turn()
    assert len(bench.keeper._owed) == 1
    bench.store.settle = real  # type: ignore[method-assign]
    bench.keeper._writer = None
    bench.turn()
    assert bench.record() is State.COMPLETED


def _throw(many: Any) -> Any:
    raise ZeroDivisionError


def test_a_debt_survives_a_store_that_cannot_be_opened() -> None:
    """The keeper's own connection is part of the store's trouble."""
    bench = Still()
    real = bench.keeper._open_writer
    bench.keeper._open_writer = lambda: _throw(())
    bench.keeper.owe(bench.done())
    bench.turn()
    bench.keeper._open_writer = real
    bench.turn()
    assert bench.record() is State.COMPLETED


def test_debts_are_not_offered_one_by_one_to_a_store_that_is_away() -> None:
    """Each call may take its whole time budget; leases must be renewed meanwhile."""
    bench, calls = Still(), []

    def away(many: Any) -> Any:
        calls.append(many)
        raise StoreUnavailable("refused")

    bench.store.settle = away  # type: ignore[method-assign]
    for _ in range(20):
        bench.keeper.owe(release(claim()), quiet=True)
    bench.turn()
    assert len(calls) <= 2
    assert len(bench.keeper._owed) == 20


def test_what_is_owed_is_settled_in_batches() -> None:
    """After an outage a thousand debts are a few calls: leases are not kept waiting for them."""
    bench, sizes = Still(), []
    settle = bench.store.inner.settle

    def noted(many: Sequence[Settlement]) -> Any:
        sizes.append(len({one.id for one in many}))
        return settle(many)

    bench.store.settle = noted  # type: ignore[method-assign]
    bench.keeper.owe(bench.done())
    for number in range(1000):
        bench.keeper.owe(release(claim(f"{number}")), quiet=True)
    bench.turn()
    assert bench.record() is State.COMPLETED
    assert sum(sizes) == 1001
    assert len(sizes) <= 10


def test_a_long_row_of_debts_lets_renewals_go_first() -> None:
    """Where a store takes its time, what is owed is left off after a nap's length and gone on with at once."""
    bench = Still()
    bench.keeper._nap_for = 0.0
    for number in range(300):
        bench.keeper.owe(release(claim(f"{number}")), quiet=True)
    bench.keeper._hurry.clear()
    bench.turn()
    assert sum(debt.after == 0.0 for debt in bench.keeper._owed.values()) == 172
    assert bench.keeper._hurry.is_set()


@pytest.mark.parametrize("fault", [RecordUnreadable("another version"), OverflowError("too large")])
def test_one_unreadable_debt_does_not_stop_its_neighbours(fault: Exception) -> None:
    """What a whole batch fails with is asked of each alone; the others are settled."""
    bench = Still()
    settle, poison = bench.store.inner.settle, claim("poison")

    def picky(many: Sequence[Settlement]) -> Any:
        if any(one.id == poison.id for one in many):
            raise fault
        return settle(many)

    bench.store.settle = picky  # type: ignore[method-assign]
    bench.keeper.owe(release(poison))
    bench.keeper.owe(bench.done())
    bench.turn()
    assert bench.record() is State.COMPLETED
    assert len(bench.keeper._owed) == 1


def test_an_outage_leaves_a_bounded_row_of_releases(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every request that an absent store fails leaves one; outcomes are kept all the same, and names are found."""
    monkeypatch.setattr("oncekey.engine.keeper.MOST_QUIET", 50)
    bench, first = Still(), claim("first")
    bench.store.down = {"settle"}
    bench.keeper.owe(release(first), quiet=True)
    for number in range(200):
        bench.keeper.owe(release(claim(f"{number}")), quiet=True)
    bench.keeper.owe(bench.done())
    assert len(bench.keeper._owed) == 51
    assert bench.keeper.owes(first.token)
    assert bench.keeper.owes(bench.claim.token)


def test_a_late_truth_is_owed_beside_the_unknown() -> None:
    """A shutdown gave the attempt up and then it ended well: both are offered, in their order."""
    bench = Still()
    bench.store.down = {"settle"}
    bench.keeper.owe(Settlement(bench.claim.id, bench.claim.token, State.UNKNOWN))
    bench.keeper.owe(bench.done())
    bench.turn()
    bench.store.down.clear()
    bench.turn()
    assert bench.record() is State.COMPLETED
    assert not bench.keeper._owed


def test_a_short_lease_does_not_wait_for_the_nap_of_a_long_one() -> None:
    """Two installations share an engine: the thread that rests for the longer lease is woken for the shorter."""
    bench = Still()
    bench.keeper._attempts.clear()
    bench.keeper.keep(bench.attempt)
    bench.keeper._hurry.clear()
    bench.keeper.keep(Attempt(Execute(b"s" * 20, b"s" * 16, 1, 300), time.monotonic(), 0.3, 900.0, State.EXECUTING))
    assert bench.keeper._hurry.is_set()


def test_the_first_attempts_after_a_fork_are_all_kept() -> None:
    """Many threads meet a keeper whose process was forked: it begins anew once, and none of their leases is dropped."""
    bench, begun = Bench(), []
    reset, start = bench.keeper._reset, threading.Barrier(8)

    def slowly() -> None:
        begun.append(threading.get_ident())
        threading.Event().wait(0.05)
        reset()

    def keep(number: int) -> None:
        execute = Execute(bytes(20), bytes((number,)) * 16, 1, 30_000)
        start.wait(5)
        bench.keeper.keep(Attempt(execute, time.monotonic(), 30.0, 900.0, State.EXECUTING))

    bench.keeper._reset, bench.keeper._pid = slowly, -1  # type: ignore[method-assign]
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(keep, range(8)))
    kept = len(bench.keeper._attempts)
    bench.keeper.close()
    assert (len(begun), kept) == (1, 8)


def test_a_release_that_comes_before_its_claim_is_offered_again() -> None:
    """The claim is still on its way when its caller has left: the key is given back once it has landed."""
    bench = Still()
    late = claim("late")
    bench.keeper.owe(release(late), quiet=True)
    bench.turn()
    bench.store.inner.claim([late])
    bench.keeper.run_once(time.monotonic() + 2)
    seen = bench.store.inner.get(late.id)
    assert seen is not None
    assert seen.record.state is State.FAILED_RETRYABLE


def test_a_release_that_never_finds_its_claim_is_given_up() -> None:
    """After the claim cannot land any more nothing is kept of it."""
    bench = Still()
    bench.keeper.owe(release(claim("never")), quiet=True)
    bench.turn()
    bench.overdue()
    bench.keeper.run_once(time.monotonic() + 2)
    assert not bench.keeper._owed


def test_an_outcome_that_is_given_up_is_said_aloud(caplog: pytest.LogCaptureFixture) -> None:
    """After its time an outcome that was never taken is reported, not dropped in silence."""
    bench = Still()
    bench.store.down = {"settle"}
    bench.keeper.owe(bench.done())
    bench.overdue()
    bench.keeper.run_once(time.monotonic() + 2)
    assert not bench.keeper._owed
    assert "given up" in caplog.text


def test_one_unreadable_record_does_not_cost_its_neighbours_their_leases() -> None:
    """When a batch of renewals fails for one record, the others are renewed alone."""
    bench = Still(lease_for=0.5)
    other = claim("other", lease_for=500)
    bench.store.inner.claim([other])
    bad = Attempt(Execute(other.id, other.token, 1, 500), bench.attempt.started, 0.5, 900.0, State.EXECUTING)
    bench.keeper._attempts[bad.token] = bad
    renew = bench.store.inner.renew

    def picky(many: Sequence[Renewal]) -> Any:
        if any(one.id == other.id for one in many):
            raise RecordUnreadable("another version")
        return renew(many)

    bench.store.renew = picky  # type: ignore[method-assign]
    until = bench.attempt.until
    bench.keeper.run_once(bench.attempt.renew_at + 0.001)
    assert bench.attempt.until > until


def test_a_driver_fault_in_renewal_loses_the_lease_at_its_end() -> None:
    """Whatever the driver throws, an owner whose lease is over is told so."""
    bench = Still(lease_for=0.02)
    bench.store.renew = _throw  # type: ignore[method-assign]
    while bench.attempt.alive:
        threading.Event().wait(0.001)
    bench.turn()
    assert bench.attempt.lost is not None


def test_two_attempts_on_one_record_never_share_a_batch() -> None:
    """The ids of one call differ: the attempt that was taken over waits its turn."""
    bench, batches = Still(), []
    again = Attempt(Execute(bench.claim.id, b"2" * 16, 2, 30_000), bench.attempt.started, 30.0, 900.0, State.EXECUTING)
    bench.keeper._attempts[again.token] = again
    renew = bench.store.inner.renew

    def noted(many: Sequence[Renewal]) -> Any:
        batches.append([one.id for one in many])
        return renew(many)

    bench.store.renew = noted  # type: ignore[method-assign]
    bench.keeper.run_once(bench.attempt.renew_at + 0.001)
    assert batches
    assert all(len(set(batch)) == len(batch) for batch in batches)


def test_a_listener_that_fails_does_not_keep_a_lost_lease() -> None:
    """What a handler's callback throws is its own affair: the next one is told, and the attempt is let go."""
    bench = Still(cap_for=60.0)
    told: list[str] = []

    def broken(why: str) -> None:
        raise ZeroDivisionError

    bench.attempt.on_lost(broken)
    bench.attempt.on_lost(told.append)
    bench.attempt.started -= 60.0
    bench.keeper.run_once(bench.attempt.renew_at + 0.001)
    assert len(told) == 1
    assert bench.attempt.token not in bench.keeper._attempts


def test_one_thread_keeps_all_leases() -> None:
    """Many first attempts at the same moment start one keeper, not many."""
    bench = Bench()
    bench.keeper._attempts.clear()
    start = threading.Barrier(16)
    before = set(threading.enumerate())

    def keep() -> None:
        start.wait(5)
        for _ in range(50):
            bench.keeper._work.clear()
            bench.keeper.keep(bench.attempt)

    threads = [threading.Thread(target=keep) for _ in range(16)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(10)
    keepers = [thread for thread in threading.enumerate() if thread not in before and thread.name == "oncekey-keeper"]
    bench.keeper.close()
    assert len(keepers) == 1


def test_a_thread_that_cannot_start_stops_no_payment(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without its keeper a lease is not renewed; the work still runs and its outcome is still taken."""

    def refuse(self: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    bench = Bench()
    monkeypatch.setattr(threading.Thread, "start", refuse)
    bench.keeper.keep(bench.attempt)
    monkeypatch.undo()
    bench.keeper.keep(bench.attempt)
    thread = bench.keeper._thread
    bench.keeper.close()
    assert thread is not None
    assert thread.ident is not None


def test_a_closed_keeper_lets_go_of_its_connection_and_its_thread() -> None:
    """Nothing of it stays behind: neither a thread nor an open store."""
    bench, closed = Bench(), threading.Event()
    bench.keeper._open_writer = lambda: Writer(bench.store.renew, bench.store.settle, closed.set)
    bench.keeper.owe(Settlement(bench.claim.id, bench.claim.token, State.COMPLETED, b"out", 1000))
    thread = bench.keeper._thread
    bench.keeper.close()
    bench.keeper.close()
    assert thread is not None
    assert not thread.is_alive()
    assert closed.is_set()
    assert bench.record() is State.COMPLETED


def test_a_closed_keeper_can_be_used_again() -> None:
    """An application that is started a second time gets its leases renewed too."""
    bench = Bench(lease_for=0.3)
    bench.keeper.close()
    bench.keeper.keep(bench.attempt)
    assert bench.store.called.wait(5)
    bench.keeper.close()
