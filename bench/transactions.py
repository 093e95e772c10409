"""What the transactional mode costs beside the bare business transaction: its time, its statements and its commits.

One client, one connection, the same two inserts. Statements and commits are those that the database counts.
"""

from __future__ import annotations

import contextlib
import sqlite3
import statistics
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple
from uuid import uuid4

from bench.pieces import Note, Piece, Table, number
from bench.rounds import turns
from bench.sections import Bench
from oncekey import SHARED, OnceKey, Policy
from oncekey.stores.open import open_store
from tests.infra import PostgresServer

BARE, ONCE = "bare", "oncekey"
SIDES = (BARE, ONCE)
KINDS = ("psycopg", "SQLAlchemy on Postgres", "sqlite3", "SQLAlchemy on SQLite")
INSERTS = (
    "INSERT INTO orders (number, customer) VALUES ({mark}, 'somebody')",
    "INSERT INTO lines (number, item, amount) VALUES ({mark}, 'a book', 2)",
)
TABLES = (
    "CREATE TABLE orders (number text NOT NULL PRIMARY KEY, customer text NOT NULL)",
    "CREATE TABLE lines (number text NOT NULL REFERENCES orders, item text NOT NULL, amount int NOT NULL)",
)


class Told(NamedTuple):
    """What a database was told: statements without those that begin and end, and commits."""

    statements: float
    commits: float


class Ear(NamedTuple):
    """What a database was told so far, and how to make it listen: it costs time where Python is told of each word."""

    told: Callable[[], Told]
    listen: Callable[[bool], None] = lambda on: None


class Side(NamedTuple):
    """A kind of connection: how its bare transaction goes, what `once.transaction` takes, what counts."""

    bare: Callable[[Callable[[Any], Any]], None]
    given: Any
    execute: Callable[[Any, str, str], Any]
    ear: Ear


def measure(bench: Bench) -> dict[str, Any]:
    """All kinds, each on an empty database."""
    found = {}
    for at, kind in enumerate(KINDS):
        bench.progress(at / len(KINDS), kind)
        with _served(kind) as url:
            found[kind] = _kind(bench, kind, url)
    return found


def _kind(bench: Bench, kind: str, url: str) -> dict[str, Any]:
    store = open_store(url)
    store.migrate()
    store.close()
    once = OnceKey(url, scope=SHARED, policy=Policy(guarantee="transactional"))
    with OPENED[kind](url) as side:
        runs = {BARE: lambda: _bare(side), ONCE: lambda: _once(side, once)}
        _round(runs, SIDES, 30)  # statements are prepared, connections are open
        counted = {name: _counted(side, run) for name, run in runs.items()}
        each = 30 if bench.quick else 200
        rounds = [_round(runs, order, each) for _, order in turns(SIDES, bench.rounds)]
    return {
        **{name: [statistics.median(row[name][at] for row in rounds) for at in (0, 1)] for name in SIDES},
        "ratio": [statistics.median(row[ONCE][at] / row[BARE][at] for row in rounds) for at in (0, 1)],
        "statements": [counted[name].statements for name in SIDES],
        "commits": [counted[name].commits for name in SIDES],
    }


def _bare(side: Side) -> None:
    side.bare(lambda connection: _inserts(side, connection))


def _once(side: Side, once: OnceKey) -> None:
    with once.transaction(side.given, key=uuid4().hex, operation="POST /orders", body={"item": "a book"}) as tx:
        tx.complete({"number": _inserts(side, tx.connection)})


def _inserts(side: Side, connection: Any) -> str:
    order = uuid4().hex
    for statement in INSERTS:
        side.execute(connection, statement, order)
    return order


def _round(runs: dict[str, Callable[[], None]], order: Sequence[str], each: int) -> dict[str, tuple[float, float]]:
    """Microseconds of one, by the wall and by our CPU: in turn, for a disk that is slow now is slow for both."""
    spent = {name: [0.0, 0.0] for name in order}
    for _ in range(each):
        for name in order:
            wall, cpu = time.perf_counter(), time.process_time()
            runs[name]()
            spent[name][0] += (time.perf_counter() - wall) * 1e6 / each
            spent[name][1] += (time.process_time() - cpu) * 1e6 / each
    return {name: (wall, cpu) for name, (wall, cpu) in spent.items()}


def _counted(side: Side, run: Callable[[], None], count: int = 20) -> Told:
    """What one transaction tells the database."""
    side.ear.listen(True)
    before = side.ear.told()
    for _ in range(count):
        run()
    after = side.ear.told()
    side.ear.listen(False)
    return Told(*((late - early) / count for early, late in zip(before, after, strict=True)))


# ---- kinds -------------------------------------------------------------------------------------------------------


@contextlib.contextmanager
def _served(kind: str) -> Iterator[str]:
    if kind in {"psycopg", "SQLAlchemy on Postgres"}:
        with PostgresServer(shared_preload_libraries="pg_stat_statements") as server:
            yield server.url
    else:
        with tempfile.TemporaryDirectory(prefix="oncekey-bench-") as folder:
            yield f"sqlite:///{Path(folder) / 'shop.db'}"


def _plainly(mark: str) -> Callable[[Any, str, str], Any]:
    """Run a statement on a driver's connection."""
    known = {statement: statement.format(mark=mark) for statement in INSERTS}
    return lambda given, statement, order: given.execute(known[statement], (order,))


