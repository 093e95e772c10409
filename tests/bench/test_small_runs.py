"""Each kind of measurement in a few seconds: the figures are no use, their shape is what the page is made of."""

from __future__ import annotations

import contextlib
import socket
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pytest

from bench import canonical, filled, growth, imports, over_http, purge, records, terminal, transactions
from bench.candidates import BY_NAME, FLOOR, FROM_STORE, OURS
from bench.line import Line
from bench.sections import Bench
from bench.wiretap import Wiretap
from oncekey.core.record import Seen, State
from oncekey.stores.open import open_store
from tests.infra import RedisServer

QUICK = Bench(rounds=1, size=20, quick=True)


def echo(listener: socket.socket) -> None:
    """Answer each message with itself, in two pieces."""
    with contextlib.suppress(OSError):
        while True:
            client, _ = listener.accept()
            while data := client.recv(100):
                client.sendall(data[:1])
                client.sendall(data[1:])
            client.close()


def test_round_trips_are_turns() -> None:
    """Two messages before an answer are one round trip, an answer in two pieces is one answer."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        threading.Thread(target=echo, args=(listener,), daemon=True).start()
        port = listener.getsockname()[1]
        with Wiretap(port) as tap:
            port = int(tap.through(f"x://127.0.0.1:{port}/0").rpartition(":")[2].partition("/")[0])
            with socket.create_connection(("127.0.0.1", port)) as asking:
                for _ in range(3):
                    asking.sendall(b"ping")
                    got = b""
                    while len(got) < 4:
                        got += asking.recv(10)
            assert (tap.turns, tap.sent, tap.received) == (3, 12, 12)


def test_trips_and_bytes_at_the_server(redis_server: RedisServer, redis_url: str) -> None:
    """On Redis we ask twice for a first request and at most once for a replay; the floor's record is found too."""
    ours = {"trips first 1": 2.0, "trips replay 1": 0.0}
    for name, trips in ((FLOOR, {}), (OURS, ours), (FROM_STORE, ours | {"trips replay 1": 1.0})):
        with (
            Wiretap(redis_server.port) as tap,
            Line(BY_NAME[name], "redis", tap.through(redis_url), Path(sys.executable)) as line,
        ):
            found = records._trips(line, tap, 2)
        assert {key: found[key] for key in trips} == trips
        assert 100 < records._redis_bytes(redis_url) < 400
        records._empty("redis", redis_url)


@pytest.mark.parametrize("store", ["sqlite", "postgres"])
def test_copies_are_records(store: str, tmp_path: Path, request: pytest.FixtureRequest) -> None:
    """What a table is filled with is found by a claim; expired ones are purged."""
    url = f"sqlite:///{tmp_path / 'a.db'}" if store == "sqlite" else str(request.getfixturevalue("postgres_url"))
    filled.fill(url, 50)
    with contextlib.closing(open_store(url)) as opened:
        [found] = opened.claim([filled.a_claim(filled.nth(50))])
        assert isinstance(found, Seen)
        assert found.record.state is State.COMPLETED
        assert opened.purge(100).deleted == 0
    expired = url.replace("a.db", "b.db") if store == "sqlite" else f"{url}?oncekey_table=expired"
    filled.fill(expired, 50, expired=True)
    done = subprocess.run([sys.executable, "-c", purge.PURGE, expired, "9"], capture_output=True, text=True, check=True)
    assert int(done.stdout) == 50


def test_growth_has_its_table(tmp_path: Path) -> None:
    """Single claims and replays on a small and a large table of SQLite."""
    stores = []
    for size in (20, 40):
        url = f"sqlite:///{tmp_path / f'{size}.db'}"
        filled.fill(url, size)
        stores.append(open_store(url))
    found = growth._rounds(QUICK, (20, 40), stores)
    for store in stores:
        store.close()
    shown = terminal.show(growth.show({"sqlite": {"sizes": (20, 40), "filled_for": (0, 1), **found}}, 40))
    assert "sqlite, claim" in shown
    assert found["replay"]["ratio"] > 0


def test_paced_requests_have_latencies(tmp_path: Path) -> None:
    """Clients that pause make a few requests in a tenth of a second, and each is timed."""
    with Line(BY_NAME[OURS], "memory", "memory://", Path(sys.executable)) as line:
        times = line.ask("paced", seed="a", clients=2, pause=0.01, seconds=0.1)["times"]
    assert len(times) > 2
    figures = purge._figures(times)
    assert figures["p50"] <= figures["p99"] <= figures["max"]


def test_an_import_is_watched_in_a_fresh_process() -> None:
    """Oncekey brings nothing along; another package's companions are named."""
    assert imports.fresh(Path(sys.executable), "oncekey")["foreign"] == ["oncekey"]
    assert "orjson" in imports.fresh(Path(sys.executable), "oncekey.core.jcs")["foreign"]


def test_bodies_are_compared_in_all_ways() -> None:
    """Every way can read every body, and the table has a column for each body."""
    found = canonical.measure(Bench(rounds=1, quick=True))
    [table, _] = canonical.show(found)
    assert len(table.head) == 1 + len(found)  # type: ignore[union-attr]
    assert {row[0] for row in table.rows} == set(canonical.WAYS)  # type: ignore[union-attr]


def test_a_server_serves_a_candidate(monkeypatch: pytest.MonkeyPatch) -> None:
    """Uvicorn with the candidate behind it answers, and is gone afterwards; wrk's words are read."""
    candidate: Any = BY_NAME[OURS]
    monkeypatch.setitem(BY_NAME, OURS, candidate._replace(venv=str(Path(sys.executable).parent.parent)))
    with (
        over_http._uvicorn(OURS, "memory://", 1, "first", store="memory") as (port, _),
        socket.create_connection(("127.0.0.1", port)) as asking,
    ):
        body = b'{"amount": 1}'
        asking.sendall(
            b"POST /pay HTTP/1.1\r\nhost: a\r\nauthorization: b\r\nidempotency-key: c\r\nconnection: close\r\n"
            b"content-type: application/json\r\ncontent-length: %d\r\n\r\n%b" % (len(body), body)
        )
        assert asking.recv(1000).startswith(b"HTTP/1.1 201")
    with pytest.raises(OSError, match="refused"):
        socket.create_connection(("127.0.0.1", port))


def test_without_wrk_its_section_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    """A missing program is a sentence, not the end of the run."""
    monkeypatch.setattr("shutil.which", lambda name: None)
    [note] = over_http.show(over_http.measure(QUICK))
    assert "tools/provision bench" in terminal.show([note])


@pytest.mark.parametrize("kind", ["psycopg", "SQLAlchemy on SQLite"])
def test_transactions_are_counted_by_the_database(kind: str) -> None:
    """The transactional mode adds two statements and no commit to the business transaction."""
    with transactions._served(kind) as url:
        found = transactions._kind(QUICK, kind, url)
    assert (found["statements"], found["commits"]) == ([2, 4], [1, 1])
    assert kind in terminal.show(transactions.show({kind: found}))
