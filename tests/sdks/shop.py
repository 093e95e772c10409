"""A small service of one dialect, in this process, whose work waits while a gate is shut. It answers 409 at once."""

from __future__ import annotations

import asyncio
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import uvicorn

from oncekey import OnceKeyMiddleware
from oncekey.http.dialects import dialect

Answer = tuple[int, list[tuple[bytes, bytes]], bytes]
PATIENCE = 30.0


class Shop:
    """The work: it counts its runs and answers with what `make` makes of the body and the run's number."""

    def __init__(self, make: Callable[[dict[bytes, bytes], bytes, int], Answer]) -> None:
        self.make = make
        self.runs: list[bytes] = []
        self.gate = threading.Event()
        self.gate.set()
        self.begun = threading.Event()
        self.port = 0

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] == "lifespan":
            return
        body = (await receive())["body"]
        self.runs.append(body)
        number = len(self.runs)
        self.begun.set()
        while not self.gate.is_set():
            await asyncio.sleep(0.01)
        status, headers, content = self.make(dict(scope["headers"]), body, number)
        length = (b"content-length", b"%d" % len(content))
        await send({"type": "http.response.start", "status": status, "headers": [*headers, length]})
        await send({"type": "http.response.body", "body": content})


@contextmanager
def opened(shop: Shop, name: str, scope: Any) -> Iterator[Shop]:
    """Serve a shop in a thread. The short lease makes Retry-After short."""
    one = dialect(name)
    policy = one.policy(lease_for=1.0, store_for=0.5)
    app = OnceKeyMiddleware(shop, "memory://", scope=scope, dialect=one, policy=policy)
    with socket.socket() as listening:
        listening.bind(("127.0.0.1", 0))
        shop.port = listening.getsockname()[1]
        server = uvicorn.Server(uvicorn.Config(app, log_level="error", lifespan="off", ws="none"))
        thread = threading.Thread(target=server.run, args=([listening],))
        thread.start()
        end = time.monotonic() + PATIENCE
        while not server.started and time.monotonic() < end:
            time.sleep(0.01)
        try:
            yield shop
        finally:
            shop.gate.set()
            server.should_exit = True
            thread.join()
            asyncio.run(app.engine.close())
