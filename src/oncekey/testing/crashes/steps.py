"""Where a request can be hit, and by what: the steps of one request, counted, and the ways of being hit there."""

from __future__ import annotations

import asyncio
import os
import signal
import threading
from collections.abc import Callable
from enum import Enum, StrEnum
from typing import NamedTuple


class Crash(Exception):
    """The error that is raised at a step."""


class Place(Enum):
    """What kind of step it is."""

    BEFORE = "before"  # a call of the store that has not been made yet
    AFTER = "after"  # a call of the store that was made; its reply is still under way
    LINE = "line"  # a line of the user's own code
    AWAIT = "await"  # a point at which tasks wait for something
    SERVER = "server"  # the server's side: what it sends and receives


class Step(NamedTuple):
    """One step of a request."""

    place: Place
    what: str

    def __str__(self) -> str:
        return f"{self.place.value} {self.what}"


class Way(StrEnum):
    """What happens at a step. Its value is the word for it in reports."""

    ERROR = "error"
    CANCELLED = "cancelled"
    EXIT = "exit"
    INTERRUPT = "interrupt"
    CLOSED = "closed"
    FAIL = "fail"
    LOSE = "lose"
    DOWN = "down"
    DEAF = "deaf"
    LEAVE = "leave"
    SHUTDOWN = "shutdown"
    GONE = "gone"
    KILL = "kill"


MEANING: dict[Way, str] = {
    Way.ERROR: "an ordinary exception is raised",
    Way.CANCELLED: "asyncio.CancelledError is raised",
    Way.EXIT: "SystemExit is raised, as by a worker's timeout",
    Way.INTERRUPT: "KeyboardInterrupt is raised",
    Way.CLOSED: "GeneratorExit is raised",
    Way.FAIL: "this call of the store fails and changes nothing",
    Way.LOSE: "this call of the store is carried out and its reply is lost",
    Way.DOWN: "from here on the store is away, until the next start",
    Way.DEAF: "from here on every call is carried out and its reply is lost, until the next start",
    Way.LEAVE: "the client leaves, and its server cancels the request",
    Way.SHUTDOWN: "the process shuts down, and what this request has started is cancelled",
    Way.GONE: "the server cannot send: the connection is gone",
    Way.KILL: "the process is killed by SIGKILL",
}

# Which exception stands for which way.
THROWN: dict[Way, type[BaseException]] = {
    Way.ERROR: Crash,
    Way.CANCELLED: asyncio.CancelledError,
    Way.EXIT: SystemExit,
    Way.INTERRUPT: KeyboardInterrupt,
    Way.CLOSED: GeneratorExit,
    Way.GONE: OSError,
}

ENDING = (Way.CANCELLED, Way.EXIT, Way.INTERRUPT, Way.CLOSED)
# A kill at the turns of an event loop would say no more than one at what happens between them.
WAYS: dict[Place, tuple[Way, ...]] = {
    Place.BEFORE: (Way.FAIL, Way.DOWN, Way.DEAF, *ENDING, Way.KILL),
    Place.AFTER: (Way.LOSE, *ENDING, Way.KILL),
    Place.LINE: (Way.ERROR, *ENDING, Way.KILL),
    Place.AWAIT: (Way.LEAVE, Way.SHUTDOWN),
    Place.SERVER: (Way.GONE, Way.KILL),
}


PURPOSE = "raised on purpose: "


def thrown(way: Way) -> BaseException:
    """The exception to raise."""
    return THROWN[way](f"{PURPOSE}{MEANING[way]}")


def on_purpose(error: BaseException) -> bool:
    """Whether it is one of ours; somebody who presses Ctrl-C means it."""
    return bool(error.args) and str(error.args[0]).startswith(PURPOSE)


class Steps:
    """Counts the steps of one request, and says at which of them what is to happen."""

    def __init__(self, last_words: Callable[[], None] = lambda: None) -> None:
        self.reached: list[Step] = []
        self.hit: Step | None = None
        self._last_words = last_words
        self._at: int | None = None
        self._way: Way | None = None
        self._thread: int | None = None
        self._lock = threading.Lock()

    def begin(self, at: int | None = None, way: Way | None = None) -> None:
        """Count from now on, on this thread; at step `at` this happens."""
        self.reached, self.hit = [], None
        self._at, self._way, self._thread = at, way, threading.get_ident()

    def end(self) -> None:
        """Count no more."""
        self._thread = None

    @property
    def here(self) -> bool:
        """Whether this thread runs the request: what others do at the same time is no step of it."""
        return self._thread == threading.get_ident()

    def reach(self, place: Place, what: str) -> Way | None:
        """Note a step; the answer is what is to happen here. A kill has happened before there is an answer."""
        with self._lock:
            if self._thread is None or (self._way is Way.KILL and Way.KILL not in WAYS[place]):
                return None
            self.reached.append(Step(place, what))
            if len(self.reached) - 1 != self._at:
                return None
            self.hit = self.reached[-1]
        if self._way is Way.KILL:
            self._last_words()
            os.kill(os.getpid(), signal.SIGKILL)
        return self._way


__all__ = ["MEANING", "WAYS", "Crash", "Place", "Step", "Steps", "Way", "on_purpose", "thrown"]
