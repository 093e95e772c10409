"""First requests and replays through the ASGI layer, on each store, beside the naive form of the same.

    make bench                      all stores
    make bench BENCH_ARGS="redis --rounds 5"

Rounds are interleaved and ratios are taken within a round; printed are medians. CPU is that of this process alone: the
steadier column on a shared machine. The full bench, with peers and growth, is the next step (ROADMAP.md).
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import statistics
import sys
import tempfile
import time
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

sys.path.insert(0, str(Path(__file__).parent.parent))

from bench.floors import Floor, MemoryFloor, PostgresFloor, RedisFloor, SqliteFloor
from oncekey import OnceKeyMiddleware, by_header
from tests.infra import PostgresServer, RedisServer

BODY = b'{"amount": 1999, "currency": "usd", "customer": "cus_1234567890", "note": "hello there ok"}'
ANSWER = b'{"id": "0123456789abcdef", "amount": 1999, "currency": "usd", "status": "succeeded", "ok":1}'
CONCURRENCY = (1, 32, 64)


class Cost(NamedTuple):
    """Microseconds per request."""

    wall: float
    cpu: float


def starlette() -> Any:
    from starlette.applications import Starlette
    from starlette.responses import Response
    from starlette.routing import Route

    async def pay(request: Any) -> Any:
        await request.body()
        return Response(ANSWER, 201, media_type="application/json")

    return Starlette(routes=[Route("/pay", pay, methods=["POST"])])


def scope(key: bytes) -> dict[str, Any]:
    headers = [(b"host", b"pay.example"), (b"content-type", b"application/json"), (b"authorization", b"Bearer abcdef")]
    headers += [(b"content-length", b"%d" % len(BODY)), (b"idempotency-key", key)]
    return {
        "type": "http", "asgi": {"version": "3.0"}, "http_version": "1.1", "method": "POST", "scheme": "http",
        "path": "/pay", "raw_path": b"/pay", "query_string": b"", "root_path": "", "headers": headers,
        "server": ("pay.example", 80), "client": ("192.0.2.1", 1), "extensions": {},
    }  # fmt: skip


async def receive() -> dict[str, Any]:
    return {"type": "http.request", "body": BODY, "more_body": False}


async def call(app: Any, key: bytes) -> None:
    status = []

    async def send(message: Any) -> None:
        if "status" in message:
            status.append(message["status"])

    await app(scope(key), receive, send)
    if status != [201]:
        raise RuntimeError(f"answered {status}")


async def timed(app: Any, keys: list[bytes], concurrency: int) -> Cost:
    waiting: Iterator[bytes] = iter(keys)

    async def client() -> None:
        for key in waiting:
            await call(app, key)

    wall, cpu = time.perf_counter(), time.process_time()
    await asyncio.gather(*(client() for _ in range(concurrency)))
    scale = 1e6 / len(keys)
    return Cost((time.perf_counter() - wall) * scale, (time.process_time() - cpu) * scale)


def keys(count: int) -> list[bytes]:
    return [str(uuid.uuid4()).encode() for _ in range(count)]


async def measure(name: str, floor: Floor, guarded: OnceKeyMiddleware, rounds: int, size: int) -> None:
    await floor.open()
    await guarded.engine.store.migrate()
    for app in (floor, guarded):
        await timed(app, keys(200), 16)
    for concurrency in CONCURRENCY:
        seen: dict[str, list[tuple[Cost, Cost]]] = {"first": [], "replay": []}
        for _ in range(rounds):
            mine, theirs = keys(size), keys(size)
            for phase, costs in seen.items():
                if isinstance(floor, RedisFloor):
                    floor.replaying = phase == "replay"
                costs.append((await timed(floor, theirs, concurrency), await timed(guarded, mine, concurrency)))
        for phase, costs in seen.items():
            report(name, concurrency, phase, costs)
    batched = guarded.engine._batched  # noqa: SLF001 - the bench counts what the engine sends
    if batched.claims.batches:
        trips = (batched.claims.batches + batched.settlements.batches) / batched.claims.items
        print(f"{name:9} round trips a request over the whole run: {trips:.2f}")
    await guarded.engine.close()
    await floor.close()


def report(name: str, concurrency: int, phase: str, costs: list[tuple[Cost, Cost]]) -> None:
    wall = statistics.median(floor.wall / ours.wall for floor, ours in costs)
    cpu = statistics.median(ours.cpu / floor.cpu for floor, ours in costs)
    floor_cpu, our_cpu = (statistics.median(pair[side].cpu for pair in costs) for side in (0, 1))
    print(
        f"{name:9} {phase:6} {concurrency:3} at once   {wall:5.2f}x the floor's throughput   {cpu:5.2f}x its CPU"
        f"   ({our_cpu:6.1f} against {floor_cpu:6.1f} us)",
        flush=True,
    )


@contextlib.contextmanager
def served(name: str, folder: str) -> Iterator[tuple[str, Callable[[Any], Floor]]]:
    """A store's URL and its floor, with a throw-away server where one is needed."""
    if name == "memory":
        yield "memory://", MemoryFloor
    elif name == "sqlite":
        yield f"sqlite:///{folder}/oncekey.db", lambda app: SqliteFloor(app, f"{folder}/floor.db")
    else:
        with RedisServer() if name == "redis" else PostgresServer() as server:
            floor = RedisFloor if name == "redis" else PostgresFloor
            yield server.url, lambda app: floor(app, server.url)


async def main(options: argparse.Namespace) -> None:
    app = starlette()
    for name in options.stores:
        with tempfile.TemporaryDirectory() as folder, served(name, folder) as (url, floor):
            guarded = OnceKeyMiddleware(app, url, scope=by_header("authorization"))
            await measure(name, floor(app), guarded, options.rounds, options.size)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("stores", nargs="*", default=["memory", "sqlite", "postgres", "redis"])
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--size", type=int, default=1500, help="requests per round and phase")
    asyncio.run(main(parser.parse_args()))
