from __future__ import annotations

import logging
import sqlite3
from contextlib import closing
from itertools import product
from typing import Any

import psycopg
import pytest
import redis

from oncekey.core.commands import Page, Settlement, Swap
from oncekey.core.decision import Execute
from oncekey.core.flows import Terms, enter, lapse
from oncekey.core.journal import Call, Journal
from oncekey.core.record import Guarantee, Record, Seen, State, replace
from oncekey.engine.journals import journal_of, sealed
from oncekey.errors import ConfigurationError, RecordUnreadable
from oncekey.operations import CopyReport, Desk, Signature, Walk, check_clocks, copy, digest_of, erase, sweep
from oncekey.operations.copying import canonical, is_running, may_replace, shielded
from oncekey.stores.contract import Store
from oncekey.stores.memory import MemoryStore
from oncekey.stores.open import open_store
from oncekey.testing.bench import Exactly, another_request, drive
from oncekey.testing.clock import ManualClock
from tests.operations.every_store import (
    DAY,
    KINDS,
    PLAIN,
    RING,
    answered,
    body_of,
    ended,
    opened,
    record_of,
    taken,
    url_of,
)

ANN = Signature("ann", "moving house, ticket 9")
PAIRS = [pytest.param(one, two, id=f"{one}-{two}") for one, two in product(KINDS, KINDS) if one != two]
CALLED = Journal((Call("psp.charge", "k" * 36),))


def moved(source: Store, target: Store, **options: Any) -> CopyReport:
    """Copy all, without resting."""
    return copy(Walk(source), target, ANN, rest=lambda seconds: None, **options)


def filled(store: Store) -> list[Record]:
    """One record of each kind, the journal and the trail included."""
    claims = [
        answered(store, "alice", "plain"),
        answered(store, "alice", "secret", RING),
        ended(store, taken(store, "bob", "failed"), State.FAILED_RETRYABLE, due_for=DAY),
        taken(store, "bob", "running"),
        taken(store, "carol", "claimed", State.CLAIMED),
    ]
    unknown = taken(store, "carol", "unknown")
    claims.append(ended(store, unknown, State.UNKNOWN, outcome=sealed(unknown.id, CALLED, PLAIN), due_for=DAY))
    claims.append(ended(store, taken(store, "carol", "dead"), State.UNKNOWN))
    return [record_of(store, claim.id) for claim in claims]


def request_on(store: Store, record: Record) -> object:
    """What a retry of this record's request may do."""
    claim = another_request(taken(MemoryStore(), "x", "y"), id=record.id, fingerprint=record.fingerprint)
    return drive(store, enter(claim, Exactly(record.fingerprint), Terms(keep_for=DAY, reconcile_after_for=DAY)))


@pytest.mark.parametrize(("one", "two"), PAIRS)
def test_every_state_arrives_and_is_compared(one: str, two: str, request: pytest.FixtureRequest) -> None:
    """Between any two stores: each record is as it was, journals, tokens, versions and times included."""
    with opened(one, request) as source, opened(two, request) as target:
        records = filled(source)
        report = moved(source, target)
        assert (report.copied, report.passes, report.identical) == (len(records), 2, True)
        assert (report.last.same, report.last.running, report.settled) == (len(records), 2, False)
        for record in records:
            now = record.claimed_at
            assert canonical(record_of(target, record.id)) == canonical(shielded(Seen(record, now)))
        unknown = next(record for record in records if record.state is State.UNKNOWN and record.outcome)
        assert journal_of(record_of(target, unknown.id), PLAIN) == CALLED
        again = moved(source, target)
        assert (again.copied, again.brought, again.passes) == (0, 0, 1)


def test_what_runs_in_the_source_is_taken_over_by_nobody(store: MemoryStore, clock: ManualClock) -> None:
    """A living lease may end in an effect: in the target it becomes unknown, never retryable, until it has ended."""
    claim = taken(store, "alice", "k", State.CLAIMED, lease_for=100)
    other = taken(store, "alice", "l", lease_for=100)
    record = record_of(store, other.id)
    store.swap(Swap(record, replace(record, version=2, guarantee=Guarantee.TRANSACTIONAL)))
    target = MemoryStore(clock)
    assert moved(store, target).last.running == 2
    clock.advance(200)
    sweep(target)
    assert [record_of(target, one.id).state for one in (claim, other)] == [State.UNKNOWN, State.UNKNOWN]
    # Over in the source as well, with nothing done: now the target may know.
    sweep(store)
    report = moved(store, target)
    assert (report.brought, report.settled) == (0, False)
    fresh = MemoryStore(clock)
    assert moved(store, fresh).settled
    assert [record_of(fresh, one.id).state for one in (claim, other)] == [State.FAILED_RETRYABLE] * 2


class Busy:
    """A source in which something happens between two pages."""

    def __init__(self, store: MemoryStore, between: list[Any]) -> None:
        self.store = store
        self.between = between

    def pages(self, limit: int) -> Any:
        """Page by page of one record."""
        for page in Walk(self.store).pages(1):
            yield page
            if self.between:
                self.between.pop(0)()


