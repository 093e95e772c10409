"""What a run found, as values that can be added up, and as a table for a person."""

from __future__ import annotations

import statistics
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields
from typing import Any

from rich.console import Console
from rich.table import Table

from tests.chaos.checker import FIGURES, Terms, Verdict, figures, judge
from tests.chaos.history import History, Kind, Story
from tests.chaos.rarities import End, counted, unknowns

# Keys whose whole story is told, for each rule that they broke.
TOLD_FOR_EACH_RULE = 2
SHUT = "shut after kill -9, s (median/p99)"
# Not the checker's business, but the reader's.
NOT_FAULTS = ("operations", "keys", "effects", "faults of processes and stores", "faults of connections")


@dataclass
class Report:
    """One store's run."""

    store: str
    seconds: float
    seed: int
    mutant: str
    figures: dict[str, int]
    seen: dict[str, int]
    kinds: dict[str, int]
    void: list[str]
    shut_for: list[float]
    unsettled: int
    unknowns: dict[str, int] = field(default_factory=dict)
    stories: dict[str, list[str]] = field(default_factory=dict)

    @property
    def passed(self) -> bool:
        """Nothing broken, and enough happened."""
        return not self.void and not any(self.figures.values())

    def told(self) -> dict[str, Any]:
        """As JSON has it."""
        return asdict(self) | {"passed": self.passed}


def report(history: History, terms: Terms, *, store: str, seconds: float, seed: int, mutant: str = "") -> Report:
    """Judge a history and put it into figures."""
    verdict = judge(history, terms)
    return Report(
        store,
        seconds,
        seed,
        mutant,
        figures(verdict.broken),
        dict(sorted(counted(history).items())),
        dict(Counter(call.kind.value for call in history.calls)),
        verdict.void,
        sorted(history.shut_for),
        len(history.unsettled),
        dict(sorted(unknowns(history).items())),
        _stories(verdict, history),
    )


def read(told: Mapping[str, Any]) -> Report:
    """A report that was told."""
    names = {spec.name for spec in fields(Report)}
    return Report(**{"mutant": "", **{name: value for name, value in told.items() if name in names}})


def _stories(verdict: Verdict, history: History) -> dict[str, list[str]]:
    told: dict[str, list[str]] = {}
    times: Counter[str] = Counter()
    stories: dict[Any, Story] = history.stories() if verdict.broken else {}
    for rule, operation, why in verdict.broken:
        times[rule] += 1
        if times[rule] <= TOLD_FOR_EACH_RULE:
            told[f"{rule}, {operation.caller}, key {operation.key}: {why}"] = stories[operation].told()
    return told


def bound(reports: Sequence[Report]) -> str:
    """What zero failures say, and no more."""
    operations = sum(each.seen.get("operations", 0) for each in reports)
    if not operations or not all(each.passed for each in reports):
        return ""
    return (
        f"No rule was broken in {operations:,} operations: with 95 % confidence fewer than {300 / operations:.2g} % of "
        "them break one under these faults, and this run says no more than that."
    )


def shut(times: list[float]) -> str:
    """Median and 99th percentile of how long keys stayed shut."""
    if not times:
        return "-"
    most = times[min(len(times) - 1, int(len(times) * 0.99))]
    return f"{statistics.median(times):.1f} / {most:.1f}"


def show(reports: list[Report], console: Console) -> None:
    """The table, and below it whatever is wrong."""
    table = Table(title="OnceKey under faults", title_justify="left")
    table.add_column("", no_wrap=True, ratio=1)
    for each in reports:
        table.add_column(each.store, justify="right", no_wrap=True, min_width=11)
    for name, *cells in rows(reports):
        table.add_row(name, *cells, end_section=name in {NOT_FAULTS[-1], FIGURES[-1], SHUT})
    console.print(table)
    console.print(bound(reports), highlight=False)
    for each in reports:
        for line in each.void:
            console.print(f"[yellow]{each.store}: void: {line}")
        for title, story in each.stories.items():
            console.print(f"\n[red]{each.store}: {title}", highlight=False)
            for line in story:
                console.print(f"  {line}", highlight=False, markup=False, soft_wrap=True)


def rows(reports: Sequence[Report]) -> list[tuple[str, ...]]:
    """The lines of the table."""
    told: list[tuple[str, ...]] = [(name, *(f"{each.seen.get(name, 0):,}" for each in reports)) for name in NOT_FAULTS]
    told += [(figure, *(str(each.figures[figure]) for each in reports)) for figure in FIGURES]
    told += [(f"unknown: {end}", *(f"{each.unknowns.get(end, 0):,}" for each in reports)) for end in End]
    told.append((SHUT, *(shut(each.shut_for) for each in reports)))
    others = sorted({name for each in reports for name in each.seen} - set(NOT_FAULTS))
    others.sort(key=lambda name: not name.startswith("fault"))
    told += [(name, *(f"{each.seen.get(name, 0):,}" for each in reports)) for name in others]
    kinds = [kind.value for kind in Kind]
    told += [(f"answered: {kind}", *(f"{each.kinds.get(kind, 0):,}" for each in reports)) for kind in kinds]
    return told