@contextlib.contextmanager
def _psycopg(url: str) -> Iterator[Side]:
    import psycopg

    with _postgres(url) as ear, psycopg.connect(url) as connection:

        def bare(work: Callable[[Any], Any]) -> None:
            with connection.transaction():
                work(connection)

        yield Side(bare, connection, _plainly("%s"), ear)


@contextlib.contextmanager
def _postgres(url: str) -> Iterator[Ear]:
    """The tables, and what the server has counted, asked on another connection."""
    import psycopg

    count = (
        "SELECT coalesce(sum(calls) FILTER (WHERE query !~* '^(begin|commit|start|rollback|savepoint)'), 0), "
        "coalesce(sum(calls) FILTER (WHERE query ~* '^commit'), 0) FROM pg_stat_statements "
        "WHERE query !~ 'pg_stat_statements'"
    )
    with psycopg.connect(url, autocommit=True) as watching:
        watching.execute("CREATE EXTENSION IF NOT EXISTS pg_stat_statements")
        for table in TABLES:
            watching.execute(table.encode())
        yield Ear(lambda: Told(*map(float, watching.execute(count.encode()).fetchone() or ())))


@contextlib.contextmanager
def _session(url: str) -> Iterator[Side]:
    from sqlalchemy import create_engine

    engine = create_engine(url.replace("postgresql://", "postgresql+psycopg://"))
    with _postgres(url) as ear, _sessions(engine) as side:
        yield side(ear)
    engine.dispose()


@contextlib.contextmanager
def _sqlite(url: str) -> Iterator[Side]:
    with contextlib.closing(sqlite3.connect(url.removeprefix("sqlite:///"))) as connection:
        ear = _prepared(connection)

        def bare(work: Callable[[Any], Any]) -> None:
            with connection:
                work(connection)

        yield Side(bare, connection, _plainly("?"), ear)


def _prepared(connection: Any) -> Ear:
    """As the store keeps its file, with tables; and what SQLite says that it runs."""
    connection.executescript("PRAGMA journal_mode = WAL; PRAGMA synchronous = FULL;" + "; ".join(TABLES))
    seen: Counter[str] = Counter()

    def heard(statement: str) -> None:
        word = statement.split(None, 1)[0].upper()
        if word not in {"BEGIN", "SAVEPOINT", "RELEASE", "ROLLBACK"}:
            seen["commits" if word == "COMMIT" else "statements"] += 1

    return Ear(
        lambda: Told(seen["statements"], seen["commits"]),
        lambda on: connection.set_trace_callback(heard if on else None),
    )


@contextlib.contextmanager
def _session_on_sqlite(url: str) -> Iterator[Side]:
    from sqlalchemy import StaticPool, create_engine

    with contextlib.closing(sqlite3.connect(url.removeprefix("sqlite:///"), check_same_thread=False)) as connection:
        ear = _prepared(connection)
        engine = create_engine("sqlite://", creator=lambda: connection, poolclass=StaticPool)
        with _sessions(engine) as side:
            yield side(ear)


@contextlib.contextmanager
def _sessions(engine: Any) -> Iterator[Callable[[Ear], Side]]:
    from sqlalchemy import text
    from sqlalchemy.orm import sessionmaker

    make = sessionmaker(engine)

    def bare(work: Callable[[Any], Any]) -> None:
        with make.begin() as session:
            work(session)

    known = {statement: text(statement.format(mark=":number")) for statement in INSERTS}
    yield lambda ear: Side(
        bare, make, lambda given, statement, order: given.execute(known[statement], {"number": order}), ear
    )


OPENED: dict[str, Callable[[str], contextlib.AbstractContextManager[Side]]] = dict(
    zip(KINDS, (_psycopg, _session, _sqlite, _session_on_sqlite), strict=True)
)

# ---- shown -------------------------------------------------------------------------------------------------------

HEAD = (
    *("", "bare us", "oncekey us", "more us", "time", "bare CPU us", "oncekey CPU us", "CPU"),
    *("statements", "commits"),
)


def show(found: dict[str, Any]) -> list[Piece]:
    """One table."""
    rows = []
    for kind, row in found.items():
        (wall, cpu), (wall_with, cpu_with) = row[BARE], row[ONCE]
        spent = [number(figure) for figure in (wall, wall_with, wall_with - wall)] + [number(row["ratio"][0], "x")]
        spent += [number(cpu), number(cpu_with), number(row["ratio"][1], "x")]
        told = [f"{number(bare)} to {number(ours)}" for bare, ours in (row["statements"], row["commits"])]
        rows.append((kind, *spent, *told))
    what = "A business transaction of two inserts, bare, and with the claim of its key and its outcome in it"
    return [
        Table(what, HEAD, rows),
        Note(
            "One client on one connection; CPU is this process's. Statements and commits are what the database itself "
            "counts (pg_stat_statements, SQLite's trace), without those that begin and end a transaction, or set a "
            "savepoint in it. There is one, behind the claim: by it a key can be shut in the commit that undoes the "
            "work, and on SQLite it shows whether the code inside has ended the transaction; on PostgreSQL it is sent "
            "with the claim. What is spent more is so many microseconds, whatever the disk; the ratio is as good as "
            "the disk's commit is long."
        ),
    ]
