"""The throw-away servers do what the tests that use them rely on."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import textwrap
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import psycopg
import pytest
import redis

from tests.conftest import on_missing, started
from tests.infra import EngineMissing, PostgresServer, Redis62Server, RedisServer, Server, ValkeyServer
from tests.infra.process import descendants, sweep_folders

ENGINES: list[Callable[[], Server]] = [
    PostgresServer,
    lambda: RedisServer(appendonly="yes", appendfsync="always"),
    lambda: ValkeyServer(appendonly="yes", appendfsync="always"),
    lambda: Redis62Server(appendonly="yes", appendfsync="always"),
]


@pytest.fixture(params=ENGINES, ids=["postgres", "redis", "valkey", "redis62"])
def server(request: pytest.FixtureRequest) -> Iterator[Server]:
    """One server per engine, for this test alone."""
    with started(request.param) as running:
        yield running


def write(server: Server, value: str) -> None:
    """Store a value durably."""
    if isinstance(server, RedisServer):
        with redis.Redis.from_url(server.url) as client:
            client.set("kept", value)
    else:
        with psycopg.connect(server.url) as connection:
            connection.execute("CREATE TABLE IF NOT EXISTS kept (value text)")
            connection.execute("INSERT INTO kept VALUES (%s)", [value])


def read(server: Server) -> str:
    """Read the stored value back."""
    if isinstance(server, RedisServer):
        with redis.Redis.from_url(server.url, decode_responses=True) as client:
            return str(client.get("kept"))
    with psycopg.connect(server.url) as connection:
        row = connection.execute("SELECT value FROM kept").fetchone()
        return str(row and row[0])


def wait_until_gone(pids: list[int]) -> list[int]:
    """Return those that still run after ten seconds; a process that nobody reaped yet is gone."""
    left = pids
    for _ in range(200):
        left = [pid for pid in left if state_of(pid) not in {"", "Z"}]
        if not left:
            break
        time.sleep(0.05)
    return left


def state_of(pid: int) -> str:
    """Return the kernel's letter for what a process does; empty when there is none."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return ""


def test_data_survives_kill_and_restart(server: Server) -> None:
    """What a client was told is stored is there after SIGKILL, on the same port."""
    write(server, "before the kill")
    url, first = server.url, server.pid

    server.kill()
    assert not server.answers()
    server.start()

    assert read(server) == "before the kill"
    assert server.url == url
    assert server.pid != first


def test_polite_restart_keeps_data(server: Server) -> None:
    """A stop and start loses nothing."""
    write(server, "before the restart")
    server.restart()
    assert read(server) == "before the restart"


def test_paused_server_is_silent_until_resumed(server: Server) -> None:
    """A paused server accepts connections and answers nothing; a resumed one goes on."""
    server.pause()
    try:
        with socket.create_connection(("127.0.0.1", server.port), timeout=1):
            assert not server.answers()
    finally:
        server.resume()
    assert server.answers()


def test_nothing_is_left_after_close(server: Server) -> None:
    """After close there is no process, no folder and nobody on the port."""
    family = [server.pid, *descendants(server.pid)]
    folder = server.folder

    server.close()

    assert wait_until_gone(family) == []
    assert not folder.exists()
    assert not server.answers()


def test_paused_server_can_be_closed(server: Server) -> None:
    """A test that fails while its server is paused does not hang the run."""
    pid = server.pid
    server.pause()
    server.close()
    assert wait_until_gone([pid]) == []


@pytest.mark.usefixtures("redis_server")
def test_server_outlives_the_thread_that_started_it() -> None:
    """A server may be started from a thread that ends at once."""
    server = RedisServer()
    thread = threading.Thread(target=server.start)
    thread.start()
    thread.join()
    time.sleep(0.2)
    try:
        assert server.running
        assert server.answers()
    finally:
        server.close()


@pytest.mark.parametrize(
    ("engine", "fixture"),
    [("PostgresServer", "postgres_server"), ("RedisServer", "redis_server"), ("RabbitServer", "rabbitmq_server")],
)
def test_server_ends_with_a_killed_test_run(engine: str, fixture: str, request: pytest.FixtureRequest) -> None:
    """SIGKILL to the test process ends its servers too."""
    request.getfixturevalue(fixture)  # skips where the engine is missing
    program = f"""
        import time
        from tests.infra import {engine}
        with {engine}() as server:
            print(server.pid, flush=True)
            time.sleep(60)
    """
    with subprocess.Popen([sys.executable, "-c", textwrap.dedent(program)], stdout=subprocess.PIPE) as run:
        assert run.stdout is not None
        pid = int(run.stdout.readline())
        family = descendants(run.pid)  # helpers of the server too
        assert pid in family
        run.send_signal(signal.SIGKILL)
    assert wait_until_gone(family) == []


@pytest.mark.usefixtures("redis_server")
def test_folder_of_a_dead_run_is_swept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An old folder that nobody locks is deleted; a new or locked one stays."""
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    dead, new = tmp_path / "oncekey-test-dead", tmp_path / "oncekey-test-new"
    dead.mkdir()
    new.mkdir()
    os.utime(dead, (0, 0))
    with RedisServer() as server:
        os.utime(server.folder, (0, 0))
        sweep_folders()
        assert not dead.exists()
        assert new.exists()
        assert server.folder.exists()


def test_missing_engine_skips_and_fails_in_ci(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without its engine a test is skipped with the command to run; CI does not let that pass."""
    missing = EngineMissing("Redis is not installed; run: tools/provision servers")
    monkeypatch.delenv("CI", raising=False)
    with pytest.raises(pytest.skip.Exception, match="run: tools/provision"):
        on_missing(missing)
    monkeypatch.setenv("CI", "true")
    with pytest.raises(pytest.fail.Exception, match="run: tools/provision"):
        on_missing(missing)


def test_urls_are_empty_for_each_test(postgres_url: str, redis_url: str, valkey_url: str, redis62_url: str) -> None:
    """The URL fixtures give an own database, or a server without keys."""
    with psycopg.connect(postgres_url) as connection:
        tables = connection.execute("SELECT count(*) FROM pg_tables WHERE schemaname = 'public'").fetchone()
    assert tables == (0,)
    for url in (redis_url, valkey_url, redis62_url):
        with redis.Redis.from_url(url) as client:
            assert client.dbsize() == 0
