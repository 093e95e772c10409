"""The attempts of one request, without input or output: what to do next, given what just happened.

    attempts = Attempts(retries)
    attempts.next(now)                    Send: do it | Stop: it is not allowed any more
    attempts.answered(answer, now)        Deliver | Wait | Stop
    attempts.failed(Sent.MAYBE, now)      Wait | Stop

`now` is a monotonic clock's time; only the age of an operation that began in an earlier process needs a real one. After
Wait comes `next` again. clients/vectors/attempts.json holds whole conversations, for every language that has a client.
"""

from __future__ import annotations

import random
import time
from dataclasses import dataclass, field
from enum import IntEnum, StrEnum
from typing import TYPE_CHECKING

from oncekey.client.budget import Budget
from oncekey.client.judging import Answer, Verdict, judge, retry_after
from oncekey.errors import ConfigurationError

if TYPE_CHECKING:
    from collections.abc import Callable

_SHARED = Budget()


@dataclass(frozen=True, slots=True)
class Retries:
    """How long and how often one request is tried. Durations are seconds; None is no limit.

    `keep_for` is how long the server keeps its answers: an operation that is older is never sent again, because the
    server would run it as new. It is reported as unresolved instead.
    """

    attempts: int | None = 8
    try_for: float | None = 120.0  # in all: an attempt that is still without an answer then is given up
    wait_for: float = 0.25
    longest_wait_for: float = 20.0
    obey_for: float = 60.0  # a longer Retry-After ends the attempts: the caller decides what to do meanwhile
    keep_for: float | None = 86_400.0
    budget: Budget | None = field(default=_SHARED)

    def __post_init__(self) -> None:
        if self.attempts is not None and self.attempts < 1:
            raise ConfigurationError(f"attempts={self.attempts} sends nothing: write at least 1, or None for no limit")
        for name in ("try_for", "wait_for", "longest_wait_for", "obey_for", "keep_for"):
            seconds = getattr(self, name)
            if seconds is None and name in {"try_for", "keep_for"}:
                continue
            if not isinstance(seconds, int | float) or not 0 < seconds < float("inf"):
                raise ConfigurationError(f"{name}={seconds!r} is no duration: write seconds, more than 0")


class Sent(StrEnum):
    """What is known of a request that got no answer."""

    NO = "not-sent"  # no connection was made: it cannot have arrived
    MAYBE = "maybe-sent"  # some or all of it left


class Known(IntEnum):
    """The most that may have happened to an operation, over all its attempts."""

    NOTHING_SENT = 0
    TURNED_AWAY = 1
    MAYBE_DONE = 2


@dataclass(frozen=True, slots=True)
class Send:
    """Send the request now. `left` is how many seconds there are for it; None is no limit."""

    number: int
    left: float | None = None


@dataclass(frozen=True, slots=True)
class Wait:
    """Wait, then ask `next`."""

    seconds: float


@dataclass(frozen=True, slots=True)
class Deliver:
    """The answer is definite: give it to the caller."""

    verdict: Verdict


@dataclass(frozen=True, slots=True)
class Stop:
    """Try no more. `reason`: attempts, time, budget, age, wait (longer than obeyed), denied, or told."""

    reason: str
    known: Known
    attempts: int


# Definite for this request; of an earlier attempt that may have arrived they say nothing.
_TURNED_AWAY = {Verdict.DENIED: "denied", Verdict.STALE: "age"}
_MEANING = {
    Verdict.NOT_DONE: Known.TURNED_AWAY,
    Verdict.LATER: Known.TURNED_AWAY,
    Verdict.BUSY: Known.MAYBE_DONE,
    Verdict.UNKNOWN: Known.MAYBE_DONE,
    Verdict.STOP: Known.MAYBE_DONE,
}


class Attempts:
    """One request's attempts. `age` is how old the operation already is, if an earlier process has sent it."""

    def __init__(
        self,
        retries: Retries | None = None,
        *,
        age: float | None = None,
        chance: Callable[[], float] = random.random,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self.retries = retries or Retries()
        self.number = 0
        # An earlier process may have reached the server.
        self.known = Known.NOTHING_SENT if age is None else Known.MAYBE_DONE
        self._age = age or 0.0
        self._chance = chance
        self._clock = clock
        self._began: float | None = None
        self._began_at = 0.0

    def next(self, now: float) -> Send | Stop:
        """Say whether it may be sent now."""
        if self._began is None:
            self._began, self._began_at = now, self._clock()
        limit = self.retries.keep_for
        # A monotonic clock stands still while the machine sleeps; the server's memory does not.
        passed = max(now - self._began, self._clock() - self._began_at)
        if limit is not None and self._age + passed >= limit:
            return self._stop("age")
        left = None if self.retries.try_for is None else self.retries.try_for - (now - self._began)
        if left is not None and left <= 0:
            return self._stop("time")
        self.number += 1
        return Send(self.number, left)

    def answered(self, answer: Answer, now: float) -> Deliver | Wait | Stop:
        """An answer has come, whole."""
        verdict = judge(answer)
        if verdict in _TURNED_AWAY and self.known is Known.MAYBE_DONE:
            return self._stop(_TURNED_AWAY[verdict])
        if verdict not in _MEANING:
            if self.number == 1 and self.retries.budget is not None:
                self.retries.budget.earn()
            return Deliver(verdict)
        meaning = _MEANING[verdict]
        self.known = meaning if verdict is Verdict.NOT_DONE else max(self.known, meaning)
        if verdict is Verdict.STOP:
            return self._stop("told")
        asked = retry_after(answer, self._clock())
        return self._wait(now, asked, free=verdict is Verdict.BUSY)

    def failed(self, sent: Sent, now: float) -> Wait | Stop:
        """No answer has come, or a part of one."""
        if sent is Sent.MAYBE:
            self.known = Known.MAYBE_DONE
        return self._wait(now, None, free=False)

    def _wait(self, now: float, asked: float | None, *, free: bool) -> Wait | Stop:
        retries = self.retries
        if retries.attempts is not None and self.number >= retries.attempts:
            return self._stop("attempts")
        if asked is not None and asked > retries.obey_for:
            return self._stop("wait")
        # Full jitter, on top of what the server asks for: the clients of one outage do not come back together.
        bound = min(retries.longest_wait_for, retries.wait_for * 2.0 ** min(self.number - 1, 60))
        seconds = (asked or 0.0) + self._chance() * bound
        passed = now - (self._began if self._began is not None else now)
        if retries.try_for is not None and passed + seconds > retries.try_for:
            return self._stop("time")
        if not free and retries.budget is not None and not retries.budget.spend(now):
            return self._stop("budget")
        return Wait(seconds)

    def _stop(self, reason: str) -> Stop:
        return Stop(reason, self.known, self.number)
