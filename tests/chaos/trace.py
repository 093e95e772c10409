"""What a process says of itself, in a file that outlives it: one write for each line."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any


class Trace:
    """One process's file."""

    def __init__(self, path: str) -> None:
        self._file = os.open(path, os.O_CREAT | os.O_APPEND | os.O_WRONLY)

    def note(self, word: str, **fields: Any) -> None:
        """A line; a process that is killed has written it or not."""
        line = {"word": word, "at": time.monotonic(), "pid": os.getpid(), **fields}
        os.write(self._file, json.dumps(line).encode() + b"\n")


def lines(folder: Path) -> Iterator[dict[str, Any]]:
    """What all processes have said, in order of time."""
    found: list[dict[str, Any]] = []
    for path in folder.glob("*.trace"):
        found += [json.loads(line) for line in path.read_text().splitlines()]
    yield from sorted(found, key=lambda line: float(line["at"]))
