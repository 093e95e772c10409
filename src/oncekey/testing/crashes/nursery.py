"""Process lives that are killed. Each is a child of its own, and what its client had got by then is known.

Forking is sound from a process of one thread that has nothing open. One such process is forked at the start, and it
forks all lives, each of them warm.
"""

from __future__ import annotations

import json
import os
import signal
import traceback
import warnings
from multiprocessing import Pipe
from multiprocessing.connection import Connection
from typing import Any, NamedTuple, NoReturn, Self

from oncekey.errors import ConfigurationError
from oncekey.testing.crashes.asgi import Heard
from oncekey.testing.crashes.life import Life, Stage
from oncekey.testing.crashes.steps import Place, Step, Way

TOLD = ("status", "raised", "whole")


class LastWords(NamedTuple):
    """What stood when a life ended: what its client had heard, the operation's ids, the steps, and if it was killed."""

    heard: Heard
    ids: list[bytes]
    steps: list[Step]
    killed: bool


class Nursery:
    """The process that forks the lives. It is made while nothing of the store is open."""

    def __init__(self, stage: Stage) -> None:
        self._patience = 2 * stage.patience
        self._line, theirs = Pipe()
        with warnings.catch_warnings():
            # Other threads, of a test runner say, stay behind. The child touches nothing of theirs.
            warnings.simplefilter("ignore", DeprecationWarning)
            self._pid = os.fork()
        if not self._pid:
            self._line.close()
            _nurse(stage, theirs)
        theirs.close()

    def live(self, key: str, at: int | None = None) -> LastWords:
        """One life that serves one request and is killed at this step of it, or when it has served it."""
        self._line.send_bytes(json.dumps([key, at]).encode())
        said = b""
        while heard := self._hears():
            said = heard
        words: dict[str, Any] = json.loads(said or b"{}")
        if "ids" not in words:
            raise ConfigurationError(f"a process could not serve the request: {words.get('trouble', 'it was gone')}")
        return _read(words)

    def _hears(self) -> bytes:
        try:
            if self._line.poll(self._patience):
                return self._line.recv_bytes()
        except EOFError:
            raise ConfigurationError("the process that starts the processes to kill is gone") from None
        raise ConfigurationError(f"a request that was to be killed came to no end within {self._patience:g} s")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._line.close()
        os.kill(self._pid, signal.SIGKILL)
        os.waitpid(self._pid, 0)


def _nurse(stage: Stage, line: Connection) -> NoReturn:
    """Fork a life for each word that comes, until none comes any more. Nothing comes out of here, not even an error."""
    try:
        while True:
            key, at = json.loads(line.recv_bytes())
            child = os.fork()
            if not child:
                _live(stage, line, key, at)
            os.waitpid(child, 0)
            line.send_bytes(b"")
    finally:
        os._exit(0)


def _live(stage: Stage, line: Connection, key: str, at: int | None) -> NoReturn:
    """Serve one request, with the kill at its step; whatever happens, the end is a kill."""
    try:
        life = Life(stage, lambda: line.send_bytes(_written(life)))
        life.send(key, at, Way.KILL)
        line.send_bytes(_written(life))
    except BaseException:  # noqa: BLE001 - a forked process has nobody else to tell
        line.send_bytes(json.dumps({"trouble": traceback.format_exc()}).encode())
    finally:
        os.kill(os.getpid(), signal.SIGKILL)
    raise AssertionError("killed")


def _written(life: Life) -> bytes:
    heard = life.heard
    words = {name: getattr(heard, name) for name in TOLD}
    words |= {"headers": heard.headers, "body": heard.body.hex(), "ids": [one.hex() for one in life.link.ids]}
    words |= {"steps": [(step.place.value, step.what) for step in life.steps.reached]}
    return json.dumps(words | {"killed": life.steps.hit is not None}).encode()


def _read(words: dict[str, Any]) -> LastWords:
    heard = Heard()
    for name in TOLD:
        setattr(heard, name, words[name])
    heard.headers = [(name, value) for name, value in words["headers"]]
    heard.body = bytes.fromhex(words["body"])
    steps = [Step(Place(place), what) for place, what in words["steps"]]
    return LastWords(heard, [bytes.fromhex(one) for one in words["ids"]], steps, killed=words["killed"])


__all__ = ["LastWords", "Nursery"]
