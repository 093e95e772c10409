"""A bar that says how far a run is, for a terminal; a log gets a line per section."""

from __future__ import annotations

import sys
import time
from typing import TextIO

WIDTH = 30


class Progress:
    """Sections weigh as much as they usually take; a section says itself how far it is."""

    def __init__(self, weights: dict[str, float], out: TextIO | None = None) -> None:
        self._weights = weights
        self._out = out or sys.stderr
        self._drawn = self._out.isatty()
        self._began = time.monotonic()
        self._done = 0.0
        self._here = ""

    def begin(self, name: str) -> None:
        """A section begins; the one before it is done."""
        self._done += self._weights.get(self._here, 0.0)
        self._here = name
        if not self._drawn:
            print(f"bench: {self._share(0):3.0%} {name}", file=self._out, flush=True)
        self.at(0, "")

    def at(self, share: float, what: str) -> None:
        """How much of the section is done, from 0 to 1, and what comes now."""
        if not self._drawn:
            return
        whole = self._share(share)
        bar = "#" * round(whole * WIDTH)
        line = f"{bar:.<{WIDTH}} {whole:4.0%} {self._left(whole)} {self._here} {what}"
        print(f"\r\033[K{line[:110]}", end="", file=self._out, flush=True)

    def end(self) -> None:
        """Take the bar away, so that a table can be printed."""
        if self._drawn:
            print("\r\033[K", end="", file=self._out, flush=True)

    def _share(self, share: float) -> float:
        total = sum(self._weights.values())
        return (self._done + share * self._weights.get(self._here, 0.0)) / total if total else 0.0

    def _left(self, whole: float) -> str:
        if whole < 0.02:
            return "     "
        left = (time.monotonic() - self._began) * (1 - whole) / whole
        return f"{int(left // 60):2d}:{int(left % 60):02d}"
