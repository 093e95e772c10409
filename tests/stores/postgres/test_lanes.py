"""Connections: when they open, who may reuse them, forks, loops, cancelled callers and poolers."""

from __future__ import annotations

import asyncio
import os
import struct
import sys
import threading
from concurrent.futures import ThreadPoolExecutor

import psycopg
import pytest
from psycopg import waiting
from psycopg.adapt import Transformer

from oncekey.core.commands import DONE, Won
from oncekey.core.record import Seen
from oncekey.errors import StoreUnavailable
from oncekey.stores.planned import PlannedStore
from oncekey.stores.postgres import binary, open_async, open_sync
from oncekey.stores.postgres.lane import Lane
from oncekey.stores.postgres.options import read_options
from oncekey.stores.postgres.statements import statements
from tests.infra import PostgresServer
from tests.stores.postgres.conftest import Session
from tests.stores.postgres.items import INSERT, TABLE, claim, done, until, until_blocked

SESSIONS = "SELECT pid FROM pg_stat_activity WHERE application_name = 'oncekey' AND datname = current_database()"


def test_nothing_is_contacted_before_the_first_verb(postgres_url: str, watcher: Session) -> None:
    """Opening a store opens no connection, closing it leaves none, and a verb after that opens anew."""
    store = open_sync(postgres_url, store_for=5)
    assert watcher.execute(SESSIONS).fetchall() == []
    store.migrate()
    assert len(watcher.execute(SESSIONS).fetchall()) == 1
    store.close()
    assert isinstance(store.claim([claim()])[0], Won)
    store.close()


def test_lanes_are_as_many_as_allowed(postgres_url: str, session: Session, watcher: Session) -> None:
    """Beyond its pool a store waits, and says so when the time is up."""
    slow = open_sync(f"{postgres_url}?oncekey_pool=1", store_for=20)
    slow.migrate()
    wanted = claim()
    session.execute(INSERT, (wanted.id,))
    with ThreadPoolExecutor(1) as aside:
        held = aside.submit(slow.claim, [wanted])
        until_blocked(watcher)
        slow.wire._options = slow.wire._options._replace(store_for=0.1)  # type: ignore[attr-defined]
        with pytest.raises(StoreUnavailable, match=r"all 1 connections .* raise oncekey_pool"):
            slow.get(wanted.id)
        session.commit()
        assert isinstance(held.result()[0], Seen)
    slow.close()


def test_a_silent_server_is_given_up_in_time() -> None:
    """A server that accepts and says nothing costs the time budget and no more; the connection is not used again."""
    with PostgresServer() as server:
        store = open_sync(server.url, store_for=1)
        store.migrate()
        server.pause()
        with pytest.raises(StoreUnavailable, match="within the time budget"):
            store.claim([claim()])
        server.resume()
        assert isinstance(store.claim([claim()])[0], Won)
        store.close()


async def test_a_silent_server_is_given_up_in_time_by_asyncio() -> None:
    """The same, awaited."""
    with PostgresServer() as server:
        store = open_async(server.url, store_for=1)
        await store.migrate()
        server.pause()
        with pytest.raises(StoreUnavailable, match="within the time budget"):
            await store.claim([claim()])
        server.resume()
        assert isinstance((await store.claim([claim()]))[0], Won)
        await store.close()


async def test_a_cancelled_verb_leaves_no_reply_behind(postgres_url: str, session: Session, watcher: Session) -> None:
    """The connection of a cancelled caller is dropped: nobody reads another's record from it."""
    store = open_async(f"{postgres_url}?oncekey_pool=1", store_for=20)
    await store.migrate()
    mine, other = claim(), claim()
    session.execute(INSERT, (mine.id,))
    cut = asyncio.create_task(store.claim([mine]))
    await asyncio.to_thread(until_blocked, watcher)
    cut.cancel()
    with pytest.raises(asyncio.CancelledError):
        await cut
    session.commit()
    assert isinstance((await store.claim([other]))[0], Won)
    found = await store.get(mine.id)
    assert found is not None
    assert found.record.token == b"theirs"
    await store.close()


