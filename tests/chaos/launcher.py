"""Starts processes by fork from one that has imported everything: a killed worker is back in a few milliseconds.

Each is a process of its own; a worker runs uvicorn on a port of its own. A launcher runs under its own clock: where
libfaketime is loaded into it, all its processes live in another hour. It is asked by lines of JSON on its input, and
answers `started PID` for each, and `ended PID`. Its processes end with it.
"""

from __future__ import annotations

import asyncio
import ctypes
import json
import logging
import os
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import uvicorn

from oncekey.adapters import asgi
from oncekey.stores import postgres, redis, sqlite
from tests.chaos import janitor, mutants, provider
from tests.chaos.settings import VARIABLE, Settings

# What a worker imports is imported here, once.
LOADED = (asgi, postgres, redis, sqlite, mutants)
log = logging.getLogger(__name__)
DIE_WITH_PARENT = 1
GRACE_FOR = 1


class Wish(NamedTuple):
    """One process to start: which of ROLES it plays, and what it is told."""

    role: str
    log: str
    settings: str = ""
    words: tuple[str, ...] = ()


def work(words: tuple[str, ...]) -> None:
    """Be a worker."""
    uvicorn.run(
        "tests.chaos.worker:app",
        port=Settings.ours().port,
        log_level="warning",
        access_log=False,
        timeout_graceful_shutdown=GRACE_FOR,
    )


def provide(words: tuple[str, ...]) -> None:
    """Be the provider: its ledger, and where the harness listens."""
    ledger, port = words
    asyncio.run(provider.main(Path(ledger), int(port)))


def clean(words: tuple[str, ...]) -> None:
    """Be a janitor."""
    janitor.main()


ROLES: dict[str, Callable[[tuple[str, ...]], None]] = {"worker": work, "provider": provide, "janitor": clean}


def play(wish: Wish) -> None:
    """Be that process, from here on."""
    ctypes.CDLL(None).prctl(DIE_WITH_PARENT, signal.SIGKILL)
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    os.environ[VARIABLE] = wish.settings
    told = os.open(wish.log, os.O_CREAT | os.O_APPEND | os.O_WRONLY)
    for stream, target in ((0, os.open(os.devnull, os.O_RDONLY)), (1, told), (2, told)):
        os.dup2(target, stream)
    logging.basicConfig(level=logging.WARNING)
    ROLES[wish.role](wish.words)


def say(word: str, pid: int) -> None:
    """One line in one write: a signal may come between two."""
    os.write(1, f"{word} {pid}\n".encode())


def reap(*_: Any) -> None:
    """Tell of every process that has ended."""
    while True:
        try:
            pid = os.waitpid(-1, os.WNOHANG)[0]
        except ChildProcessError:
            return
        if pid == 0:
            return
        say("ended", pid)


def main() -> None:
    signal.signal(signal.SIGCHLD, reap)
    for line in sys.stdin:
        # Told before it can end, so that nobody hears of an end without a start.
        signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGCHLD})
        pid = os.fork()
        if pid == 0:
            signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGCHLD})
            try:
                play(Wish(*json.loads(line)))
            except BaseException:
                log.exception("ended")
            finally:
                os._exit(1)
        say("started", pid)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGCHLD})


if __name__ == "__main__":
    main()
