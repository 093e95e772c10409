"""What OnceKey wants to reach, as a table, and whether a run has reached it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from bench.candidates import BARE, FLOOR, OURS
from bench.pieces import Table, number

Found = dict[str, Any]


class Target(NamedTuple):
    """`read` finds the figure of a candidate in a run, or None; `least` says which side of the bound is good."""

    what: str
    bound: float
    least: bool
    unit: str
    read: Callable[[Found, str], float | None]
    why: str = ""

    def met(self, value: float) -> bool:
        return value >= self.bound if self.least else value <= self.bound

    @property
    def wanted(self) -> str:
        return f"{'at least' if self.least else 'at most'} {number(self.bound, self.unit)}"


def _request(store: str, phase: str, concurrency: int, figure: str) -> Callable[[Found, str], float | None]:
    def read(found: Found, name: str) -> float | None:
        for setting in found.get(store, {}).get("settings", ()):
            if (setting["phase"], setting["concurrency"]) == (phase, concurrency):
                return next((row[figure] for row in setting["figures"] if row["name"] == name), None)
        return None

    return read


def _record(store: str, figure: str) -> Callable[[Found, str], float | None]:
    def read(found: Found, name: str) -> float | None:
        rows = found.get("records", {}).get(store, ())
        return next((row.get(figure) for row in rows if row["name"] == name), None)

    return read


def _growth(store: str) -> Callable[[Found, str], float | None]:
    def read(found: Found, name: str) -> float | None:
        section = found.get("millions") or found.get("growth") or {}
        return section[store]["claim"]["ratio"] if name == OURS and store in section else None

    return read


def _purge(store: str) -> Callable[[Found, str], float | None]:
    def read(found: Found, name: str) -> float | None:
        row = found.get("purge", {}).get(store)
        return row["beside"]["p99"] / row["quiet"]["p99"] if name == OURS and row else None

    return read


def _transaction(kind: str, of: Callable[[dict[str, Any]], float]) -> Callable[[Found, str], float | None]:
    def read(found: Found, name: str) -> float | None:
        row = found.get("transactions", {}).get(kind)
        return of(row) if name == OURS and row else None

    return read


def _time(row: dict[str, Any]) -> float:
    wall: float = row["ratio"][0]
    return wall


def _more(figure: str) -> Callable[[dict[str, Any]], float]:
    return lambda row: float(row[figure][1] - row[figure][0])


def _import(found: Found, name: str) -> float | None:
    row = found.get("import", {}).get(name.replace("-", "_"))
    return row["ms"] if row else None


def _brought(found: Found, name: str) -> float | None:
    row = found.get("import", {}).get(name.replace("-", "_"))
    return float(len(row["foreign"])) if row else None


CPU_BOUND = (
    "What is left is Python: the key, the scope, the canonical form, the claim, the outcome, and the turns of "
    "asyncio's loop; their costs are below, under 'Where the time of a request goes'. The floor does none of it, and "
    "the store is no longer what a request waits for."
)
COMMIT_BOUND = (
    "On psycopg the claim travels with BEGIN and the outcome with COMMIT, so there are as many round trips as without "
    "us; SQLAlchemy keeps its own commit, and has one more. What is left is what the database does for two statements "
    "more, and Python for the key, the canonical form and the outcome. The commit is the disk's: the quicker it is, "
    "the more they weigh."
)
TABLE = (
    Target("Redis, first, 32 at once: speed", 2.0, True, "x", _request("redis", "first", 32, "speed"), CPU_BOUND),
    Target("Redis, first, 32 at once: CPU", 0.5, False, "x", _request("redis", "first", 32, "work"), CPU_BOUND),
    Target("Redis, replay, 32 at once: speed", 2.0, True, "x", _request("redis", "replay", 32, "speed"), CPU_BOUND),
    Target("Redis, first, alone: speed", 0.9, True, "x", _request("redis", "first", 1, "speed"), CPU_BOUND),
    Target("Redis, replay, alone: speed", 0.9, True, "x", _request("redis", "replay", 1, "speed"), CPU_BOUND),
    Target("Postgres, first, 64 at once: speed", 8.0, True, "x", _request("postgres", "first", 64, "speed"), CPU_BOUND),
    Target("SQLite, first, 64 at once: speed", 5.0, True, "x", _request("sqlite", "first", 64, "speed"), CPU_BOUND),
    Target("memory, first, alone: CPU", 2.0, False, "x", _request("memory", "first", 1, "work"), CPU_BOUND),
    Target("memory, replay, alone: CPU", 2.5, False, "x", _request("memory", "replay", 1, "work"), CPU_BOUND),
    Target("Postgres, a claim among many records", 1.3, False, "x", _growth("postgres")),
    Target("SQLite, a claim among many records", 1.3, False, "x", _growth("sqlite")),
    Target("Postgres, p99 beside a purge", 2.0, False, "x", _purge("postgres")),
    Target("SQLite, p99 beside a purge", 2.0, False, "x", _purge("sqlite")),
    Target("Redis, bytes of a finished record", 250, False, "", _record("redis", "bytes")),
    Target("Redis, round trips of a first request", 2, False, "", _record("redis", "trips first 1")),
    Target("Redis, round trips of a replay", 1, False, "", _record("redis", "trips replay 1")),
    Target("Postgres, round trips of a first request", 2, False, "", _record("postgres", "trips first 1")),
    Target("Postgres, round trips of a replay", 1, False, "", _record("postgres", "trips replay 1")),
    Target("psycopg, transactional mode: time", 1.35, False, "x", _transaction("psycopg", _time), COMMIT_BOUND),
    Target(
        "SQLAlchemy on Postgres, transactional mode: time",
        *(1.35, False, "x", _transaction("SQLAlchemy on Postgres", _time), COMMIT_BOUND),
    ),
    Target("sqlite3, transactional mode: time", 1.35, False, "x", _transaction("sqlite3", _time), COMMIT_BOUND),
    Target(
        "SQLAlchemy on SQLite, transactional mode: time",
        *(1.35, False, "x", _transaction("SQLAlchemy on SQLite", _time), COMMIT_BOUND),
    ),
    Target(
        "Postgres, statements more in it, and a savepoint", 2, False, "", _transaction("psycopg", _more("statements"))
    ),
    Target(
        "SQLite, statements more in it, and a savepoint", 2, False, "", _transaction("sqlite3", _more("statements"))
    ),
    Target("Postgres, commits more in it", 0, False, "", _transaction("psycopg", _more("commits"))),
    Target("SQLite, commits more in it", 0, False, "", _transaction("sqlite3", _more("commits"))),
    Target("import oncekey", 40, False, " ms", _import),
    Target("packages that it brings along", 0, False, "", _brought),
)


class Verdict(NamedTuple):
    """One target in one run, beside the best of the peers."""

    target: Target
    measured: float
    met: bool
    peer: tuple[str, float] | None


def verdicts(found: Found, names: list[str]) -> list[Verdict]:
    """Every target that the run has measured; `names` are the candidates among which the best peer is."""
    made = []
    for target in TABLE:
        measured = target.read(found, OURS)
        if measured is not None:
            made.append(Verdict(target, measured, target.met(measured), _best(target, found, names)))
    return made


def _best(target: Target, found: Found, names: list[str]) -> tuple[str, float] | None:
    peers = [name for name in names if name not in {FLOOR, OURS} and not name.startswith((BARE, OURS))]
    read = [(name, value) for name in peers if (value := target.read(found, name)) is not None]
    return (max if target.least else min)(read, key=lambda one: one[1], default=None)


def table(made: list[Verdict]) -> Table:
    """What was wanted, what was measured, and whether that is enough."""
    rows: list[tuple[str, ...]] = []
    for target, measured, met, peer in made:
        best = f"{number(peer[1], target.unit)} ({peer[0]})" if peer else "-"
        rows.append((target.what, target.wanted, number(measured, target.unit), "yes" if met else "**no**", best))
    return Table("Targets", ("", "target", "measured", "met", "best peer"), rows)