def test_each_loop_has_lanes_of_its_own(postgres_url: str, store: PlannedStore, watcher: Session) -> None:
    """A store that outlives its loop works on the next one, and leaves nothing of the old one behind."""
    shared = open_async(postgres_url, store_for=5)
    for _ in range(3):
        assert isinstance(asyncio.run(shared.claim([claim()]))[0], Won)
    store.close()
    # The server notices a session's end in its own time.
    until(lambda: len(watcher.execute(SESSIONS).fetchall()) == 1)
    asyncio.run(shared.close())


@pytest.mark.skipif(sys.platform == "win32", reason="fork")
@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_a_forked_child_opens_its_own(store: PlannedStore) -> None:
    """Parent and child never share a connection, and the child's end does not end the parent's session."""
    wanted, theirs = claim(), claim()
    store.claim([wanted])
    lane = store.wire._idle._lanes[0]  # type: ignore[attr-defined]
    child = os.fork()
    if not child:
        ok = isinstance(store.claim([theirs])[0], Won)
        ok = ok and store.wire._idle._lanes[0].pgconn.backend_pid != lane.pgconn.backend_pid  # type: ignore[attr-defined]
        store.close()
        os._exit(0 if ok else 1)
    assert os.waitpid(child, 0)[1] == 0
    assert store.settle([done(wanted)]) == [DONE]
    assert store.wire._idle._lanes[0] is lane  # type: ignore[attr-defined]
    assert store.get(theirs.id) is not None


def test_a_direct_connection_is_not_taken_for_a_pooled_one(store: PlannedStore) -> None:
    """The server names the process that it greeted us with, so nobody stands between; the URL may say otherwise."""
    for pooler, expected in (("auto", False), ("yes", True), ("no", False)):
        options = read_options(f"{store.url}?oncekey_pooler={pooler}", 5)
        with psycopg.connect(options.conninfo) as connection:
            lane = Lane(connection, options, statements(TABLE))
            waiting.wait(lane.arrive(None), lane.fileno, 0.1)
            assert lane.pooled is expected


def test_many_threads_share_few_lanes(store: PlannedStore, watcher: Session) -> None:
    """Threads beyond the pool wait their turn; every claim is granted once."""
    keys = [claim() for _ in range(40)]
    granted: list[bytes] = []

    def work() -> None:
        for key in keys:
            mine = key._replace(token=os.urandom(16))
            if isinstance(store.claim([mine])[0], Won):
                granted.append(mine.id)

    threads = [threading.Thread(target=work) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(granted) == sorted(key.id for key in keys)
    assert len(watcher.execute(SESSIONS).fetchall()) <= 4


@pytest.mark.parametrize(
    ("packed", "kind", "expected"),
    [
        (binary.blobs([b"a", b"", b"\0\xff"]), "bytea[]", [b"a", b"", b"\0\xff"]),
        (binary.blobs([]), "bytea[]", []),
        (binary.longs([1, None, -(2**63), 2**63 - 1]), "int8[]", [1, None, -(2**63), 2**63 - 1]),
        (binary.smalls([1, -5]), "int2[]", [1, -5]),
        (binary.flags([True, False]), "bool[]", [True, False]),
        (binary.texts(["ä", ""]), "text[]", ["ä", ""]),
        (struct.pack(">q", 7), "int8", 7),
    ],
)
def test_parameters_arrive_as_they_were_meant(packed: bytes, kind: str, expected: object, watcher: Session) -> None:
    """What we pack is what the server reads, nulls and empty strings apart."""
    result = watcher.pgconn.exec_params(f"SELECT $1::{kind}".encode(), [packed], None, [1], 1)
    transformer = Transformer(watcher)
    transformer.set_pgresult(result)
    assert transformer.load_row(0, tuple) == (expected,)
