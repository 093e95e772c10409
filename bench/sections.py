"""What `make bench` measures, as a table. A new section is a module with two functions, and its row here.

    measure(bench) -> figures      does the work; what it returns is written to build/bench.json, so plain JSON values
    show(figures)  -> pieces       pure: tables, notes and charts (bench.pieces), for the terminal and for the page

`bench.progress(share, what)` moves the bar. `bench.quick` asks for a look: seconds instead of minutes.
Targets read a section's figures in bench.targets.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable
from typing import Any, NamedTuple

from bench.pieces import Piece


def quiet(share: float, what: str) -> None:
    """No bar."""


class Bench(NamedTuple):
    """How much is measured."""

    rounds: int = 7
    size: int = 1000
    at: tuple[int, ...] = ()
    names: list[str] | None = None
    quick: bool = False
    progress: Callable[[float, str], None] = quiet


class Section(NamedTuple):
    """`module` is in bench; `weighs` is what it takes in seconds, for the bar; `about` is handed to both functions."""

    name: str
    title: str
    module: str
    weighs: float
    about: tuple[Any, ...] = ()
    asked: bool = False  # only where it is named, or with --full

    def measure(self, bench: Bench) -> dict[str, Any]:
        """Do the work."""
        figures: dict[str, Any] = importlib.import_module(f"bench.{self.module}").measure(bench, *self.about)
        return figures

    def show(self, figures: dict[str, Any]) -> list[Piece]:
        """Say it."""
        pieces: list[Piece] = importlib.import_module(f"bench.{self.module}").show(figures, *self.about)
        return pieces


TABLE = (
    Section("memory", "Requests: memory", "requests", 40, ("memory",)),
    Section("sqlite", "Requests: SQLite", "requests", 90, ("sqlite",)),
    Section("redis", "Requests: Redis", "requests", 120, ("redis",)),
    Section("postgres", "Requests: Postgres", "requests", 120, ("postgres",)),
    Section("claims", "Claim and settle alone", "claims", 40),
    Section("records", "Round trips and bytes", "records", 30),
    Section("growth", "A million records", "growth", 60, (1_000_000,)),
    Section("millions", "Ten million records", "growth", 420, (10_000_000,), asked=True),
    Section("purge", "Purge beside requests", "purge", 120),
    Section("transactions", "Transactional mode", "transactions", 60),
    Section("console", "The console's lists", "unknowns", 60),
    Section("http", "Over HTTP", "over_http", 180),
    Section("parts", "Where the time of a request goes", "parts", 15),
    Section("canonical", "Canonical JSON", "canonical", 10),
    Section("import", "Importing", "imports", 25),
)
BY_NAME = {section.name: section for section in TABLE}
