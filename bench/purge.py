"""Whether requests feel a purge: their latency while expired records are deleted, beside their quiet one."""

from __future__ import annotations

import contextlib
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from bench.candidates import BY_NAME, OURS
from bench.filled import fill
from bench.line import Line
from bench.pieces import Piece, Table, number
from bench.sections import Bench
from bench.servers import served

STORES = ("postgres", "sqlite")
# As `oncekey purge` does it, in a process of its own.
PURGE = (
    "import sys; from oncekey.operations.cleaning import purge; from oncekey.stores.open import open_store; "
    "import time; end = time.monotonic() + float(sys.argv[2]); "
    "print(purge(open_store(sys.argv[1]), stop=lambda: time.monotonic() > end).deleted)"
)
CLIENTS, PAUSE_FOR = 8, 0.01
SLICE_FOR = 1.0
LONGEST_FOR = 60.0  # a purge that takes longer is stopped, and what it has deleted is said


def measure(bench: Bench) -> dict[str, Any]:
    """Both stores."""
    count = 20_000 if bench.quick else 1_000_000
    return {store: _store(bench, store, count, at) for at, store in enumerate(STORES)}


def _store(bench: Bench, store: str, count: int, at: int) -> dict[str, Any]:
    with contextlib.ExitStack() as stack:
        bench.progress(at / len(STORES), f"{store}: {count:,} expired records")
        folder = stack.enter_context(tempfile.TemporaryDirectory(prefix="oncekey-bench-"))
        url = f"sqlite:///{Path(folder) / 'purge.db'}" if store == "sqlite" else stack.enter_context(served(store)).url
        fill(url, count, expired=True)
        line = stack.enter_context(Line(BY_NAME[OURS], store, url))
        _slices(line, 1)
        bench.progress((at + 0.5) / len(STORES), f"{store}: purge beside requests")
        calm = 2 if bench.quick else 8
        quiet = _slices(line, calm)
        began = time.monotonic()
        purging = subprocess.Popen(
            [sys.executable, "-c", PURGE, url, str(LONGEST_FOR)], stdout=subprocess.PIPE, text=True
        )
        stack.callback(_end, purging)
        beside = _slices(line, 2 * int(LONGEST_FOR), purging)
        took = time.monotonic() - began
        deleted = int(purging.communicate(timeout=2 * LONGEST_FOR)[0])
        quiet += _slices(line, calm)
    return {"deleted": deleted, "took": took, "quiet": _figures(quiet), "beside": _figures(beside)}


def _slices(line: Line, count: int, during: subprocess.Popen[str] | None = None) -> list[float]:
    """Latencies of first requests, second by second; only whole seconds in which the purge ran."""
    times: list[float] = []
    for _ in range(count):
        found = line.ask("paced", seed=f"{time.monotonic_ns()}", clients=CLIENTS, pause=PAUSE_FOR, seconds=SLICE_FOR)
        if during is not None and during.poll() is not None and times:
            break
        times += found["times"]
    return times


def _end(process: subprocess.Popen[str]) -> None:
    if process.poll() is None:
        process.kill()
    process.wait()
    if process.stdout is not None:
        process.stdout.close()


def _figures(times: list[float]) -> dict[str, float]:
    ordered = sorted(times)
    return {"requests": len(ordered), "p50": _share(ordered, 0.5), "p99": _share(ordered, 0.99), "max": ordered[-1]}


def _share(ordered: list[float], share: float) -> float:
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))]


HEAD = ("", "deleted", "purge s", "p50 us quiet", "beside", "p99 us quiet", "beside", "p99 ratio")


def show(found: dict[str, Any]) -> list[Piece]:
    """One table."""
    rows = []
    for store, row in found.items():
        quiet, beside = row["quiet"], row["beside"]
        times = [number(each[share]) for share in ("p50", "p99") for each in (quiet, beside)]
        ratio = number(beside["p99"] / quiet["p99"], "x")
        rows.append((store, f"{row['deleted']:,}", number(row["took"]), *times, ratio))
    what = f"First requests ({CLIENTS} clients, {PAUSE_FOR * 1000:g} ms between two of one client) beside a purge"
    return [Table(what, HEAD, rows)]
