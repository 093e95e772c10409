"""A place for a worker: its process, started again whenever it ends, and the three links to and from it."""

from __future__ import annotations

import asyncio
import contextlib
import signal
from collections.abc import Callable

from tests.chaos.launcher import Wish
from tests.chaos.launching import Launcher
from tests.chaos.proxy import Hit, Link
from tests.chaos.settings import Settings
from tests.infra.process import free_port, send

UP_WITHIN = 60.0
NAP_FOR = 0.01


class Slot:
    """Worker number so and so. Its links are those to its clients, its store and its provider."""

    def __init__(self, number: int, settings: Settings, hit: Hit) -> None:
        self.name = f"w{number}"
        self.port = free_port()
        self.settings = settings._replace(port=self.port)
        self.pid = 0
        self.ending = False  # asked to: what it still answers is the server's word, not ours
        self.up = asyncio.Event()
        self.links = {"client link": Link("client link", self.port, hit)}
        self._hit = hit
        self._closed = False
        self._tasks: set[asyncio.Task[None]] = set()

    async def open(self, launcher: Launcher, store_port: int | None, through: Callable[[int], str]) -> None:
        """Make the links, and start the first worker."""
        await self.links["client link"].start()
        provider = self.links["provider link"] = Link("provider link", self.settings.provider, self._hit)
        self.settings = self.settings._replace(provider=await provider.start())
        if store_port is not None:
            store = self.links["store link"] = Link("store link", store_port, self._hit)
            self.settings = self.settings._replace(store=through(await store.start()))
        self._launcher = launcher
        self._launch()

    def _launch(self) -> None:
        self.up.clear()
        if not self._closed:
            task = asyncio.create_task(self._start())
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    async def _start(self) -> None:
        wish = Wish("worker", f"{self.settings.trace}.log", self.settings.told())
        pid = await self._launcher.run(wish, lambda: self._launch() if self.pid == pid else None)
        self.pid, self.ending = pid, False
        while self.pid == pid and not self.up.is_set():
            with contextlib.suppress(OSError):
                _, writer = await asyncio.open_connection("127.0.0.1", self.port)
                writer.transport.abort()
                self.up.set()
            await asyncio.sleep(NAP_FOR)

    async def until_up(self) -> None:
        """Wait for the worker."""
        await asyncio.wait_for(self.up.wait(), UP_WITHIN)

    def signal(self, number: signal.Signals) -> int:
        """To the worker that is there now; the answer is its process id."""
        if self.pid:
            send(self.pid, number)
        return self.pid

    def pause(self) -> int:
        """Freeze the worker."""
        self.up.clear()
        return self.signal(signal.SIGSTOP)

    def go_on(self, pid: int) -> None:
        """Let it run on, if it is still that one."""
        if self.pid == pid:
            self.signal(signal.SIGCONT)
            self.up.set()

    async def renewed(self, version: int, within: float = 8.0) -> None:
        """Have the worker end in peace and come back with another version of the records."""
        self.settings = self.settings._replace(version=version)
        self.up.clear()
        self.ending = True
        pid = self.signal(signal.SIGTERM)
        try:
            async with asyncio.timeout(within):
                while self.pid == pid:
                    await asyncio.sleep(NAP_FOR)
        except TimeoutError:
            self.signal(signal.SIGKILL)

    async def close(self) -> None:
        """End all of it."""
        self._closed = True
        for task in self._tasks:
            task.cancel()
        if self.pid:
            self._launcher.drop(self.pid)
        for link in self.links.values():
            await link.close()
