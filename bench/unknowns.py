"""Whether the console's lists take longer where very many outcomes are unknown: whole pages, few and many in turns."""

from __future__ import annotations

import asyncio
import contextlib
import statistics
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from bench.filled import fill
from bench.pieces import Piece, Table, number
from bench.rounds import turns
from bench.sections import Bench
from bench.servers import served
from oncekey.console import Console

STORES = ("postgres", "sqlite")
SMALL, LARGE = 1_000, 100_000
PLACES = ("unknown", "operations", "")
NAMES = {"unknown": "unknown, first page", "operations": "open operations, first page", "": "overview"}


def measure(bench: Bench) -> dict[str, Any]:
    """Both stores, each with few and with many."""
    sizes = (SMALL, 2 * SMALL) if bench.quick else (SMALL, LARGE)
    found = {}
    for at, store in enumerate(STORES):
        with _urls(store) as urls:
            for size, url in zip(sizes, urls, strict=True):
                bench.progress(at / len(STORES), f"{store}: {size:,} unknown outcomes")
                fill(url, size, unknown=True)
            found[store] = {"sizes": sizes, **asyncio.run(_rounds(bench, urls))}
    return found


async def _rounds(bench: Bench, urls: list[str]) -> dict[str, Any]:
    """Medians of each round in milliseconds, and of their ratios."""
    consoles = [Console(url, operator=lambda scope: "bench") for url in urls]
    medians: dict[str, list[list[float]]] = {place: [] for place in PLACES}
    for console in consoles:
        await _times(console, "unknown", 5)
    for _, order in turns(["0", "1"], bench.rounds):
        for place in PLACES:
            row = {
                which: statistics.median(await _times(consoles[int(which)], place, 5 if bench.quick else 30))
                for which in order
            }
            medians[place].append([row["0"], row["1"]])
    for console in consoles:
        await console.aclose()
    return {
        place: {
            "small": statistics.median(small for small, _ in rows),
            "large": statistics.median(large for _, large in rows),
            "ratio": statistics.median(large / small for small, large in rows),
        }
        for place, rows in medians.items()
    }


async def _times(console: Console, place: str, count: int) -> list[float]:
    scope = {"type": "http", "method": "GET", "path": f"/{place}", "query_string": b"", "headers": []}
    times = []
    for _ in range(count):
        statuses: list[int] = []

        async def send(message: Any, statuses: list[int] = statuses) -> None:
            statuses.append(message.get("status", 0))

        began = time.perf_counter()
        await console(scope, _nothing, send)
        times.append((time.perf_counter() - began) * 1e3)
        if statuses[0] != 200:
            raise RuntimeError(f"the console answered {statuses[0]}")
    return times


async def _nothing() -> Any:
    return {"type": "http.request"}


@contextlib.contextmanager
def _urls(store: str) -> Iterator[list[str]]:
    if store == "sqlite":
        with tempfile.TemporaryDirectory(prefix="oncekey-bench-") as folder:
            yield [f"sqlite:///{Path(folder) / f'{which}.db'}" for which in ("few", "many")]
        return
    with served(store) as server:
        yield [f"{server.url}?oncekey_table=unknown_{which}" for which in ("few", "many")]


def show(found: dict[str, Any]) -> list[Piece]:
    """One table."""
    rows = []
    for store, row in found.items():
        few, many = (f"{size:,}" for size in row["sizes"])
        for place in PLACES:
            figures = row[place]
            times = (number(figures["small"]), many, number(figures["large"]))
            rows.append((f"{store}, {NAMES[place]}", few, *times, number(figures["ratio"], "x")))
    return [
        Table("A page of the console, among few and among many", ("", "unknown", "ms", "unknown", "ms", "ratio"), rows)
    ]
