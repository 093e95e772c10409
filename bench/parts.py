"""Where the time of a request goes: each part of the way by itself, on one core, without a server."""

from __future__ import annotations

import asyncio
import logging
import os
import statistics
import time
from collections.abc import Callable
from typing import Any

from bench.pieces import Note, Piece, Table, number
from bench.sections import Bench
from bench.traffic import ANSWER, BODY, Count, call, keys, scope, starlette

KEPT = [(b"content-length", b"77"), (b"content-type", b"application/json")]
BATCH = 500
FIRST, REPLAY = "the whole first request", "the whole replay"
APPLICATION = "the application alone"


def measure(bench: Bench) -> dict[str, float]:
    """Microseconds of CPU for each part: medians of batches."""
    logging.getLogger("oncekey").setLevel(logging.ERROR)
    ways, whole = _ways(), _whole()
    times: dict[str, list[float]] = {name: [] for name in (*ways, *whole)}
    for number_ in range(3 * bench.rounds):
        bench.progress(number_ / (3 * bench.rounds), "parts")
        for name, way in ways.items():
            times[name].append(_cost(way))
        for name, run in whole.items():
            times[name].append(asyncio.run(run(f"{number_}")))
    return {name: statistics.median(each) for name, each in times.items()}


def _cost(way: Callable[[], Any]) -> float:
    began = time.process_time()
    for _ in range(BATCH):
        way()
    return (time.process_time() - began) * 1e6 / BATCH


def _whole() -> dict[str, Any]:
    """Requests from one end to the other, on the memory store."""

    async def first(seed: str) -> float:
        return (await _served(seed))[0]

    async def replay(seed: str) -> float:
        return (await _served(seed))[1]

    async def bare(seed: str) -> float:
        app = starlette(Count())
        return await _timed(app, keys(f"bare {seed}", BATCH))

    return {APPLICATION: bare, FIRST: first, REPLAY: replay}


async def _served(seed: str) -> tuple[float, float]:
    from bench.ours import oncekey

    running = await oncekey("memory", "memory://", Count())
    await _timed(running.app, keys(f"warm {seed}", BATCH))
    many = keys(f"parts {seed}", BATCH)
    costs = await _timed(running.app, many), await _timed(running.app, many)
    if running.close is not None:
        await running.close()
    return costs


async def _timed(app: Any, many: list[bytes]) -> float:
    began = time.process_time()
    for key in many:
        await call(app, key)
    return (time.process_time() - began) * 1e6 / len(many)


def _ways() -> dict[str, Callable[[], Any]]:
    from oncekey import Policy, by_header
    from oncekey.core.decision import Execute
    from oncekey.core.fingerprint import Parts
    from oncekey.http.exchange import Exchange
    from oncekey.http.gate import Gate
    from oncekey.http.messages import Request
    from oncekey.stores.memory import MemoryStore

    gate, store = Gate(scope=by_header("authorization"), policy=Policy(recall_for=None)), MemoryStore()
    recalling = Gate(scope=by_header("authorization"))
    headers = scope(keys("parts", 1)[0])["headers"]

    def read() -> Request:
        return Request("POST", "/pay", b"", [(name.lower(), value) for name, value in headers], BODY)

    request = read()
    key = str(gate.key(request))
    exchange, remembered = gate.prepare(request, key), recalling.prepare(request, key)
    assert isinstance(exchange, Exchange)
    assert isinstance(remembered, Exchange)
    parts = Parts("POST", "/pay", b"", b"application/json", BODY)
    attempt = exchange.attempt(Execute(exchange.claim.id, exchange.claim.token, 1, 30_000), time.monotonic())
    answered, again = (one.answered(attempt, 201, KEPT, ANSWER) for one in (exchange, remembered))

    def claim_and_settle() -> None:
        token = os.urandom(16)
        store.claim([exchange.claim._replace(id=token, token=token)])
        store.settle([answered.settlement._replace(id=token, token=token)])

    return {
        "reading the request": read,
        "finding and checking the key": lambda: gate.key(request),
        "whose it is": lambda: gate.scope(request),
        "its fingerprint, exact and canonical": lambda: gate.fingerprinter.encoded(parts),
        "all until the store is asked (the three above and the claim)": lambda: gate.prepare(request, key),
        "claim and settle in memory": claim_and_settle,
        "writing the outcome down": lambda: exchange.answered(attempt, 201, KEPT, ANSWER),
        "keeping the answer at hand": lambda: remembered.stored(again),
        "finding it there": lambda: recalling.prepare(request, key),
    }


def show(found: dict[str, float]) -> list[Piece]:
    """One table."""
    rows = [(name, number(value)) for name, value in found.items()]
    said = (
        "What is missing between the parts and the whole is the layer's own: a task that outlives a client who leaves, "
        "the answer held back until it is stored, the lease that is renewed, and asyncio's turns."
    )
    return [Table("Microseconds of CPU", ("part", "us"), rows), Note(said)]