def test_changes_during_the_copy_are_brought_by_another_pass(store: MemoryStore, clock: ManualClock) -> None:
    """New, settled, retried, reconciled and erased meanwhile: a later pass brings the newer version."""
    running, failed = taken(store, "alice", "running"), ended(store, taken(store, "bob", "f"), State.FAILED_RETRYABLE)
    erased = answered(store, "carol", "erased")
    target = MemoryStore(clock)
    assert moved(store, target).copied == 3
    clock.advance(1)

    def change() -> None:
        ended(store, running, outcome=b"\x10\x12done")
        assert isinstance(request_on(store, record_of(store, failed.id)), Execute)
        erase(Desk(store, PLAIN), digest_of("carol"), ANN, rest=lambda seconds: None)
        taken(store, "dave", "new")

    report = copy(Busy(store, [change]), target, ANN, rest=lambda seconds: None)
    assert (report.brought, report.copied, report.identical) == (3, 1, True)
    assert "erased" in str(body_of(target, erased))
    for claim in (running, failed, erased):
        assert record_of(target, claim.id).version == record_of(store, claim.id).version


def test_a_source_that_never_rests_is_said_to_be_so(store: MemoryStore, clock: ManualClock) -> None:
    """After so many passes it ends without calling the stores identical."""
    ends = iter(range(1000))

    class Growing:
        def pages(self, limit: int) -> Any:
            answered(store, "bob", str(next(ends)))
            page = store.scan(tuple(State), limit=1000)
            yield [Seen(record, page.now) for record in page.records]

    report = copy(Growing(), MemoryStore(clock), ANN, rest=lambda seconds: None)
    assert (report.passes, report.identical, report.settled) == (5, False, False)


def test_what_the_target_did_by_itself_is_never_loosened(store: MemoryStore, clock: ManualClock) -> None:
    """A key that the target has claimed, finished or left unknown is not made retryable by an older store's view."""
    made = [ended(store, taken(store, "alice", str(n)), State.FAILED_RETRYABLE) for n in range(3)]
    target = MemoryStore(clock)
    moved(store, target)
    clock.advance(5)
    for claim in made:
        assert isinstance(request_on(target, record_of(target, claim.id)), Execute)
    mine = [another_request(claim)._replace(token=record_of(target, claim.id).token) for claim in made]
    ended(target, mine[0], outcome=b"\x10\x12done")
    ended(target, mine[1], State.UNKNOWN)
    for claim in made:  # the old store goes on, further than the new one
        old = record_of(store, claim.id)
        store.swap(Swap(old, replace(old, version=old.version + 9)))
    before = [record_of(target, claim.id) for claim in made]
    report = moved(store, target)
    assert (report.last.left, report.identical, len(report.last.left_alone)) == (3, False, 3)
    assert [record_of(target, claim.id) for claim in made] == before


