"""Consumers at work: in this process, and in one of their own that is killed."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

from oncekey.effects.inbox import Inbox, Message, Patience
from oncekey.engine.events import Event
from tests.effects.inbox.places import Place, sqlite_place

ROOT = Path(__file__).parents[3]
PATIENCE = 30.0


class Shop:
    """An inbox with a handler that ships: what it did, and what it is to fail on."""

    def __init__(self, place: Place, **chosen: Any) -> None:
        self.place = place
        self.ordered = chosen.pop("ordered", False)
        self.failing: dict[str, Exception] = {}
        self.seen: list[str] = []
        self.hook: Callable[[str], Any] = lambda id_: None
        self.events: Counter[str] = Counter()
        patience = Patience(attempts=2, first_for=0.05)
        settled: dict[str, Any] = {"redelivery_for": 60, "patience": patience, "sinks": (self._told,)}
        self.inbox = Inbox(place.connect, **settled | chosen)
        self.inbox.migrate()
        self.handler = self.inbox.once("orders", ordered=self.ordered)(self.ship)

    def ship(self, message: Message, connection: Any) -> None:
        name = message.id or str(message.place)
        self.seen.append(name)
        self.place.ship(connection, name)
        self.hook(name)
        if name in self.failing:
            raise self.failing[name]

    def _told(self, event: Event) -> None:
        self.events[event.name] += 1

    @property
    def shipped(self) -> list[str]:
        return self.place.shipped()


@asynccontextmanager
async def running(*consumers: Any) -> AsyncIterator[None]:
    """Let consumers run, and stop them."""
    tasks = [asyncio.ensure_future(one.run() if one.awaited else asyncio.to_thread(one.run)) for one in consumers]
    try:
        yield
    finally:
        for one in consumers:
            one.stop()
        await asyncio.wait_for(asyncio.gather(*tasks), PATIENCE)


async def until(holds: Callable[[], Any]) -> None:
    """Wait for a condition, also one that is awaited."""
    deadline = time.monotonic() + PATIENCE
    while True:
        value = holds()
        if await value if asyncio.iscoroutine(value) else value:
            return
        if time.monotonic() > deadline:
            raise AssertionError("it did not come true in time")
        await asyncio.sleep(0.02)


class Child:
    """A consumer in a process of its own: see child.py for what it may be told to do."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self.process = process

    async def said(self, line: str) -> None:
        """Wait until it says so."""
        assert self.process.stdout is not None
        heard = await asyncio.wait_for(self.process.stdout.readline(), PATIENCE)
        assert heard.decode().strip() == line

    def send(self, number: signal.Signals) -> None:
        self.process.send_signal(number)

    async def ended(self) -> int:
        """Its exit code."""
        return await asyncio.wait_for(self.process.wait(), PATIENCE)


@asynccontextmanager
async def child(name: str, rig: Any, database: Path, mode: str) -> AsyncIterator[Child]:
    """Start one, which ends with the test."""
    words = ["-m", "tests.effects.brokers.child", name, rig.address, rig.queue, str(database), mode]
    process = await asyncio.create_subprocess_exec(
        sys.executable, *words, stdout=asyncio.subprocess.PIPE, cwd=ROOT, env=os.environ
    )
    try:
        yield Child(process)
    finally:
        with suppress(ProcessLookupError):
            process.kill()
        await process.wait()


def shop(folder: Path, **chosen: Any) -> Shop:
    """A shop in a file of its own."""
    return Shop(sqlite_place(folder / "shop.db"), **chosen)
