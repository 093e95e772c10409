"""First requests and replays on each store, all candidates in interleaved rounds."""

from __future__ import annotations

import contextlib
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

from bench.candidates import BARE, BY_NAME, FLOOR, OURS, Candidate, on
from bench.cpu import Meter
from bench.line import Line
from bench.rounds import PHASES, Figure, figures, turns
from bench.servers import served

CONCURRENCY = {"memory": (1, 32, 128), "sqlite": (1, 32, 64, 128), "redis": (1, 32, 128), "postgres": (1, 32, 64, 128)}
# These run the application again for a replay: they keep nothing.
NO_LAYER = frozenset(name for name in BY_NAME if name.startswith(BARE))
Say = Callable[[str], None]


class Plan(NamedTuple):
    """How much is measured. One at a time is slow where every request waits for a disk."""

    rounds: int
    size: int
    concurrency: tuple[int, ...] = ()
    names: list[str] | None = None

    def count(self, concurrency: int) -> int:
        """Requests of one candidate in one phase of one round."""
        return self.size if concurrency > 1 else self.size // 4


def measure(store: str, plan: Plan, say: Say) -> list[dict[str, Any]]:
    """All settings of one store."""
    lines: dict[str, Line] = {}
    with contextlib.ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="oncekey-bench-")))
        server = stack.enter_context(served(store))
        for candidate in on(store, plan.names):
            url = _own(store, server.url, folder, candidate)
            lines[candidate.name] = stack.enter_context(Line(candidate, store, url))
        for name, line in lines.items():
            line.ask("run", phase="first", seed=f"warm {name}", count=300, concurrency=16)
        settings = []
        for concurrency in plan.concurrency or CONCURRENCY[store]:
            say(f"{store}, {concurrency} at once")
            for phase, rounds in _rounds(lines, plan, concurrency, Meter(server.pids)).items():
                settings.append(_setting(store, concurrency, phase, figures(rounds)))
        trips = lines[OURS].ask("trips") if OURS in lines else {}
        same = {name: line.ask("same", seed="same") for name, line in lines.items() if name not in NO_LAYER}
    return [setting | {"trips": trips, "same": same} for setting in settings]


def _own(store: str, url: str, folder: Path, candidate: Candidate) -> str:
    """Each its own file: SQLite has one writer."""
    return f"sqlite:///{folder / candidate.build.replace(':', '-')}.db" if store == "sqlite" else url


def _rounds(lines: dict[str, Line], plan: Plan, concurrency: int, meter: Meter) -> dict[str, list[dict[str, Any]]]:
    found: dict[str, list[dict[str, Any]]] = {phase: [] for phase in PHASES}
    for number, names in turns(list(lines), plan.rounds):
        for phase, rounds in found.items():
            answers = {}
            for name in names:
                seed, count = f"{name} {concurrency} {number}", plan.count(concurrency)
                meter.start()
                answer = lines[name].ask("run", phase=phase, seed=seed, count=count, concurrency=concurrency)
                answer["server"] = meter.spent(count)
                answers[name] = checked(name, phase, count, answer)
            rounds.append({name: answers[name] for name in lines})
    return found


def checked(name: str, phase: str, count: int, answer: dict[str, Any]) -> dict[str, Any]:
    """An answer that ran the payment more often than once for a key is no figure."""
    expected = count if phase == "first" or name in NO_LAYER else 0
    if "broken" not in answer and answer["executions"] != expected:
        return {"broken": f"executed {answer['executions']} of {count} times where {expected} was right"}
    return answer


def _setting(store: str, concurrency: int, phase: str, found: list[Figure]) -> dict[str, Any]:
    return {
        "store": store,
        "concurrency": concurrency,
        "phase": phase,
        "figures": [figure._asdict() for figure in found],
    }


def pairs(settings: list[dict[str, Any]]) -> Iterator[tuple[dict[str, Any], dict[str, Any]]]:
    """Every setting with the row of OnceKey in it."""
    for setting in settings:
        for row in setting["figures"]:
            if row["name"] == OURS:
                yield setting, row


__all__ = ["BARE", "FLOOR", "Plan", "measure", "pairs"]
