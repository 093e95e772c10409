"""Servers that are wrong, gone, killed or read-only, and what the user is told."""

from __future__ import annotations

import selectors
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import psycopg
import pytest

from oncekey.core.commands import Won
from oncekey.core.record import Seen
from oncekey.errors import ConfigurationError, OnceKeyError, SchemaMissing, StoreUnavailable
from oncekey.stores.contract import Finding
from oncekey.stores.planned import PlannedStore
from oncekey.stores.postgres import open_sync
from oncekey.stores.postgres.listen import PostgresListener
from oncekey.stores.postgres.options import read_options
from tests.infra import PostgresServer
from tests.infra.process import free_port
from tests.stores.postgres.conftest import Session
from tests.stores.postgres.items import TABLE, claim, done, until


@pytest.fixture
def own_server() -> Iterator[PostgresServer]:
    """A server that the test may kill or spoil."""
    with PostgresServer() as server:
        yield server


def refusals(findings: list[Finding]) -> list[str]:
    """What stops the start."""
    return [finding.what for finding in findings if finding.level == "refusal"]


def test_a_missing_schema_says_what_to_run(postgres_url: str) -> None:
    """Work on a database without our tables names the command that makes them, without the password."""
    store = open_sync(postgres_url.replace("oncekey@", "oncekey:secret@"), store_for=5)
    with pytest.raises(SchemaMissing, match="oncekey migrate --store 'postgresql://oncekey@127") as missing:
        store.claim([claim()])
    assert "secret" not in str(missing.value)
    assert refusals(store.check()) == [f"the table {TABLE} is not there"]
    store.close()


def test_migrate_twice_does_nothing_more(store: PlannedStore, watcher: Session) -> None:
    """A migration is applied once and noted."""
    assert store.migrate() == []
    assert watcher.execute("SELECT name, version FROM oncekey_schema").fetchall() == [(TABLE, 1), (TABLE, 2)]
    assert [finding.level for finding in store.check()] == ["ok", "ok"]


def test_many_may_migrate_at_once(postgres_url: str) -> None:
    """Several processes that start together make one schema."""
    stores = [open_sync(postgres_url, store_for=20) for _ in range(4)]
    done_by: list[list[str]] = []
    threads = [threading.Thread(target=lambda s=s: done_by.append(s.migrate())) for s in stores]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for store in stores:
        store.close()
    assert sorted(done_by) == [[], [], [], [f"{TABLE}: schema version 1", f"{TABLE}: schema version 2"]]


def test_an_unreachable_server_is_named(postgres_url: str) -> None:
    """Nobody listens there: the address and what to correct, not the password."""
    store = open_sync(f"postgresql://me:secret@127.0.0.1:{free_port()}/shop", store_for=5)
    with pytest.raises(StoreUnavailable, match=r"cannot be reached .*correct host and port") as error:
        store.get(b"id")
    assert "secret" not in str(error.value)


