"""Settlements, their notices, and the purge against other sessions."""

from __future__ import annotations

import queue
from concurrent.futures import ThreadPoolExecutor

import psycopg
import pytest

from oncekey.core.commands import DONE, Purged, Renewal, Stale
from oncekey.core.record import State
from oncekey.stores.contract import MISSED
from oncekey.stores.planned import PlannedStore
from oncekey.stores.postgres.statements import statements
from tests.stores.postgres.conftest import Session
from tests.stores.postgres.items import TABLE, claim, done, until, until_blocked

EXPIRE = f"UPDATE {TABLE} SET state = 3, lease_until = NULL, expires_at = 1"


def test_only_who_is_waited_for_is_told(store: PlannedStore, postgres_url: str) -> None:
    """NOTIFY makes commits queue, so a settlement sends it only for records on which somebody waits."""
    alone, waited = claim(), claim()
    store.claim([alone, waited])
    with psycopg.connect(postgres_url, autocommit=True) as ear:
        ear.execute(f'LISTEN "{TABLE}"')
        store.watch(waited.id)
        assert store.settle([done(alone), done(waited)]) == [DONE, DONE]
        heard = [notice.payload for notice in ear.notifies(timeout=1, stop_after=1)]
        heard += [notice.payload for notice in ear.notifies(timeout=0)]
    assert heard == [waited.id.hex()]


def test_a_listener_comes_back_after_its_connection_broke(store: PlannedStore, watcher: Session) -> None:
    """Listening goes on after the server ended its session, and who waits is told that news may have been missed."""
    heard: queue.Queue[bytes] = queue.Queue()
    listener = store.listen(heard.put)
    find = "SELECT pid FROM pg_stat_activity WHERE query LIKE 'LISTEN%' AND datname = current_database()"
    row = watcher.execute(find).fetchone()
    assert row is not None
    watcher.execute("SELECT pg_terminate_backend(%s)", row)
    until(lambda: watcher.execute(find).fetchone() not in {None, row})
    assert heard.get(timeout=10) == MISSED
    wanted = claim()
    store.claim([wanted])
    store.watch(wanted.id)
    store.settle([done(wanted)])
    assert heard.get(timeout=10) == wanted.id
    listener.close()


def test_a_stranger_on_the_channel_is_ignored(store: PlannedStore, watcher: Session) -> None:
    """A payload that is no id ends nothing, and neither does a caller that fails."""
    heard: queue.Queue[bytes] = queue.Queue()

    def told(id_: bytes) -> None:
        heard.put(id_)
        raise ValueError(id_)

    listener = store.listen(told)
    for payload in ("not an id", "00", "ff"):
        watcher.execute("SELECT pg_notify(%s, %s)", (TABLE, payload))
    assert [heard.get(timeout=10), heard.get(timeout=10)] == [b"\0", b"\xff"]
    listener.close()


def test_purge_leaves_a_take_over_that_is_under_way(store: PlannedStore, session: Session) -> None:
    """A record that somebody is about to take over is skipped, and stays when he commits."""
    wanted = claim()
    store.claim([wanted])
    session.execute(EXPIRE)
    session.commit()
    session.execute(f"UPDATE {TABLE} SET state = 2, token = 'new', lease_until = 9000000000000, expires_at = NULL")
    assert store.purge() == Purged(0, False)
    session.commit()
    assert store.purge() == Purged(0, False)
    assert store.get(wanted.id) is not None


def test_purge_asks_again_of_a_row_that_changed_under_it(
    store: PlannedStore, session: Session, watcher: Session
) -> None:
    """Without skipping, the condition on the deleting statement itself still saves a fresh claim."""
    wanted = claim()
    store.claim([wanted])
    session.execute(EXPIRE)
    session.commit()
    session.execute(f"UPDATE {TABLE} SET state = 2, token = 'new', lease_until = 9000000000000, expires_at = NULL")
    waiting = statements(TABLE)["purge"].sql.decode().replace("FOR UPDATE SKIP LOCKED", "").replace("$1::int8", "10")
    with ThreadPoolExecutor(1) as aside:
        purged = aside.submit(watcher.execute, waiting.encode())
        with psycopg.connect(store.url, autocommit=True) as third:
            until_blocked(third, "DELETE")
        session.commit()
        assert purged.result().fetchone() == (0,)
    assert store.get(wanted.id) is not None


def test_a_repeated_settlement_is_done_and_written_again(store: PlannedStore, watcher: Session) -> None:
    """The reply to a settlement may be lost: its repeat is Done, on the strength of a write, and changes nothing."""
    wanted = claim()
    store.claim([wanted])
    store.settle([done(wanted)])
    before = watcher.execute(f"SELECT xmin::text, version, outcome FROM {TABLE}").fetchone()
    assert store.settle([done(wanted, b"something else")]) == [DONE]
    after = watcher.execute(f"SELECT xmin::text, version, outcome FROM {TABLE}").fetchone()
    assert before is not None
    assert after is not None
    assert before[0] != after[0]
    assert before[1:] == after[1:]


def test_a_cleared_token_fits_nobody(store: PlannedStore, watcher: Session) -> None:
    """A record without an owner is not settled by an empty token."""
    wanted = claim()
    store.claim([wanted])
    watcher.execute(f"UPDATE {TABLE} SET token = NULL")
    [answer] = store.settle([done(wanted, token=b"")])
    assert isinstance(answer, Stale)
    assert answer.found is not None
    assert answer.found.record.state is State.EXECUTING


def test_listings_use_their_own_index(store: PlannedStore, watcher: Session) -> None:
    """Open records are found without reading the finished ones."""
    watcher.execute("SET enable_seqscan = off")
    listing = statements(TABLE)["scan_open"].sql.decode()
    for number, value in enumerate(("'{1,2}'::int2[]", "''::bytea", "NULL::int8", "10"), 1):
        listing = listing.replace(f"${number}", value)
    plan = watcher.execute(f"EXPLAIN {listing}".encode()).fetchall()
    assert any(f"{TABLE}_open" in line for (line,) in plan)


@pytest.mark.parametrize("name", ["scan_due", "scan_undated"])
def test_the_queue_of_unknown_records_has_its_own_index(store: PlannedStore, watcher: Session, name: str) -> None:
    """What is due is found in its order, without reading what is not due yet and without sorting."""
    watcher.execute("SET enable_seqscan = off")
    values = ("0", "0", "''::bytea", "10") if name == "scan_due" else ("''::bytea", "10")
    listing = statements(TABLE)[name].sql.decode()
    for number, value in enumerate(values, 1):
        listing = listing.replace(f"${number}", value)
    plan = [line for (line,) in watcher.execute(f"EXPLAIN {listing}".encode()).fetchall()]
    assert any(f"{TABLE}_unknown" in line for line in plan), plan
    assert not any("Sort" in line for line in plan), plan


def test_renewals_stay_within_their_page(store: PlannedStore, watcher: Session) -> None:
    """No index holds what a renewal changes, so nearly all of them touch no index."""
    claims = [claim() for _ in range(50)]
    store.claim(claims)
    for _ in range(3):
        store.renew([Renewal(one.id, one.token, 30_000, 900_000) for one in claims])
    store.close()
    counts = "SELECT n_tup_upd, n_tup_hot_upd FROM pg_stat_user_tables WHERE relname = %s AND n_tup_upd = 150"
    until(lambda: watcher.execute(counts, (TABLE,)).fetchone())
    row = watcher.execute(counts, (TABLE,)).fetchone()
    assert row is not None
    assert row[1] / row[0] > 0.5
