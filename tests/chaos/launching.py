"""Our side of a launcher: ask it for processes, and hear of their ends."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
import sys
from collections import deque
from collections.abc import AsyncIterator, Callable
from pathlib import Path

from tests.chaos.launcher import Wish
from tests.infra.process import send, until_we_end

ROOT = Path(__file__).parents[2]
FAKETIME = sorted(Path("/usr/lib").glob("*/faketime/libfaketimeMT.so.1"))


def clock(offset: str) -> dict[str, str]:
    """What puts a process into another hour; nothing where libfaketime is not installed."""
    if not offset or not FAKETIME:
        return {}
    return {"LD_PRELOAD": str(FAKETIME[-1]), "FAKETIME": offset, "FAKETIME_DONT_FAKE_MONOTONIC": "1"}


class LauncherEnded(Exception):
    """It could not start, or was killed; the end of what it said is in the message."""


class Launcher:
    """A running launcher. Processes that it has started end with `drop`, and all of them with it."""

    def __init__(self, process: asyncio.subprocess.Process, log: Path) -> None:
        self._process = process
        self._log = log
        self._asked: deque[asyncio.Future[int]] = deque()
        self._ended: dict[int, Callable[[], None]] = {}
        self._listening = asyncio.create_task(self._listen())

    async def run(self, wish: Wish, ended: Callable[[], None] = lambda: None) -> int:
        """Start a process; the answer is its id. `ended` is called when it has ended."""
        started: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        if self._listening.done():
            raise self._why()
        self._asked.append(started)
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps(wish).encode() + b"\n")
        pid = await started
        self._ended[pid] = ended
        return pid

    def drop(self, pid: int) -> None:
        """End a process, whatever state it is in, and do not speak of it."""
        if self._ended.pop(pid, None) is not None:
            send(pid, signal.SIGKILL)

    async def _listen(self) -> None:
        assert self._process.stdout is not None
        while line := await self._process.stdout.readline():
            word, number = line.split()
            if word == b"started":
                self._asked.popleft().set_result(int(number))
                await asyncio.sleep(0)  # so that its end is heard by who has asked for it
            elif ended := self._ended.pop(int(number), None):
                ended()
        for asked in self._asked:
            asked.set_exception(self._why())

    def _why(self) -> LauncherEnded:
        return LauncherEnded(f"the launcher has ended:\n{self._log.read_text()[-2000:]}")

    async def close(self) -> None:
        """End it and all that it has started."""
        self._listening.cancel()
        with contextlib.suppress(ProcessLookupError):
            self._process.kill()
        await self._process.wait()


@contextlib.asynccontextmanager
async def launcher(folder: Path, offset: str = "") -> AsyncIterator[Launcher]:
    """A launcher that ends with us, under its own clock."""
    variables = os.environ | {"PYTHONPATH": f"{ROOT}/src:{ROOT}"} | clock(offset)
    log = folder / f"launcher{offset}.log"
    pipe = asyncio.subprocess.PIPE
    with log.open("ab") as errors:
        words = (*until_we_end(signal.SIGKILL), sys.executable, "-m", "tests.chaos.launcher")
        process = await asyncio.create_subprocess_exec(*words, stdin=pipe, stdout=pipe, stderr=errors, env=variables)
    made = Launcher(process, log)
    try:
        yield made
    finally:
        await made.close()
