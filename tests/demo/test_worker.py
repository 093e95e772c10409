"""One worker, driven by hand: what it does between the server's first message and its last."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from oncekey.demo.ledger import Ledger
from oncekey.demo.lifespan import Worker
from oncekey.demo.settings import Settings
from tests.demo.server import Ask, ask, fresh


class Served:
    """A worker, and the messages that it sends."""

    def __init__(self, settings: Settings) -> None:
        self.worker = Worker(settings)
        self.told: asyncio.Queue[Any] = asyncio.Queue()
        self.said: asyncio.Queue[Any] = asyncio.Queue()

    @asynccontextmanager
    async def living(self) -> AsyncIterator[None]:
        """From start-up to shutdown."""
        life = asyncio.create_task(self.worker({"type": "lifespan"}, self.told.get, self.said.put))
        self.told.put_nowait({"type": "lifespan.startup"})
        assert (await self.said.get())["type"] == "lifespan.startup.complete"
        yield
        self.told.put_nowait({"type": "lifespan.shutdown"})
        assert (await self.said.get())["type"] == "lifespan.shutdown.complete"
        await life

    async def request(self, request: Ask) -> list[Any]:
        """Serve one request; what was sent."""
        sent: list[Any] = []
        messages = [{"type": "http.request", "body": request.body}]

        async def receive() -> Any:
            return messages.pop() if messages else await asyncio.Event().wait()

        async def send(message: Any) -> None:
            sent.append(message)

        headers = [(name.lower().encode(), value.encode()) for name, value in request.headers.items()]
        scope = {
            "type": "http",
            "method": request.method,
            "path": request.path.partition("?")[0],
            "query_string": request.path.partition("?")[2].encode(),
            "headers": headers,
        }
        await self.worker(scope, receive, send)
        return sent


def settings(folder: Path) -> Settings:
    """One worker on files in a folder."""
    return Settings(f"sqlite:///{folder}/keys.db", folder / "ledger.db", folder / "shared", 1, 0, "opens the console")


async def test_shutdown_waits_for_work_whose_client_has_left(tmp_path: Path) -> None:
    """The charge ends, its outcome is stored, and the next run of the demo replays it."""
    request, ref = fresh(), fresh("ref")
    order = ask("ietf", request, f"probe:ref={ref} probe:delay=300")
    first = Served(settings(tmp_path))
    async with first.living():
        left = asyncio.create_task(first.request(order))
        book = Ledger(tmp_path / "ledger.db")
        while await asyncio.to_thread(book.executions, ref) == 0:
            await asyncio.sleep(0)
        book.close()
        left.cancel()
    second = Served(settings(tmp_path))
    async with second.living():
        start, body = await second.request(order)
    assert (start["status"], (b"idempotency-replayed", b"true") in start["headers"]) == (201, True)
    assert json.loads(body["body"])["id"].startswith("ord_")


async def test_settings_survive_the_environment(tmp_path: Path) -> None:
    """What workers read is what was chosen."""
    given = settings(tmp_path)
    assert Settings.from_environment(given.to_environment()) == given
