"""A worker's life: what it opens before its first request and closes after its last."""

from __future__ import annotations

import asyncio
import os
from typing import TYPE_CHECKING

from oncekey.adapters.asgi_lifespan import drain
from oncekey.demo.app import Demo
from oncekey.demo.housekeeping import Housekeeper
from oncekey.demo.settings import Settings
from oncekey.stores.memory import AsyncMemoryStore
from oncekey.stores.open import open_store

if TYPE_CHECKING:
    from oncekey.demo.web import Receive, Scope, Send
    from oncekey.stores.contract import Store


class Worker:
    """The application that the server runs."""

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self.demo = Demo(settings)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one connection scope."""
        if scope["type"] == "http":
            await self.demo(scope, receive, send)
        elif scope["type"] == "lifespan":
            await receive()
            chores = await self._start()
            await send({"type": "lifespan.startup.complete"})
            async with self.demo.reconciler:
                await receive()
            await self._stop(chores)
            await send({"type": "lifespan.shutdown.complete"})

    async def _start(self) -> Housekeeper:
        await asyncio.to_thread(self.demo.ledger.prepare)
        starter = self.settings.starter if self.settings.workers > 1 else 0
        chores = Housekeeper(self._store(), (self.demo.counters,), starter)
        chores.start()
        self.demo.console.start()
        print(f"  worker {os.getpid()} is ready", flush=True)
        return chores

    async def _stop(self, chores: Housekeeper) -> None:
        await chores.stop()
        await self.demo.console.aclose()
        # One of them waits for the work of all, and then closes the engine that they share.
        await drain(next(iter(self.demo.guards.values())))
        await asyncio.to_thread(self.demo.ledger.close)
        self.demo.feed.close()

    def _store(self) -> Store:
        """The store for threads, for the chores."""
        store = self.demo.engine.store
        return store.sync if isinstance(store, AsyncMemoryStore) else open_store(self.settings.store)


def application() -> Worker:
    """Make the application of one worker; its settings are in the environment."""
    return Worker(Settings.from_environment())
