"""Claims against other sessions, in forced orders."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest

from oncekey.core.commands import Claimed, Won
from oncekey.core.record import IN_PROGRESS, Seen, State
from oncekey.errors import RecordUnreadable, StoreUnavailable
from oncekey.stores.planned import PlannedStore, Steps
from oncekey.stores.postgres import open_sync
from oncekey.stores.postgres.lane import Rows
from oncekey.stores.postgres.statements import Ask
from tests.stores.postgres.conftest import Session
from tests.stores.postgres.items import INSERT, TABLE, claim, done, until_blocked

ISOLATION = ["read committed", "repeatable read", "serializable"]


@pytest.fixture
def aside() -> Iterator[ThreadPoolExecutor]:
    """A thread for the verb that will wait."""
    with ThreadPoolExecutor(1) as thread:
        yield thread


@pytest.mark.parametrize("isolation", ISOLATION)
def test_a_winner_that_commits_during_the_wait_is_seen(
    isolation: str, postgres_url: str, session: Session, watcher: Session, aside: ThreadPoolExecutor
) -> None:
    """A claim that waited for another's insert answers with what was inserted, whatever the database's isolation."""
    watcher.execute(f"ALTER DATABASE \"{watcher.info.dbname}\" SET default_transaction_isolation = '{isolation}'")
    store = open_sync(postgres_url, store_for=20)
    store.migrate()
    wanted = claim()
    session.execute(INSERT, (wanted.id,))
    answer = aside.submit(store.claim, [wanted])
    until_blocked(watcher)
    session.commit()
    [found] = answer.result()
    store.close()
    assert isinstance(found, Seen)
    assert found.record.token == b"theirs"


def test_a_claim_whose_rival_rolls_back_wins(
    store: PlannedStore, session: Session, watcher: Session, aside: ThreadPoolExecutor
) -> None:
    """A rival that gives up leaves the key to who waited for it."""
    wanted = claim()
    session.execute(INSERT, (wanted.id,))
    answer = aside.submit(store.claim, [wanted])
    until_blocked(watcher)
    session.rollback()
    assert isinstance(answer.result()[0], Won)


def step_by_step(store: PlannedStore, steps: Steps[list[Claimed]], session: Session) -> list[Claimed]:
    """Run a plan with each statement on its own, and the purge of everything in between."""

    def single(ask: Ask) -> Steps[Rows]:
        answers: list[Rows] = yield [ask]
        return answers[0]

    try:
        asks = next(steps)
        while True:
            answers = []
            for ask in asks:
                answers.append(store.wire.run(single(ask)))
                session.execute(f"DELETE FROM {TABLE} WHERE token = 'theirs'")
                session.commit()
            asks = steps.send(answers)
    except StopIteration as end:
        return end.value  # type: ignore[no-any-return]


def test_a_record_that_vanished_between_insert_and_look_is_claimed_again(store: PlannedStore, session: Session) -> None:
    """Neither inserted nor found means another round, never a guess."""
    wanted = claim()
    session.execute(INSERT, (wanted.id,))
    session.commit()
    [answer] = step_by_step(store, store.plan.claim([wanted]), session)
    assert isinstance(answer, Won)
    found = store.get(wanted.id)
    assert found is not None
    assert found.record.token == wanted.token


def test_a_record_that_comes_and_goes_is_not_decided(store: PlannedStore) -> None:
    """After a few rounds without an answer the claim is refused: nothing runs on a guess."""
    steps = store.plan.claim([claim()])
    next(steps)
    nothing = [[], [(1,) + (None,) * 18]]
    steps.send(nothing)
    steps.send(nothing)
    with pytest.raises(StoreUnavailable, match="came and went"):
        steps.send(nothing)


def test_a_lease_that_a_lock_wait_wore_down_starts_anew(
    store: PlannedStore, session: Session, watcher: Session, aside: ThreadPoolExecutor
) -> None:
    """The lease that the store grants is whole, however long the insert waited."""
    wanted = claim(lease_for=2_000)
    session.execute(INSERT, (wanted.id,))
    answer = aside.submit(store.claim, [wanted])
    until_blocked(watcher)
    session.execute("SELECT pg_sleep(0.5)")
    session.rollback()
    assert answer.result() == [Won(2_000)]
    found = store.get(wanted.id)
    assert found is not None
    assert found.record.lease_until is not None
    assert found.record.lease_until - found.record.claimed_at >= 2_400


def test_a_lease_that_ended_while_its_claim_waited_is_not_granted(
    store: PlannedStore, session: Session, watcher: Session, aside: ThreadPoolExecutor
) -> None:
    """Nobody is told to start on a lease that is over."""
    wanted = claim(lease_for=200)
    session.execute(INSERT, (wanted.id,))
    answer = aside.submit(store.claim, [wanted])
    until_blocked(watcher)
    session.execute("SELECT pg_sleep(0.5)")
    session.rollback()
    [found] = answer.result()
    assert isinstance(found, Seen)
    assert found.record.lease_until is not None
    assert found.record.lease_until <= found.now


def test_a_locked_record_is_refused_in_time_and_its_neighbours_go_on(postgres_url: str, session: Session) -> None:
    """A claim behind an open transaction ends with the lock's time-out; retried singly, its neighbours are granted."""
    store = open_sync(postgres_url, store_for=1.0)
    store.migrate()
    locked, free = claim(), claim()
    session.execute(INSERT, (locked.id,))
    with pytest.raises(StoreUnavailable, match="retries singly"):
        store.claim([locked, free])
    with pytest.raises(StoreUnavailable, match="another transaction holds the record"):
        store.claim([locked])
    assert isinstance(store.claim([free])[0], Won)
    store.close()