def test_a_listener_that_cannot_begin_says_why(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its thread is gone by the time it is closed: what is raised is why, and not that it is gone."""
    listener = PostgresListener(read_options(f"postgresql://127.0.0.1:{free_port()}/shop", store_for=5), print)
    asked = listener._started.result

    def result() -> None:
        listener._thread.join()
        asked()

    monkeypatch.setattr(listener._started, "result", result)
    with pytest.raises(StoreUnavailable, match="cannot be reached"):
        listener.start()


def test_a_missing_database_is_named(postgres_server: PostgresServer) -> None:
    """The server's own words say which database; ours say what to do."""
    store = open_sync(postgres_server.database_url("nowhere"), store_for=5)
    with pytest.raises(StoreUnavailable, match=r'"nowhere" does not exist.*: create it'):
        store.get(b"id")


def test_a_wrong_password_is_not_repeated(own_server: PostgresServer) -> None:
    """A refused password is said, and never shown."""
    own_server.execute("ALTER USER oncekey PASSWORD 'right'")
    (own_server.folder / "data" / "pg_hba.conf").write_text("host all all 127.0.0.1/32 scram-sha-256\n")
    url = own_server.url
    with psycopg.connect(url, autocommit=True) as admin:
        admin.execute("SELECT pg_reload_conf()")
    store = open_sync(url.replace("oncekey@", "oncekey:mistaken@"), store_for=5)

    said: list[str] = []

    def refused() -> bool:
        try:
            store.check()
        except StoreUnavailable as error:
            said.append(str(error))
        store.close()
        return bool(said)

    until(refused)
    assert "correct user and password" in said[0]
    assert "mistaken" not in said[0]


@pytest.mark.parametrize(
    ("query", "words"),
    [
        ("oncekey_tabel=x", "oncekey_tabel is not an option"),
        ("oncekey_table=x;drop", "is not a table's name"),
        ("oncekey_pool=0", "number of connections"),
        ("oncekey_pooler=maybe", "auto, yes"),
        ("oncekey_listen=5432", "write host:port"),
        ("ssl_mode=no", "cannot be read"),
    ],
)
def test_a_wrong_option_is_refused_when_opening(query: str, words: str) -> None:
    """A typo in the URL is found before anything is contacted, and the password stays out of the sentence."""
    with pytest.raises(ConfigurationError, match=words) as error:
        open_sync(f"postgresql://me:secret@nowhere/shop?{query}", store_for=5)
    assert "secret" not in str(error.value)


def test_a_read_only_server_is_refused(store: PlannedStore, watcher: Session) -> None:
    """Nothing is decided where nothing can be written, not even a replay."""
    wanted = claim()
    store.claim([wanted])
    store.close()
    watcher.execute(f'ALTER DATABASE "{watcher.info.dbname}" SET default_transaction_read_only = on')
    for verb in (lambda: store.claim([wanted]), lambda: store.get(wanted.id)):
        with pytest.raises(StoreUnavailable, match="point the store's URL at the primary"):
            verb()
    assert refusals(store.check()) == ["transactions are read-only here: nothing can be claimed"]
    watcher.execute("SET default_transaction_read_only = off")
    watcher.execute(f'ALTER DATABASE "{watcher.info.dbname}" RESET default_transaction_read_only')
    assert isinstance(store.claim([wanted])[0], Seen)


def test_a_table_that_a_crash_would_empty_is_refused(store: PlannedStore, watcher: Session) -> None:
    """UNLOGGED is fast and forgets everything."""
    watcher.execute(f"ALTER TABLE {TABLE} SET UNLOGGED")
    assert refusals(store.check()) == [f"the table {TABLE} is not durable: a crash of the server empties it"]


def test_lax_defaults_of_the_database_do_not_reach_us(store: PlannedStore, watcher: Session) -> None:
    """The lanes set durability and isolation themselves."""
    name = watcher.info.dbname
    store.close()
    watcher.execute(f'ALTER DATABASE "{name}" SET synchronous_commit = off')
    watcher.execute(f"ALTER DATABASE \"{name}\" SET default_transaction_isolation = 'serializable'")
    assert refusals(store.check()) == []


def test_a_server_without_fsync_is_refused() -> None:
    """Acknowledged claims must survive the machine."""
    with PostgresServer(fsync="off", full_page_writes="off") as server:
        store = open_sync(server.url, store_for=5)
        store.migrate()
        findings = store.check()
        store.close()
    assert refusals(findings) == ["fsync is off: a crash of the machine loses or breaks records"]
    assert any(finding.level == "warning" and "full_page_writes" in finding.what for finding in findings)


@pytest.mark.slow
def test_acknowledged_claims_survive_a_killed_server(own_server: PostgresServer) -> None:
    """Whatever was granted or settled before SIGKILL is there afterwards."""
    store = open_sync(own_server.url, store_for=5)
    store.migrate()
    granted: list[bytes] = []

    def work() -> None:
        try:
            while True:
                batch = [claim() for _ in range(8)]
                won = store.claim(batch)
                granted.extend(one.id for one, answer in zip(batch, won, strict=True) if isinstance(answer, Won))
                store.settle([done(one) for one in batch[:4]])
        except OnceKeyError:
            return

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    until(lambda: len(granted) > 2_000)
    own_server.kill()
    for thread in threads:
        thread.join()
    own_server.start()
    assert all(store.get(id_) is not None for id_ in granted[-500:])
    with psycopg.connect(own_server.url) as session:
        kept = {id_ for (id_,) in session.execute(f"SELECT id FROM {TABLE}")}
    store.close()
    assert set(granted) <= kept


def test_a_restart_of_the_server_is_not_noticed_by_the_next_verb(own_server: PostgresServer) -> None:
    """Idle connections that the server closed are replaced before they are used."""
    store = open_sync(own_server.url, store_for=5)
    store.migrate()
    own_server.restart()
    assert isinstance(store.claim([claim()])[0], Won)
    store.close()


def test_a_commit_that_reached_one_server_only_is_not_believed(own_server: PostgresServer) -> None:
    """A cancelled wait for the standby is trouble; the repeat must wait for the standby again, and then succeeds."""
    store = open_sync(own_server.url, store_for=20)
    store.migrate()
    own_server.execute("ALTER SYSTEM SET synchronous_standby_names = 'ghost'")
    own_server.execute("SELECT pg_reload_conf()")
    wanted = claim()
    cancel = "SELECT pg_cancel_backend(pid) FROM pg_stat_activity WHERE wait_event = 'SyncRep'"
    with psycopg.connect(own_server.url, autocommit=True) as admin, ThreadPoolExecutor(1) as aside:
        for _ in range(2):
            waiting = aside.submit(store.claim, [wanted])
            until(lambda: admin.execute(cancel).fetchone())
            assert "one server only" in str(waiting.exception())
        admin.execute("ALTER SYSTEM RESET synchronous_standby_names")
        admin.execute("SELECT pg_reload_conf()")
    [found] = store.claim([wanted])
    store.close()
    assert isinstance(found, Seen)
    assert found.record.token == wanted.token


def test_a_listener_that_is_closed_while_it_begins_says_so(postgres_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever waits for it to begin is told, at whatever moment it is closed: nobody waits for ever."""
    options = read_options(postgres_url, store_for=5)
    early = PostgresListener(options, print)
    early.close()
    with pytest.raises(StoreUnavailable, match="closed before it had begun"):
        early.start()

    late, real = PostgresListener(options, print), selectors.DefaultSelector

    def slow() -> selectors.BaseSelector:
        while not late._closed:
            time.sleep(0.001)
        return real()

    monkeypatch.setattr(selectors, "DefaultSelector", slow)
    threading.Timer(0.05, late.close).start()
    with pytest.raises(StoreUnavailable, match="closed before it had begun"):
        late.start()
