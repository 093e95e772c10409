"""The same small payment for every candidate, asked through the ASGI interface. Runs in every virtual environment."""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Iterator
from typing import Any, NamedTuple

BODY = b'{"amount": 1999, "currency": "usd", "customer": "cus_1234567890", "note": "hello there ok"}'
PAID = {"id": "0123456789abcdef", "amount": 1999, "currency": "usd", "status": "succeeded"}
ANSWER = b'{"id":"0123456789abcdef","amount":1999,"currency":"usd","status":"succeeded"}'
CREATED = 201
LONGEST = 60.0  # seconds for one candidate in one phase of one round


class Count:
    """How often the payment was really made."""

    def __init__(self) -> None:
        self.executions = 0


class Cost(NamedTuple):
    """Microseconds per request."""

    wall: float
    cpu: float


class Answered(Exception):
    """A candidate answered something else than the payment's answer."""


def starlette(count: Count) -> Any:
    """The application that most candidates guard."""
    from starlette.applications import Starlette
    from starlette.responses import Response
    from starlette.routing import Route

    async def pay(request: Any) -> Any:
        await request.body()
        count.executions += 1
        return Response(ANSWER, CREATED, media_type="application/json")

    return Starlette(routes=[Route("/pay", pay, methods=["POST"])])


def scope(key: bytes) -> dict[str, Any]:
    """What a server would say of the request."""
    headers = [(b"host", b"pay.example"), (b"content-type", b"application/json"), (b"authorization", b"Bearer abcdef")]
    headers += [(b"content-length", b"%d" % len(BODY)), (b"idempotency-key", key)]
    return {
        "type": "http", "asgi": {"version": "3.0"}, "http_version": "1.1", "method": "POST", "scheme": "http",
        "path": "/pay", "raw_path": b"/pay", "query_string": b"", "root_path": "", "headers": headers,
        "server": ("pay.example", 80), "client": ("192.0.2.1", 1), "extensions": {}, "state": {},
    }  # fmt: skip


def keys(seed: str, count: int) -> list[bytes]:
    """Fresh keys in the shape of a UUID; the same for the same seed, so that a replay can be asked for."""
    chance = random.Random(seed)
    return [b"%08x-%04x-4%03x-8%03x-%012x" % tuple(map(chance.getrandbits, (32, 16, 12, 12, 48))) for _ in range(count)]


async def call(app: Any, key: bytes) -> bytes:
    """One request; its answer must be the payment's. Returns the body."""
    received, status, body = False, 0, b""

    async def receive() -> dict[str, Any]:
        nonlocal received
        if received:
            # Some peers listen for a disconnect while the application runs: the client does not leave.
            await asyncio.get_running_loop().create_future()
        received = True
        return {"type": "http.request", "body": BODY, "more_body": False}

    async def send(message: Any) -> None:
        nonlocal status, body
        if "status" in message:
            status = message["status"]
        else:
            body += message.get("body", b"")

    await app(scope(key), receive, send)
    if status != CREATED:
        raise Answered(f"answered {status} {body[:80]!r}")
    return body


async def timed(app: Any, many: list[bytes], concurrency: int) -> Cost:
    """Ask for all, `concurrency` at a time, and say what one cost."""
    waiting: Iterator[bytes] = iter(many)

    async def client() -> None:
        for key in waiting:
            await call(app, key)

    wall, cpu = time.perf_counter(), time.process_time()
    async with asyncio.timeout(LONGEST):
        clients = [asyncio.ensure_future(client()) for _ in range(concurrency)]
        try:
            await asyncio.gather(*clients)
        finally:
            for one in clients:
                one.cancel()
    scale = 1e6 / len(many)
    return Cost((time.perf_counter() - wall) * scale, (time.process_time() - cpu) * scale)


async def paced(app: Any, seed: str, clients: int, pause: float, seconds: float) -> list[float]:
    """First requests by clients that pause between two: what each took, in microseconds."""
    times: list[float] = []
    end = time.monotonic() + seconds

    async def client(number: int) -> None:
        waiting = iter(keys(f"{seed} {number}", 1 + int(seconds / pause)))
        await asyncio.sleep(pause * number / clients)
        while time.monotonic() < end and (key := next(waiting, None)) is not None:
            began = time.perf_counter()
            await call(app, key)
            times.append((time.perf_counter() - began) * 1e6)
            await asyncio.sleep(pause)

    await asyncio.gather(*map(client, range(clients)))
    return times