def test_replays_write_no_wal(store: PlannedStore, watcher: Session) -> None:
    """A batch of replays leaves the log as it was: a storm of retries is no storm of writes."""
    claims = [claim() for _ in range(64)]
    store.claim(claims)
    store.settle([done(one) for one in claims])
    again = [one._replace(token=b"another") for one in claims]
    written = []
    for _ in range(5):  # the server's own background writing may come between, but not each time
        before = watcher.execute("SELECT pg_current_wal_insert_lsn()").fetchone()
        assert all(isinstance(answer, Seen) for answer in store.claim(again))
        row = watcher.execute("SELECT pg_current_wal_insert_lsn() - %s::pg_lsn", before).fetchone()
        assert row is not None
        written.append(row[0])
    assert min(written) == 0


def test_our_own_earlier_claim_is_written_again(store: PlannedStore, watcher: Session) -> None:
    """A repeated claim does not trust what it reads: the first commit may have reached one server only."""
    wanted = claim()
    store.claim([wanted])
    before = watcher.execute(f"SELECT xmin::text, version FROM {TABLE}").fetchone()
    [answer] = store.claim([wanted])
    after = watcher.execute(f"SELECT xmin::text, version FROM {TABLE}").fetchone()
    assert isinstance(answer, Seen)
    assert answer.record.token == wanted.token
    assert before is not None
    assert after is not None
    assert before[0] != after[0]
    assert before[1] == after[1]


def test_a_record_of_another_format_is_refused(store: PlannedStore, watcher: Session) -> None:
    """A record that this code cannot read is never taken for a free key."""
    wanted = claim()
    store.claim([wanted])
    watcher.execute(f"UPDATE {TABLE} SET format = 2, token = 'theirs'")
    with pytest.raises(RecordUnreadable, match="format 2"):
        store.claim([wanted])


def test_a_record_of_another_format_hides_no_others_and_stays(store: PlannedStore, watcher: Session) -> None:
    """While workers are renewed one by one, the old ones go on sweeping and purging what is theirs."""
    theirs, ours = claim(), claim()
    store.claim([theirs, ours])
    watcher.execute(f"UPDATE {TABLE} SET format = 2 WHERE token = %s", (theirs.token,))
    assert [record.id for record in store.scan(IN_PROGRESS).records] == [ours.id]
    assert [record.id for record in store.scan(list(State)).records] == [ours.id]
    watcher.execute(f"UPDATE {TABLE} SET state = 5, due_at = 1")
    assert [record.id for record in store.scan((State.UNKNOWN,), due_before=-1).records] == [ours.id]
    watcher.execute(f"UPDATE {TABLE} SET due_at = NULL")
    assert [record.id for record in store.scan((State.UNKNOWN,), undated=True).records] == [ours.id]
    watcher.execute(f"UPDATE {TABLE} SET state = 3, expires_at = 1")
    assert store.purge(10).deleted == 1
    watcher.execute(f"UPDATE {TABLE} SET state = 3, expires_at = NULL, due_at = 1")
    assert store.purge(10).deleted == 0
