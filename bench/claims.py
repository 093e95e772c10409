"""What a claim and its settlement cost without a request around them: the engine against the floor's two commands."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import tempfile
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any

from bench.candidates import FLOOR, OURS
from bench.floors import FLOORS
from bench.pieces import Note, Piece, Table, number
from bench.requests import HEAD
from bench.rounds import figures, turns
from bench.sections import Bench
from bench.servers import served
from bench.traffic import ANSWER, Cost, keys
from oncekey.core.commands import Claim, Settlement
from oncekey.core.decision import Execute
from oncekey.core.flows import Terms
from oncekey.core.outcome import pack
from oncekey.core.record import Guarantee, State
from oncekey.engine.aio import AsyncEngine
from oncekey.engine.attempt import Attempt

STORES = ("sqlite", "redis", "postgres")
CONCURRENCY = (1, 64)
KEPT = [(b"content-type", b"application/json")]
TERMS = Terms(keep_for=86_400_000, reconcile_after_for=5000)
Once = Callable[[bytes], Awaitable[None]]


class Nothing:
    """Nobody asks twice here."""

    def same_request(self, stored: bytes) -> bool:
        raise AssertionError("every key is new")


def measure(bench: Bench) -> dict[str, Any]:
    """Both in one process, in interleaved rounds."""
    logging.getLogger("oncekey").setLevel(logging.ERROR)
    return {store: asyncio.run(_measured(bench, store, at)) for at, store in enumerate(STORES)}


async def _measured(bench: Bench, store: str, at: int) -> list[dict[str, Any]]:
    settings = []
    with tempfile.TemporaryDirectory(prefix="oncekey-bench-") as folder, served(store) as server:
        urls = {name: f"sqlite:///{Path(folder) / name}.db" if store == "sqlite" else server.url for name in WAYS}
        async with contextlib.AsyncExitStack() as stack:
            ways = {name: await stack.enter_async_context(way(store, urls[name])) for name, way in WAYS.items()}
            for concurrency in CONCURRENCY:
                size = bench.size if concurrency > 1 else bench.size // 4
                rounds = []
                for number_, names in turns(list(ways), bench.rounds):
                    bench.progress((at + number_ / bench.rounds) / len(STORES), f"{store}, {concurrency} at once")
                    costs = {
                        name: await _timed(ways[name], _seed(name, concurrency, number_), size, concurrency)
                        for name in names
                    }
                    rounds.append({name: {"wall": costs[name].wall, "cpu": costs[name].cpu} for name in ways})
                settings.append({"concurrency": concurrency, "figures": [one._asdict() for one in figures(rounds)]})
    return settings


def _seed(name: str, concurrency: int, number_: int) -> str:
    return f"claims {name} {concurrency} {number_}"


async def _timed(once: Once, seed: str, size: int, concurrency: int) -> Cost:
    many = keys(seed, size)
    waiting: Iterator[bytes] = iter(many)

    async def client() -> None:
        for key in waiting:
            await once(key)

    wall, cpu = time.perf_counter(), time.process_time()
    await asyncio.gather(*(client() for _ in range(concurrency)))
    scale = 1e6 / len(many)
    return Cost((time.perf_counter() - wall) * scale, (time.process_time() - cpu) * scale)


@contextlib.asynccontextmanager
async def _floor(store: str, url: str) -> AsyncIterator[Once]:
    made = FLOORS[store](None, url.removeprefix("sqlite:///"))
    await made.open()

    async def once(key: bytes) -> None:
        await made.claim(key)
        await made.settle(key, ANSWER)

    yield once
    await made.close()


@contextlib.asynccontextmanager
async def _engine(store: str, url: str) -> AsyncIterator[Once]:
    engine = AsyncEngine(url)
    await engine.store.migrate()
    asked, outcome = Nothing(), pack(201, KEPT, ANSWER)

    async def once(key: bytes) -> None:
        began, claim = time.monotonic(), Claim(key[-20:], os.urandom(16), key, 30_000)
        decision = await engine.enter(claim, asked, TERMS)
        assert isinstance(decision, Execute)
        attempt = Attempt(decision, began, 30.0, 900.0, State.EXECUTING, Guarantee.AT_MOST_ONCE)
        engine.keeper.keep(attempt)
        await engine.settle(attempt, Settlement(claim.id, claim.token, State.COMPLETED, outcome, 86_400_000))

    yield once
    await engine.close()


WAYS = {FLOOR: _floor, OURS: _engine}


def show(found: dict[str, list[dict[str, Any]]]) -> list[Piece]:
    """A table for each store and concurrency."""
    said = (
        "Here no request is read, no fingerprint made and no answer written: what is left is the store. The engine's "
        "leases, tokens and labels are there."
    )
    return [Note(said), *(_table(store, one) for store, settings in found.items() for one in settings)]


def _table(store: str, setting: dict[str, Any]) -> Table:
    rows = [
        (
            row["name"],
            *(number(row[name]) for name in ("wall", "cpu")),
            *(number(row[name], "x") for name in ("speed", "work")),
        )
        for row in setting["figures"]
    ]
    head = (*HEAD[:3], *HEAD[4:])
    return Table(f"{store}, claim and settle, {setting['concurrency']} at once", head, rows)
