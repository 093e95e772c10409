"""The latest requests of all workers, for the start page: one line each in a file that every worker appends to.

A line is one small append, which the kernel keeps whole. Nothing depends on it, so it is not flushed to the disk.
"""

from __future__ import annotations

import json
import os
from contextlib import suppress
from contextvars import ContextVar
from pathlib import Path
from typing import TYPE_CHECKING, Any

from oncekey.engine import events

if TYPE_CHECKING:
    from oncekey.engine.events import Event

# The file starts anew when it has grown to this, and the page looks at no more than its end.
LARGEST = 4 << 20
READ = 32 << 10

# What happened to the request at hand. The engine tells its events in the context of the request that they belong to.
HAPPENED: ContextVar[list[Event] | None] = ContextVar("happened", default=None)

# The first of these that happened names what became of the request.
VERDICTS = {
    events.CREATED: "executed",
    events.RETRIED: "executed again",
    events.REPLAYED: "replayed",
    events.IN_PROGRESS: "in flight",
    events.KEY_MISUSE: "mismatch",
    events.UNKNOWN: "unknown",
    events.REFUSED: "refused",
    events.STORE_ERROR: "store trouble",
}
RAN = {VERDICTS[events.CREATED], VERDICTS[events.RETRIED]}


def note(event: Event) -> None:
    """Note an event of the request at hand. It is a sink: give it to an engine as it is."""
    happened = HAPPENED.get()
    if happened is not None:
        happened.append(event)


def verdict(happened: list[Event], status: int) -> tuple[str, str, bool]:
    """What became of a request: a word, the operation's reference, and whether it was held for the answer."""
    names = {event.name for event in happened}
    word = next((word for name, word in VERDICTS.items() if name in names), "")
    if word in RAN and status >= 400:  # noqa: PLR2004 - errors
        word = "failed"
    if not word:
        word = "no key" if status < 400 else "refused"  # noqa: PLR2004 - errors
    return word, next((event.ref for event in happened if event.ref), ""), events.HELD in names


class Feed:
    """The file, as one worker uses it."""

    def __init__(self, folder: Path) -> None:
        self.path = folder / "requests.jsonl"
        self._file = -1

    def add(self, line: dict[str, Any]) -> None:
        """Append one request; a feed that cannot be written disturbs nobody."""
        with suppress(OSError):
            if self._file < 0:
                self._file = os.open(self.path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
            os.write(self._file, json.dumps(line).encode() + b"\n")
            if os.fstat(self._file).st_size > LARGEST:
                os.ftruncate(self._file, 0)

    def latest(self, most: int) -> list[dict[str, Any]]:
        """The latest requests, the newest first."""
        try:
            with self.path.open("rb") as file:
                size = file.seek(0, os.SEEK_END)
                file.seek(max(0, size - READ))
                lines = file.read().splitlines()[1 if size > READ else 0 :]
        except OSError:
            return []
        found = []
        for line in reversed(lines[-most:]):
            with suppress(ValueError):
                found.append(json.loads(line))
        return found

    def close(self) -> None:
        """Let go of the file."""
        if self._file >= 0:
            os.close(self._file)
            self._file = -1
