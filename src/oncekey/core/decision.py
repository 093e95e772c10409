"""What a caller may do now: a closed union, so that a new decision makes the type checker list who must answer it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from oncekey.core.record import Record


@dataclass(slots=True, frozen=True)
class Execute:
    """The key is ours: run the work. `token` proves it; `attempt` counts from 1."""

    id: bytes
    token: bytes
    attempt: int
    left_for: int


@dataclass(slots=True, frozen=True)
class Replay:
    """It is done: give the stored answer."""

    record: Record


@dataclass(slots=True, frozen=True)
class InProgress:
    """Somebody runs it now, or it may be retried only later; `left_for` is the true time left, in milliseconds."""

    record: Record
    left_for: int


@dataclass(slots=True, frozen=True)
class Mismatch:
    """The key was used for another request. Nothing of the stored answer is shown."""

    record: Record


@dataclass(slots=True, frozen=True)
class Unknown:
    """Nobody knows whether the effect happened. Nothing runs until that is found out; `left_for` until it is asked."""

    record: Record
    left_for: int


@dataclass(slots=True, frozen=True)
class Refused:
    """The key can never run again: its answer has expired, or its attempts are used up. A new key is safe."""

    record: Record
    reason: Literal["expired", "exhausted"]


Decision = Execute | Replay | InProgress | Mismatch | Unknown | Refused
