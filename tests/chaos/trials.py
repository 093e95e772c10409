"""Short runs with a bug switched on, which end as soon as a rule is broken; and the table of what caught what."""

from __future__ import annotations

import time
from dataclasses import dataclass, replace
from pathlib import Path
from tempfile import TemporaryDirectory

from rich.console import Console
from rich.table import Table

from tests.chaos.arena import TERMS, Launchers, Plan, run_with
from tests.chaos.checker import broken
from tests.chaos.launching import launcher
from tests.chaos.mutants import MUTANTS

# Long enough for the rarest; most are over in a second or two.
USUAL = Plan("sqlite", 20.0, clients=12, workers=2, stop_when_broken=True)


@dataclass(frozen=True)
class Trial:
    """What became of one."""

    mutant: str
    rules: set[str]
    faults: dict[str, int]
    operations: int
    seconds: float

    @property
    def caught(self) -> set[str]:
        """The rules that caught it, of those that must."""
        return self.rules & MUTANTS[self.mutant].rules


async def trial(name: str, launchers: Launchers, plan: Plan | None = None) -> Trial:
    """Run with this bug, on its own store."""
    plan = plan or replace(USUAL, mutant=name, blows=MUTANTS[name].blows)
    began = time.monotonic()
    history = await run_with(plan, launchers)
    faults = [fault.kind for fault in history.faults]
    rules = {each.rule for each in broken(history, TERMS)}
    counted = {kind: faults.count(kind) for kind in dict.fromkeys(faults)}
    return Trial(name, rules, counted, len(history.calls), time.monotonic() - began)


async def all_of_them() -> list[Trial]:
    """Every mutant, one after another."""
    with TemporaryDirectory(prefix="oncekey-chaos-") as name:
        async with launcher(Path(name)) as usual:
            return [await trial(mutant, Launchers(usual)) for mutant in MUTANTS]


def show(trials: list[Trial], console: Console) -> None:
    """The table; it is the one in docs/chaos.md."""
    table = Table("bug", "faults until then", "requests until then", "seconds", "caught by", title="Seeded bugs")
    for each in trials:
        faults = ", ".join(f"{times}x {kind}" for kind, times in each.faults.items()) or "none"
        caught = ", ".join(sorted(each.caught)) or "[red]nobody"
        table.add_row(each.mutant, faults, str(each.operations), f"{each.seconds:.1f}", caught)
    console.print(table)
