"""What a caller may do now: a closed union, so that a new decision makes the type checker list who must answer it."""

from __future__ import annotations

from typing import Literal, NamedTuple

from oncekey.core.record import Record


class Execute(NamedTuple):
    """The key is ours: run the work. `token` proves it; `attempt` counts from 1.

    `waited_for` says how long the request was held before it asked for the key with success. `journal` is what earlier
    attempts have left in the record (core.journal), sealed.
    """

    id: bytes
    token: bytes
    attempt: int
    left_for: int
    waited_for: int = 0
    journal: bytes = b""


class Replay(NamedTuple):
    """It is done: give the stored answer."""

    record: Record


class InProgress(NamedTuple):
    """Somebody runs it now, or it may be retried only later; `left_for` is the true time left, in milliseconds."""

    record: Record
    left_for: int


class Mismatch(NamedTuple):
    """The key was used for another request. Nothing of the stored answer is shown."""

    record: Record


class Unknown(NamedTuple):
    """Nobody knows whether the effect happened. Nothing runs until that is found out; `left_for` until it is asked."""

    record: Record
    left_for: int


class Refused(NamedTuple):
    """The key will not run: its answer has expired, its attempts are used up, or it comes too late to be run as new."""

    record: Record | None
    reason: Literal["expired", "exhausted", "late"]


Decision = Execute | Replay | InProgress | Mismatch | Unknown | Refused
