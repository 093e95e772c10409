"""What really happened, written down by the applications under test in a file that OnceKey knows nothing of.

A line is `reference event process`. The reference is the first line of a request's body.
"""

from __future__ import annotations

import os
import time
from collections import Counter
from pathlib import Path

# How long a held handler waits for its test at most.
HELD_FOR = 2.0
NAP_FOR = 0.01
FOLDER = "ONCEKEY_TEST_FOLDER"


class Ledger:
    """The file, and the marks by which a test lets a held handler go."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.file = folder / "ledger"

    @classmethod
    def ours(cls) -> Ledger:
        """The ledger of the server in which we run."""
        return cls(Path(os.environ[FOLDER]))

    def note(self, ref: str, event: str) -> None:
        """One event, in one write: several processes do this at once."""
        with self.file.open("ab", buffering=0) as file:
            file.write(f"{ref} {event} {os.getpid()}\n".encode())

    def lines(self) -> list[list[str]]:
        return [line.split() for line in self.file.read_text().splitlines()] if self.file.exists() else []

    def count(self, ref: str, event: str = "effect") -> int:
        return sum(line[:2] == [ref, event] for line in self.lines())

    def doubled(self) -> list[str]:
        """References with more than one effect."""
        effects = Counter(line[0] for line in self.lines() if line[1] == "effect")
        return [ref for ref, times in effects.items() if times > 1]

    def until(self, ref: str, event: str = "effect", times: int = 1) -> None:
        """Wait for an event in another process."""
        deadline = time.monotonic() + 10
        while self.count(ref, event) < times:
            assert time.monotonic() < deadline, f"no {event} of {ref} in {self.lines()}"
            time.sleep(NAP_FOR)

    def release(self, ref: str) -> None:
        """Let a held handler go."""
        self._mark(ref).touch()

    def released(self, ref: str) -> bool:
        return self._mark(ref).exists()

    def _mark(self, ref: str) -> Path:
        return self.folder / f"go-{ref}"
