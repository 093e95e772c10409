"""While a handler runs, its broker is told so again and again: otherwise it gives the message to somebody else."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Any, Final

from oncekey.engine.events import log

# A broker that does not answer must not keep a message from being settled.
GRACE_FOR: Final = 2.0


def _failed(error: Exception) -> None:
    # The message may come to somebody else meanwhile; the inbox makes that harmless.
    log.warning("a broker could not be told that a message is still being handled: %s", error)


class ThreadKeeper:
    """A thread that calls `beat` every so often."""

    def __init__(self, every: float, beat: Callable[[], Any]) -> None:
        self._every = every
        self._beat = beat
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._run, name="oncekey-keeper", daemon=True)
        self._thread.start()

    def _run(self) -> None:
        while not self._over.wait(self._every):
            try:
                self._beat()
            except Exception as error:  # noqa: BLE001 - whatever it is, the handler goes on
                _failed(error)

    def end(self) -> None:
        """Call it no more."""
        self._over.set()
        self._thread.join(GRACE_FOR)


class TaskKeeper:
    """A task that awaits `beat` every so often."""

    def __init__(self, every: float, beat: Callable[[], Awaitable[Any]]) -> None:
        self._every = every
        self._beat = beat
        self._over = asyncio.Event()
        self._task = asyncio.ensure_future(self._run())

    async def _run(self) -> None:
        while not await self._is_over():
            try:
                await self._beat()
            except Exception as error:  # noqa: BLE001 - as in ThreadKeeper
                _failed(error)

    async def _is_over(self) -> bool:
        with suppress(TimeoutError):
            async with asyncio.timeout(self._every):
                await self._over.wait()
        return self._over.is_set()

    async def end(self) -> None:
        """Await it no more. Not by cancelling: a client may take that for an error of its connection, and go on."""
        self._over.set()
        _, hanging = await asyncio.wait({self._task}, timeout=GRACE_FOR)
        for task in hanging:
            task.cancel()
