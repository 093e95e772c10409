"""Round trips of a request, and bytes of a finished record, measured at the server for every candidate."""

from __future__ import annotations

import contextlib
import sqlite3
import tempfile
from pathlib import Path
from typing import Any

from bench.candidates import OURS, Candidate, on
from bench.line import Line
from bench.pieces import Bar, Chart, Note, Piece, Table, number
from bench.requests import NO_LAYER, checked
from bench.rounds import PHASES
from bench.sections import Bench
from bench.servers import Served, served
from bench.wiretap import Wiretap

STORES = ("redis", "postgres", "sqlite")
TOGETHER = 64


def measure(bench: Bench) -> dict[str, Any]:
    """Every candidate alone on an empty server."""
    found: dict[str, Any] = {}
    for at, store in enumerate(STORES):
        found[store] = rows = []
        with served(store) as server:
            for candidate in on(store, bench.names):
                if candidate.name not in NO_LAYER:
                    bench.progress(at / len(STORES), f"{store} {candidate.name}")
                    rows.append({"name": candidate.name, **_one(bench, candidate, store, server)})
    return found


def _one(bench: Bench, candidate: Candidate, store: str, server: Served) -> dict[str, Any]:
    with contextlib.ExitStack() as stack:
        url, tap = server.url, None
        if store == "sqlite":
            folder = stack.enter_context(tempfile.TemporaryDirectory(prefix="oncekey-bench-"))
            url = f"sqlite:///{folder}/records.db"
        else:
            _empty(store, server.url)
            tap = stack.enter_context(Wiretap(server.port))
            url = tap.through(url)
        line = stack.enter_context(Line(candidate, store, url))
        found: dict[str, Any] = {"broken": ""}
        if tap is not None:
            found |= _trips(line, tap, 50 if bench.quick else 200)
        size = 500 if bench.quick else 5000
        _ask(line, "first", "bytes", size, TOGETHER)
        found["bytes"] = BYTES[store](url if tap is None else server.url)
    return found


def _trips(line: Line, tap: Wiretap, size: int) -> dict[str, Any]:
    """Round trips and bytes of a request alone, and for us also of many at once."""
    _ask(line, "first", "warm", 2 * TOGETHER, TOGETHER)
    found: dict[str, Any] = {}
    for concurrency in (1, TOGETHER) if line.name.startswith(OURS) else (1,):
        for phase in PHASES:
            turns, said = tap.turns, tap.sent + tap.received
            answer = _ask(line, phase, f"trips {concurrency}", size * concurrency, concurrency)
            if "broken" in answer:
                found["broken"] = answer["broken"]
                continue
            found[f"trips {phase} {concurrency}"] = (tap.turns - turns) / (size * concurrency)
            found[f"traffic {phase} {concurrency}"] = (tap.sent + tap.received - said) / (size * concurrency)
    return found


def _ask(line: Line, phase: str, seed: str, size: int, concurrency: int) -> dict[str, Any]:
    answer = line.ask("run", phase=phase, seed=seed, count=size, concurrency=concurrency)
    return checked(line.name, phase, size, answer)


# ---- what lies in the server -------------------------------------------------------------------------------------


def _empty(store: str, url: str) -> None:
    if store == "redis":
        import redis

        redis.Redis.from_url(url).flushall()
    else:
        import psycopg

        with psycopg.connect(url, autocommit=True) as connection:
            connection.execute("drop schema public cascade")
            connection.execute("create schema public")


def _redis_bytes(url: str) -> float:
    """MEMORY USAGE of all keys (sets and indexes too), by the number of records."""
    import redis

    server = redis.Redis.from_url(url)
    records = total = 0
    for key in server.scan_iter(count=1000):
        records += server.type(key) == b"string"
        total += server.memory_usage(key, samples=0) or 0
    return float(total / max(records, 1))


def _postgres_bytes(url: str) -> float:
    """Tables with their indexes and free space, by the rows of the largest."""
    import psycopg

    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute("vacuum")
        rows = connection.execute(
            "select c.oid::regclass::text, pg_total_relation_size(c.oid) from pg_class c "
            "where relkind = 'r' and relnamespace = 'public'::regnamespace"
        ).fetchall()
        counts = [connection.execute(f"select count(*) from {name}".encode()).fetchone() for name, _ in rows]
    return float(sum(size for _, size in rows) / max(1, *(count[0] for count in counts if count)))


def _sqlite_bytes(url: str) -> float:
    """The file, by the rows of the largest table."""
    path = Path(url.removeprefix("sqlite:///"))
    with contextlib.closing(sqlite3.connect(path)) as db:
        db.execute("pragma wal_checkpoint(truncate)")
        names = [name for (name,) in db.execute("select name from sqlite_master where type = 'table'")]
        rows = max(db.execute(f'select count(*) from "{name}"').fetchone()[0] for name in names)
    return float(path.stat().st_size / rows)


BYTES = {"redis": _redis_bytes, "postgres": _postgres_bytes, "sqlite": _sqlite_bytes}

# ---- what it looks like ------------------------------------------------------------------------------------------

HEAD = ("", "trips first", "trips replay", "on the wire first", "replay", "bytes kept")


def show(found: dict[str, Any]) -> list[Piece]:
    """A table for each store, and a chart of the bytes."""
    pieces: list[Piece] = []
    for store, rows in found.items():
        lines = [(row["name"], *_cells(row, 1), number(row["bytes"])) for row in rows]
        lines += [(f"{row['name']}, {TOGETHER} at once", *_cells(row, TOGETHER), "") for row in rows if _shared(row)]
        pieces.append(Table(f"{store}: round trips and bytes of a request", HEAD, lines))
        groups = [(store, [Bar(row["name"], row["bytes"], number(row["bytes"])) for row in rows])]
        pieces.append(Chart(f"bytes-{store}", f"{store}: bytes of a finished record", groups))
        pieces += [Note(f"{row['name']}: {row['broken']}") for row in rows if row["broken"]]
    return pieces


def _shared(row: dict[str, Any]) -> bool:
    return f"trips first {TOGETHER}" in row


def _cells(row: dict[str, Any], concurrency: int) -> list[str]:
    return [number(row.get(f"{what} {phase} {concurrency}")) for what in ("trips", "traffic") for phase in PHASES]
