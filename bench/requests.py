"""First requests and replays on each store, all candidates in interleaved rounds."""

from __future__ import annotations

import contextlib
import tempfile
from pathlib import Path
from typing import Any

from bench.candidates import BARE, BY_NAME, OURS, Candidate, on
from bench.cpu import Meter
from bench.line import Line
from bench.pieces import Bar, Chart, Note, Piece, Table, number
from bench.rounds import PHASES, Figure, figures, turns
from bench.sections import Bench
from bench.servers import served

CONCURRENCY = {"memory": (1, 32, 128), "sqlite": (1, 32, 64, 128), "redis": (1, 32, 128), "postgres": (1, 32, 64, 128)}
# These run the application again for a replay: they keep nothing.
NO_LAYER = frozenset(name for name in BY_NAME if name.startswith(BARE))


def count(bench: Bench, concurrency: int) -> int:
    """Requests of one candidate in one phase of one round. One at a time is slow where each waits for a disk."""
    return bench.size if concurrency > 1 else bench.size // 4


def measure(bench: Bench, store: str) -> dict[str, Any]:
    """All settings of one store."""
    lines: dict[str, Line] = {}
    with contextlib.ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="oncekey-bench-")))
        server = stack.enter_context(served(store))
        for candidate in on(store, bench.names):
            url = _own(store, server.url, folder, candidate)
            lines[candidate.name] = stack.enter_context(Line(candidate, store, url))
        for name, line in lines.items():
            line.ask("run", phase="first", seed=f"warm {name}", count=300, concurrency=16)
        settings: list[dict[str, Any]] = []
        for concurrency in bench.at or CONCURRENCY[store]:
            for phase, rounds in _rounds(lines, bench, concurrency, Meter(server.pids)).items():
                settings.append(_setting(store, concurrency, phase, figures(rounds)))
        trips = lines[OURS].ask("trips") if OURS in lines else {}
        same = {name: line.ask("same", seed="same") for name, line in lines.items() if name not in NO_LAYER}
    return {"settings": settings, "trips": trips, "same": same}


def _own(store: str, url: str, folder: Path, candidate: Candidate) -> str:
    """Each its own file: SQLite has one writer."""
    return f"sqlite:///{folder / candidate.build.replace(':', '-')}.db" if store == "sqlite" else url


def _rounds(lines: dict[str, Line], bench: Bench, concurrency: int, meter: Meter) -> dict[str, list[dict[str, Any]]]:
    found: dict[str, list[dict[str, Any]]] = {phase: [] for phase in PHASES}
    for number_, names in turns(list(lines), bench.rounds):
        bench.progress(number_ / bench.rounds, f"{concurrency} at once")
        for phase, rounds in found.items():
            answers = {}
            for name in names:
                seed, size = f"{name} {concurrency} {number_}", count(bench, concurrency)
                meter.start()
                answer = lines[name].ask("run", phase=phase, seed=seed, count=size, concurrency=concurrency)
                answer["server"] = meter.spent(size)
                answers[name] = checked(name, phase, size, answer)
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


HEAD = ("", "wall us", "CPU us", "server us", "x floor's speed", "x floor's CPU")


def show(found: dict[str, Any], store: str) -> list[Piece]:
    """A table for each setting, a chart for each phase, and who does not replay the same bytes."""
    pieces: list[Piece] = []
    for setting in found["settings"]:
        pieces.append(table(setting))
        pieces += [Note(f"{row['name']}: {row['broken']}") for row in setting["figures"] if row["broken"]]
    for phase in PHASES:
        pieces.append(chart(store, phase, [one for one in found["settings"] if one["phase"] == phase]))
    differ = [name for name, answer in found["same"].items() if not answer["same"]]
    if differ:
        pieces.append(Note(f"A replay differs from the first answer: {', '.join(differ)}."))
    return pieces


def table(setting: dict[str, Any]) -> Table:
    """One setting with all its candidates."""
    rows: list[tuple[str, ...]] = []
    for row in setting["figures"]:
        if row["broken"]:
            rows.append((row["name"], "broken", "", "", "", ""))
            continue
        cells = [number(row[name]) for name in ("wall", "cpu", "server")]
        rows.append((row["name"], *cells, number(row["speed"], "x"), number(row["work"], "x")))
    return Table(f"{setting['store']}, {setting['phase']}, {setting['concurrency']} at once", HEAD, rows)


def chart(store: str, phase: str, settings: list[dict[str, Any]]) -> Chart:
    """Throughput by the floor's, a group for each concurrency."""
    groups = []
    for setting in settings:
        rows = [row for row in setting["figures"] if row["speed"] is not None and row["name"] not in NO_LAYER]
        bars = [Bar(row["name"], row["speed"], number(row["speed"], "x")) for row in rows]
        groups.append((f"{setting['concurrency']} at once", bars))
    return Chart(f"{store}-{phase}", f"{store}, {phase}: throughput by the floor's", groups, 1.0)
