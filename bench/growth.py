"""Whether a claim costs more where many records lie: a small and a large table side by side."""

from __future__ import annotations

import contextlib
import random
import statistics
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from bench.filled import a_claim, fill, nth
from bench.pieces import Note, Piece, Table, number
from bench.rounds import turns
from bench.sections import Bench
from bench.servers import served
from oncekey.stores.contract import Store
from oncekey.stores.open import open_store

STORES = ("postgres", "sqlite")
SMALL = 10_000
KINDS = ("claim", "replay")


def measure(bench: Bench, large: int) -> dict[str, Any]:
    """Both stores, each with a small and a large table."""
    large = 2 * SMALL if bench.quick else large
    return {store: _store(bench, store, (SMALL, large), at) for at, store in enumerate(STORES)}


def _store(bench: Bench, store: str, sizes: tuple[int, int], at: int) -> dict[str, Any]:
    with _urls(store, sizes) as urls, contextlib.ExitStack() as stack:
        stores, filled_for = [], []
        for size, url in zip(sizes, urls, strict=True):
            bench.progress(at / len(STORES), f"{store}: {size:,} records")
            began = time.monotonic()
            fill(url, size)
            filled_for.append(time.monotonic() - began)
            stores.append(stack.enter_context(contextlib.closing(open_store(url))))
        found = _rounds(bench, sizes, stores)
    return {"sizes": sizes, "filled_for": filled_for, **found}


def _rounds(bench: Bench, sizes: tuple[int, int], stores: list[Store]) -> dict[str, Any]:
    """Medians of each round, and of their ratios."""
    each = 50 if bench.quick else 300
    for which in (0, 1):
        _times(stores[which], "claim", sizes[which], each)  # opens the connection
    medians: dict[str, list[list[float]]] = {kind: [] for kind in KINDS}
    for _, order in turns(["0", "1"], bench.rounds):
        for kind in KINDS:
            row = {
                which: statistics.median(_times(stores[int(which)], kind, sizes[int(which)], each)) for which in order
            }
            medians[kind].append([row["0"], row["1"]])
    return {
        kind: {
            "small": statistics.median(small for small, _ in rows),
            "large": statistics.median(large for _, large in rows),
            "ratio": statistics.median(large / small for small, large in rows),
        }
        for kind, rows in medians.items()
    }


def _times(store: Store, kind: str, size: int, count: int) -> list[float]:
    """Microseconds of single claims: of new keys, or of keys anywhere among the records."""
    claims = [a_claim(nth(random.randint(1, size)) if kind == "replay" else None) for _ in range(count)]
    times = []
    for claim in claims:
        began = time.perf_counter()
        store.claim([claim])
        times.append((time.perf_counter() - began) * 1e6)
    return times


@contextlib.contextmanager
def _urls(store: str, sizes: tuple[int, int]) -> Iterator[list[str]]:
    if store == "sqlite":
        with tempfile.TemporaryDirectory(prefix="oncekey-bench-") as folder:
            yield [f"sqlite:///{Path(folder) / f'{size}.db'}" for size in sizes]
        return
    with served(store) as server:
        yield [f"{server.url}?oncekey_table=growth_{size}" for size in sizes]


HEAD = ("", "records", "us", "records", "us", "ratio")


def show(found: dict[str, Any], _large: int) -> list[Piece]:
    """One table."""
    rows = []
    for store, row in found.items():
        small, large = (f"{size:,}" for size in row["sizes"])
        for kind in KINDS:
            figures = row[kind]
            times = (number(figures["small"]), large, number(figures["large"]))
            rows.append((f"{store}, {kind}", small, *times, number(figures["ratio"], "x")))
    fills = ", ".join(f"{store} {row['filled_for'][1]:,.0f} s" for store, row in found.items())
    return [
        Table("A single claim, among few and among many finished records", HEAD, rows),
        Note(f"Filling the large tables took: {fills}. The records are copies of a real one under other ids."),
    ]
