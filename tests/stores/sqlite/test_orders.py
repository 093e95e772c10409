"""Forced orders: what happens between two steps of a plan, at a boundary, or beside somebody else's transaction."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import pytest

from oncekey.core.commands import DONE, Claim, Claimed, Renewal, Settlement, Stale, Swap, Won
from oncekey.core.record import Record, Seen, State, replace
from oncekey.core.transitions import claimed
from oncekey.errors import StoreUnavailable
from oncekey.stores.memory import MemoryStore
from oncekey.stores.planned import PlannedStore
from oncekey.stores.sqlite import open_sync
from oncekey.stores.sqlite.plan import SqlitePlan, Steps
from oncekey.stores.sqlite.steps import Phase
from oncekey.testing import ManualClock
from tests.stores.sqlite.items import claim, completed


@contextmanager
def write_lock(path: Path) -> Iterator[None]:
    """Another process in the midst of a transaction."""
    with closing(sqlite3.connect(path, isolation_level=None)) as raw:
        raw.execute("BEGIN IMMEDIATE")
        yield
        raw.execute("ROLLBACK")


def test_replay_waits_for_no_writer(store: PlannedStore, other: PlannedStore, path: Path) -> None:
    """While somebody else writes, replays are answered and new keys are refused after the time budget."""
    first = claim("a")
    store.claim([first])
    store.settle([completed(first)])
    with write_lock(path):
        [seen] = other.claim([claim("a", "second")])
        assert isinstance(seen, Seen)
        assert seen.record.outcome == b"answer"
        with pytest.raises(StoreUnavailable, match="raise store_for") as refused:
            other.claim([claim("b")])
    assert isinstance(refused.value.__cause__, sqlite3.OperationalError)
    assert other.claim([claim("b")]) == [Won(30_000)]


def test_losing_claims_write_nothing(store: PlannedStore, path: Path) -> None:
    """A storm of duplicates is no storm of writes: the log does not grow by a byte."""
    store.claim([claim("a")])
    log = path.with_name(path.name + "-wal")
    before = log.stat().st_size, log.stat().st_mtime_ns
    for attempt in range(50):
        store.claim([claim("a", f"attempt {attempt}")])
    assert (log.stat().st_size, log.stat().st_mtime_ns) == before


def test_key_taken_between_look_and_write(store: PlannedStore, other: PlannedStore) -> None:
    """Who looked and found nothing, and is overtaken before it writes, loses that key and keeps its neighbour."""
    mine = [claim("raced", "mine"), claim("free", "mine")]

    def raced() -> Steps[list[Claimed]]:
        steps = SqlitePlan().claim(mine)
        answer: Any = None
        while True:
            try:
                step = steps.send(answer)
            except StopIteration as end:
                answered: list[Claimed] = end.value
                return answered
            if step is Phase.WRITE:
                assert other.claim([claim("raced", "theirs")]) == [Won(30_000)]
            answer = yield step

    lost, won = store.wire.run(raced())
    assert won == Won(30_000)
    assert isinstance(lost, Seen)
    assert lost.record.token == claim("raced", "theirs").token


def test_read_is_never_upgraded_to_a_write(store: PlannedStore, other: PlannedStore) -> None:
    """A claim that reads, then writes after another committed, does not fail with a stale snapshot."""
    for turn in range(20):
        assert store.claim([claim(f"mine {turn}")]) == [Won(30_000)]
        assert other.claim([claim(f"theirs {turn}")]) == [Won(30_000)]


def test_failed_batch_leaves_nothing(store: PlannedStore) -> None:
    """A plan that raises in its write phase is rolled back whole, and the next one starts clean."""

    def failing() -> Steps[None]:
        yield from SqlitePlan().claim([claim("a")])
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        store.wire.run(failing())
    assert store.claim([claim("a")]) == [Won(30_000)]


@pytest.mark.parametrize(("ahead", "deleted"), [(59_999, 0), (60_000, 1)])
def test_expiry_boundary(store: PlannedStore, clock: ManualClock, ahead: int, deleted: int) -> None:
    """A record is kept until its expiry, to the millisecond, and purged from then on."""
    first = claim("a")
    store.claim([first])
    store.settle([completed(first, keep_for=60_000)])
    clock.advance(ahead)
    assert store.purge().deleted == deleted
    assert (store.get(first.id) is None) == bool(deleted)


def test_reuse_at_expiry_has_one_winner(store: PlannedStore, other: PlannedStore, clock: ManualClock) -> None:
    """Two contenders for an expired record compare on its version; the purge then spares the winner."""
    first = claim("a")
    store.claim([first])
    store.settle([completed(first)])
    clock.advance(60_000)
    [seen] = store.claim([claim("a", "second")])
    assert isinstance(seen, Seen)
    takes = [Swap(seen.record, claimed(seen.record, claim("a", who), clock())) for who in "xy"]
    answers = [store.swap(takes[0]), other.swap(takes[1])]
    assert answers[0] == DONE
    assert isinstance(answers[1], Stale)
    assert other.purge().deleted == 0


def test_purge_spares_what_is_open(store: PlannedStore, clock: ManualClock) -> None:
    """Neither running nor unknown operations are purged, whatever their expiry says."""
    for name, state in (("running", State.EXECUTING), ("unknown", State.UNKNOWN)):
        store.claim([claim(name)])
        seen = store.get(claim(name).id)
        assert seen is not None
        store.swap(Swap(seen.record, replace(seen.record, version=2, state=state, expires_at=1)))
    clock.advance(10**9)
    assert store.purge().deleted == 0


FULL = {"fingerprint": b"f", "claimed_at": 1_000, "lease_until": 5_000, "attempts": 2}
TOKENS = (b"", b"owner", b"stale")


def _both(record: Record, path: Path) -> tuple[MemoryStore, PlannedStore]:
    """The record in the memory store, which is driven by the table, and in a file."""
    stores = MemoryStore(lambda: 4_000), _opened(path)
    for one in stores:
        one.claim([Claim(record.id, b"owner", b"f", 1)])
        seen = one.get(record.id)
        assert seen is not None
        assert one.swap(Swap(seen.record, record)) == DONE
    return stores


def _opened(path: Path) -> PlannedStore:
    return open_sync(f"sqlite:///{path}", store_for=5.0, clock=lambda: 4_000)


def _compare(record: Record, path: Path, write: str, command: object) -> None:
    memory, file = _both(record, path)
    try:
        assert getattr(file, write)([command]) == getattr(memory, write)([command])
        assert file.get(record.id) == memory.get(record.id)
    finally:
        file.close()


@pytest.mark.parametrize("state", list(State))
@pytest.mark.parametrize("target", [State.COMPLETED, State.FAILED_RETRYABLE, State.UNKNOWN])
def test_settle_keeps_the_tables_guards(path: Path, state: State, target: State) -> None:
    """From every state, with each token, a settlement does what the table says and answers alike."""
    for number, held in enumerate(TOKENS[:2]):
        for other, token in enumerate(TOKENS):
            record = Record(b"%d %d" % (number, other), state, 2, held, **FULL, outcome=b"old")  # type: ignore[arg-type]
            _compare(record, path, "settle", Settlement(record.id, token, target, b"new", 10, 5, "why"))


@pytest.mark.parametrize("state", list(State))
@pytest.mark.parametrize("begin", [False, True])
def test_renew_keeps_the_tables_guards(path: Path, state: State, begin: bool) -> None:
    """A lease is renewed in progress, by its owner, alive and below its cap, at the exact millisecond of each."""
    for number, (token, lease, cap) in enumerate(
        (t, lease, c) for t in TOKENS for lease in (None, 4_000, 4_001) for c in (3_000, 3_001)
    ):
        record = replace(Record(b"%d" % number, state, 2, b"owner", **FULL), lease_until=lease)  # type: ignore[arg-type]
        _compare(record, path, "renew", Renewal(record.id, token, 9_000, cap, begin))