@pytest.mark.parametrize("over", [False, True], ids=["running", "unknown"])
def test_an_attempt_of_the_target_outlasts_a_later_one_of_the_source(
    over: bool, store: MemoryStore, clock: ManualClock
) -> None:
    """Both serve: what the source has tried since, without effect, says nothing of what runs in the target."""
    failed = ended(store, taken(store, "alice", "k"), State.FAILED_RETRYABLE)
    target = MemoryStore(clock)
    moved(store, target)
    assert isinstance(request_on(target, record_of(target, failed.id)), Execute)
    clock.advance(1)
    for _ in range(2):
        later = request_on(store, record_of(store, failed.id))
        assert isinstance(later, Execute)
        store.settle([Settlement(failed.id, later.token, State.FAILED_RETRYABLE, keep_for=DAY)])
    clock.advance(DAY // 2 if over else 0)
    sweep(target)
    assert record_of(target, failed.id).state is (State.UNKNOWN if over else State.EXECUTING)
    assert moved(store, target).last.left == 1
    assert not isinstance(request_on(target, record_of(target, failed.id)), Execute)


@pytest.mark.parametrize(("old", "new"), list(product(State, State)))
def test_replacing_never_opens_a_key_that_was_shut(old: State, new: State) -> None:
    """For a claim of the target's own, later than the source's, only an answer or an unknown may come in its place."""
    found = Record(b"i" * 20, old, 1, b"t" * 16, b"f", claimed_at=10, lease_until=99)
    source = Record(b"i" * 20, new, 5, b"s" * 16, b"f", claimed_at=5, lease_until=99)
    if may_replace(Seen(found, 50), source):
        shut = new in (State.COMPLETED, State.EXPIRED, State.UNKNOWN)
        assert shut or old is State.FAILED_RETRYABLE
        assert old not in (State.COMPLETED, State.EXPIRED) or new in (State.COMPLETED, State.EXPIRED)
    assert not may_replace(Seen(found, 50), replace(source, fingerprint=b"other"))
    assert not may_replace(Seen(found, 50), replace(source, version=1))


def test_what_has_expired_is_left_out_and_makes_room(store: MemoryStore, clock: ManualClock) -> None:
    """An expired record is not copied; one that expired in the target gives way to the key's new life."""
    claim = answered(store, "alice", "k")
    target = MemoryStore(clock)
    moved(store, target)
    clock.advance(DAY + 1)
    assert moved(store, target).last.expired == 1
    assert isinstance(request_on(store, record_of(store, claim.id)), Execute)
    report = moved(store, target)
    assert (report.brought, report.identical) == (1, True)


def test_a_rehearsal_writes_nothing(store: MemoryStore, clock: ManualClock, caplog: pytest.LogCaptureFixture) -> None:
    """It counts what would be copied and replaced; target and audit log stay empty."""
    filled(store)
    target = MemoryStore(clock)
    with caplog.at_level(logging.INFO, "oncekey.audit"):
        report = moved(store, target, rehearse=True)
    assert (report.copied, report.identical, target.stats(), caplog.messages) == (7, False, {}, [])
    moved(store, target)
    running = next(iter(target._open))
    target._records[running] = replace(target._records[running], version=0)
    assert moved(store, target, rehearse=True).brought == 1
    assert target._records[running].version == 0


def test_an_interrupted_copy_goes_on(store: MemoryStore, clock: ManualClock, caplog: pytest.LogCaptureFixture) -> None:
    """Stopped after a page, begun again: what has arrived is compared, the rest is copied, and the log tells who."""
    for number in range(3):
        answered(store, "alice", str(number))
    target = MemoryStore(clock)
    with caplog.at_level(logging.INFO, "oncekey.audit"):
        report = copy(Busy(store, []), target, ANN, stop=lambda: True, rest=lambda seconds: None)
    assert (report.copied, report.stopped, report.settled) == (1, True, False)
    assert caplog.messages == ["1 records were copied to memory://, and 0 replaced, by ann: moving house, ticket 9"]
    again = moved(store, target)
    assert (again.copied, again.settled) == (2, True)


class Lossy(MemoryStore):
    """Says that it has written, and damages what it writes."""

    def _put(self, record: Record) -> None:
        super()._put(replace(record, outcome=record.outcome[:-1]))


def test_a_copy_that_is_not_identical_is_never_called_so(store: MemoryStore, clock: ManualClock) -> None:
    """A target that keeps something else than it was given is found out by the next pass."""
    answered(store, "alice", "k")
    report = moved(store, Lossy(clock))
    assert (report.identical, report.settled, report.last.left) == (False, False, 1)
    assert report.last.sum_source != report.last.sum_target


def test_clocks_that_differ_are_refused() -> None:
    """Instants are moved as they are, so both stores must have one time."""
    with pytest.raises(ConfigurationError, match=r"2\.0 s ahead"):
        check_clocks(MemoryStore(ManualClock(10_000)), MemoryStore(ManualClock(12_000)))
    check_clocks(MemoryStore(ManualClock(10_000)), MemoryStore(ManualClock(10_900)))


def test_a_lease_that_is_over_is_moved_as_it_is() -> None:
    """Its owner can begin nothing any more: the table's own lapse holds in the target as in the source."""
    record = Record(b"i" * 20, State.CLAIMED, 1, b"t" * 16, b"f", claimed_at=1, lease_until=10)
    assert not is_running(record, 10)
    assert shielded(Seen(record, 10)) == record
    assert shielded(Seen(record, 9)).state is State.EXECUTING
    assert lapse(Seen(record, 10), Terms(keep_for=1, reconcile_after_for=1)) is not None
    assert isinstance(open_store("memory://").scan((State.UNKNOWN,)), Page)


def damaged(kind: str, url: str, id_: bytes) -> None:
    """Make one record unreadable for this version."""
    if kind == "redis":
        with redis.Redis.from_url(url.partition("?")[0]) as client:
            client.set(b"{ok}:" + id_, b"\x09 of a newer layout")
        return
    if kind == "postgres":
        with psycopg.connect(url) as connection:
            connection.execute("UPDATE oncekey_records SET format = 9 WHERE id = %s", (id_,))
        return
    column = "format" if kind == "sqlite" else "guarantee"
    with closing(sqlite3.connect(url.removeprefix("sqlite:///"))) as file:
        file.execute(f"UPDATE oncekey_record SET {column} = 9 WHERE id = ?", (id_,))
        file.commit()


@pytest.mark.parametrize("kind", ["sqlite", "sqlite-damaged", "postgres", "redis"])
def test_a_record_that_cannot_be_read_stops_a_copy(kind: str, request: pytest.FixtureRequest) -> None:
    """Left out, its key would be free in the target: nothing is called identical, and nothing is said to be whole."""
    url = url_of(kind.partition("-")[0], request)
    with closing(open_store(url)) as store:
        store.migrate()
        claims = [answered(store, "alice", str(number)) for number in range(3)]
        damaged(kind, url, claims[1].id)
        with pytest.raises(RecordUnreadable):
            moved(store, MemoryStore())
