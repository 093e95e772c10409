from __future__ import annotations

import threading
from typing import Any

import pytest

from oncekey.core.commands import Page
from oncekey.core.record import Guarantee, State
from oncekey.operations import PurgeReport, SweepReport, purge, sweep, would_purge
from oncekey.stores.contract import Store
from oncekey.stores.memory import MemoryStore
from oncekey.stores.sqlite import open_sync
from oncekey.testing.clock import ManualClock
from tests.operations.filled import DAY, claim, complete, fill, settle


def state(store: Store, id_: bytes) -> State | None:
    """Where the operation stands."""
    seen = store.get(id_)
    return seen.record.state if seen is not None else None


def test_sweep_turns_lapsed_leases_into_what_they_mean(store: MemoryStore, clock: ManualClock) -> None:
    """Lapsed: before its effect or repeatable, it failed; otherwise nobody knows. A living lease is not touched."""
    alive = claim(store, "alive")
    before = claim(store, "before", lease_for=1, state=State.CLAIMED)
    during = claim(store, "during", lease_for=1)
    again = claim(store, "again", lease_for=1, guarantee=Guarantee.TRANSACTIONAL)
    clock.advance(10)
    assert sweep(store) == SweepReport(unknown=1, failed_retryable=2)
    found = [state(store, made.id) for made in (alive, before, during, again)]
    assert found == [State.EXECUTING, State.FAILED_RETRYABLE, State.UNKNOWN, State.FAILED_RETRYABLE]
    assert sweep(store) == SweepReport()


def test_swept_unknown_keeps_its_owners_proof(store: MemoryStore, clock: ManualClock) -> None:
    """The owner of a lapsed attempt can still tell the truth late, and the reconciler is due soon."""
    made = claim(store, "k", lease_for=1)
    clock.advance(10)
    sweep(store)
    record = store._records[made.id]
    assert (record.token, record.due_at, record.expires_at) == (made.token, clock() + 5000, None)


class Overtaken(MemoryStore):
    """Somebody else renews every record between the look and the write."""

    def scan(self, *args: object, **options: object) -> Page:
        """Look, and be overtaken."""
        page = super().scan(*args, **options)  # type: ignore[arg-type]
        for record in page.records:
            self._records[record.id] = type(record)(
                record.id, record.state, record.version + 1, record.token, b"", lease_until=self.clock() + DAY
            )
        return page


def test_sweep_loses_to_an_owner_who_renews(clock: ManualClock) -> None:
    """A record that moved on between look and write stays as its owner left it."""
    store = Overtaken(clock)
    made = claim(store, "k", lease_for=1)
    clock.advance(10)
    assert sweep(store) == SweepReport(moved_on=1)
    assert state(store, made.id) is State.EXECUTING


def test_purge_deletes_only_what_has_expired(store: MemoryStore, clock: ManualClock) -> None:
    """Expired answers go; open operations and answers within their time stay, however old the open ones are."""
    made = fill(store)
    clock.advance(10)
    assert purge(store) == PurgeReport(SweepReport(unknown=1), deleted=1, finished=True, stopped=False)
    clock.advance(400 * DAY)
    purge(store)
    left = {key for key, one in made.items() if state(store, one.id) is not None}
    assert left == {"running", "lapsed", "unknown"}


def test_purge_keeps_to_its_limit(store: MemoryStore, clock: ManualClock) -> None:
    """No more are deleted than was said, whole batches or not, and the report says that it was the limit."""
    for number in range(10):
        complete(store, f"k{number}", keep_for=1)
    clock.advance(10)
    told: list[int] = []
    report = purge(store, limit=7, batch=3, progress=told.append)
    assert (report.deleted, report.finished, report.stopped) == (7, False, False)
    assert told == [3, 6, 7]
    assert purge(store, batch=3).deleted == 3


def test_purge_rests_between_batches(store: MemoryStore, clock: ManualClock) -> None:
    """After each batch but the last the store belongs to the requests, never longer than a moment."""
    for number in range(10):
        complete(store, f"k{number}", keep_for=1)
    clock.advance(10)
    rests: list[float] = []
    assert purge(store, batch=4, rest=rests.append).deleted == 10
    assert len(rests) == 2
    assert all(0 <= rest <= 0.25 for rest in rests)


def test_purge_stops_between_batches(store: MemoryStore, clock: ManualClock) -> None:
    """Asked to stop, it ends after the batch at hand and says how far it came."""
    for number in range(10):
        complete(store, f"k{number}", keep_for=1)
    clock.advance(10)
    told: list[int] = []
    report = purge(store, batch=2, progress=told.append, stop=lambda: len(told) == 2)
    assert (report.deleted, report.finished, report.stopped) == (4, False, True)


def test_purge_stopped_before_it_began_does_nothing(store: MemoryStore, clock: ManualClock) -> None:
    """A stop that was asked for beforehand leaves everything as it is."""
    fill(store)
    clock.advance(10)
    assert purge(store, stop=lambda: True) == PurgeReport(SweepReport(), deleted=0, finished=False, stopped=True)


def test_stop_that_comes_after_the_end_changes_nothing(store: MemoryStore, clock: ManualClock) -> None:
    """A purge that had nothing left to do is finished, not stopped."""
    complete(store, "k", keep_for=1)
    clock.advance(10)
    told: list[int] = []
    report = purge(store, progress=told.append, stop=lambda: bool(told))
    assert (report.finished, report.stopped) == (True, False)


def test_sweep_reads_only_what_is_late(store: MemoryStore, clock: ManualClock) -> None:
    """Living leases, of which a busy store has many, are not read at all."""
    claim(store, "alive")
    lapsed = claim(store, "lapsed", lease_for=1)
    clock.advance(10)
    read: list[bytes] = []
    scan = store.scan

    def watched(*args: Any, **options: Any) -> Page:
        page = scan(*args, **options)
        read.extend(record.id for record in page.records)
        return page

    store.scan = watched  # type: ignore[method-assign]
    sweep(store)
    assert read == [lapsed.id]


def test_several_purges_share_the_work(tmp_path_factory: pytest.TempPathFactory) -> None:
    """Purges that run at once on one store delete every expired record once, and sweep each lease once."""
    clock = ManualClock()
    url = f"sqlite:///{tmp_path_factory.mktemp('purge')}/store.db"
    stores = [open_sync(url, store_for=20, clock=clock) for _ in range(4)]
    for number in range(60):
        complete(stores[0], f"done-{number}", keep_for=1)
        claim(stores[0], f"lapsed-{number}", lease_for=1)
    clock.advance(10)
    reports: list[PurgeReport] = []
    threads = [threading.Thread(target=lambda s=s: reports.append(purge(s, batch=5))) for s in stores]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sum(report.deleted for report in reports) == 60
    assert sum(report.swept.unknown for report in reports) == 60
    for store in stores:
        store.close()


def test_a_rehearsed_purge_counts_what_a_real_one_does(store: MemoryStore, clock: ManualClock) -> None:
    """Lapsed, expired, and answers whose own time is over; nothing is changed."""
    fill(store)
    settle(store, claim(store, "soft"), State.COMPLETED, keep_for=DAY, due_for=5)
    claim(store, "before", lease_for=1, state=State.CLAIMED)
    clock.advance(10)
    before = dict(store._records)
    rehearsed = would_purge(store)
    assert store._records == before
    real = purge(store)
    assert (rehearsed.swept, rehearsed.deleted) == (real.swept, real.deleted) == (SweepReport(1, 1), 2)
    assert (rehearsed.rehearsed, rehearsed.finished, rehearsed.stopped) == (True, True, False)
