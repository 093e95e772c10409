"""What happened in a run, as seen from outside: who asked what, what came back, what took effect, what was broken.

Times are seconds of the host's monotonic clock, which all its processes share. Effects are read from the ledger of the
provider, which knows nothing of OnceKey; calls are written by the clients. Only `attempts` and `words` come from the
workers, and they serve for intervals and for counting, never as the proof that an effect was single.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field
from enum import StrEnum
from typing import Any, NamedTuple


class Kind(StrEnum):
    """How a call ended, for the client."""

    FINAL = "final"  # the answer of the operation
    BUSY = "busy"  # in progress
    RELEASED = "released"  # nothing was done, come again
    UNKNOWN = "unknown"  # nobody knows yet
    MISMATCH = "mismatch"  # another request under this key
    UNAVAILABLE = "unavailable"  # the store cannot be asked
    REFUSED = "refused"  # the request itself was no good
    INFO = "info"  # cut off or timed out: it may have happened or not
    UNTYPED = "untyped"  # an error that nobody has named


class Operation(NamedTuple):
    """What all retries have in common: whose key it is."""

    caller: str
    key: str


@dataclass(slots=True)
class Call:
    """One request and what came back. `whole`: the client sent all of it. `last`: asked after the faults were over."""

    operation: Operation
    payload: str
    at: float
    until: float
    kind: Kind
    worker: str = ""
    whole: bool = True
    last: bool = False
    answer: str = ""  # digest of status, kept headers in order, and body
    receipt: str = ""  # of the effect, as the answer names it
    echo: str = ""  # the caller that the answer was made for
    replayed: bool = False
    detail: str = ""


@dataclass(slots=True)
class Effect:
    """One line of the ledger."""

    operation: Operation
    attempt: int
    payload: str
    receipt: str
    at: float
    pid: int = 0


@dataclass(slots=True)
class Attempt:
    """One run of the handler. `end` is None where its process died first, or the run ended first."""

    operation: Operation
    number: int
    start: float
    end: float | None = None
    pid: int = 0


@dataclass(slots=True)
class Fault:
    """Something that was broken on purpose."""

    kind: str
    target: str
    at: float
    pid: int = 0
    operation: Operation | None = None


@dataclass(slots=True)
class Word:
    """Something that a worker, the provider or a janitor said: an event of OnceKey, a sweep, a reconciliation."""

    name: str
    at: float
    operation: Operation | None = None
    detail: str = ""


@dataclass(slots=True)
class History:
    """One run. `ended`: the faults are over and every key was asked once more. `unsettled`: listed as unknown then.

    `brief` are operations that are kept for a moment only: nobody asks for them a second time.
    """

    calls: list[Call] = field(default_factory=list)
    effects: list[Effect] = field(default_factory=list)
    attempts: list[Attempt] = field(default_factory=list)
    faults: list[Fault] = field(default_factory=list)
    words: list[Word] = field(default_factory=list)
    unsettled: set[Operation] = field(default_factory=set)
    brief: set[Operation] = field(default_factory=set)
    shut_for: list[float] = field(default_factory=list)
    ended: bool = False

    def stories(self) -> dict[Operation, Story]:
        """The history, split by operation: each is a register of its own, written once."""
        found: dict[Operation, Story] = {}
        for name in ("calls", "effects", "attempts", "faults", "words"):
            for entry in getattr(self, name):
                if entry.operation is not None:
                    story = found.setdefault(entry.operation, Story(entry.operation, ended=self.ended))
                    getattr(story, name).append(entry)
        for operation in (self.unsettled | self.brief) & found.keys():
            found[operation].excused = True
        return found


@dataclass(slots=True)
class Story:
    """What happened to one operation."""

    operation: Operation
    calls: list[Call] = field(default_factory=list)
    effects: list[Effect] = field(default_factory=list)
    attempts: list[Attempt] = field(default_factory=list)
    faults: list[Fault] = field(default_factory=list)
    words: list[Word] = field(default_factory=list)
    excused: bool = False
    ended: bool = False

    @property
    def finals(self) -> list[Call]:
        """The calls that got the answer of the operation."""
        return [call for call in self.calls if call.kind is Kind.FINAL]

    def told(self) -> list[str]:
        """The whole story in order of time, a line for each entry, for a reader who wants to know why."""
        entries: list[tuple[float, str, Any]] = [(call.at, "call", call) for call in self.calls]
        for name in ("effects", "faults", "words"):
            entries += [(entry.at, name[:-1], entry) for entry in getattr(self, name)]
        entries += [(attempt.start, "attempt", attempt) for attempt in self.attempts]
        entries.sort(key=lambda entry: entry[0])
        start = entries[0][0] if entries else 0.0
        return [f"{at - start:9.3f}  {kind:8} {_fields(entry, start)}" for at, kind, entry in entries]


def _fields(entry: Any, start: float) -> str:
    shown = []
    for name, value in asdict(entry).items():
        if name in {"operation", "at"} or value in ("", None, False):
            continue
        told = f"{value - start:.3f}" if name in {"until", "start", "end"} else value
        shown.append(f"{name}={told}")
    return " ".join(shown)


def lines(history: History) -> list[str]:
    """The history as JSON lines, for whoever wants to judge it with another tool."""
    told = []
    for name in ("calls", "effects", "attempts", "faults", "words"):
        told += [json.dumps({"entry": name[:-1], **asdict(entry)}) for entry in getattr(history, name)]
    return told
