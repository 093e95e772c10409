"""The arithmetic: what rounds cost, and medians of ratios within a round. Pure."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

from bench.candidates import FLOOR

PHASES = ("first", "replay")


class Figure(NamedTuple):
    """One candidate in one setting: medians in microseconds per request, and of its ratios to the floor.

    `speed` is its throughput by the floor's, `work` its CPU time by the floor's: more and less are better.
    """

    name: str
    wall: float | None
    cpu: float | None
    server: float | None
    speed: float | None
    work: float | None
    broken: str = ""


def turns(names: Sequence[str], rounds: int) -> Iterator[tuple[int, list[str]]]:
    """The order of each round: everybody goes first in turn, so that a slow minute of the machine hits all alike."""
    for number in range(rounds):
        start = number % len(names)
        yield number, [*names[start:], *names[:start]]


def figures(rounds: Sequence[dict[str, dict[str, Any]]], floor: str = FLOOR) -> list[Figure]:
    """From what each candidate answered in each round, its figures; the floor is its own measure."""
    return [_figure(name, rounds, floor) for name in rounds[0]]


def _figure(name: str, rounds: Sequence[dict[str, dict[str, Any]]], floor: str) -> Figure:
    broken = next((each[name]["broken"] for each in rounds if "broken" in each[name]), "")
    if broken:
        return Figure(name, None, None, None, None, None, broken)
    return Figure(
        name,
        _median(rounds, lambda each: each[name]["wall"]),
        _median(rounds, lambda each: each[name]["cpu"]),
        _median(rounds, lambda each: each[name].get("server")),
        _median(rounds, lambda each: _ratio(each[floor].get("wall"), each[name]["wall"])),
        _median(rounds, lambda each: _ratio(each[name]["cpu"], each[floor].get("cpu"))),
    )


def _median(rounds: Sequence[dict[str, Any]], of: Callable[[dict[str, Any]], float | None]) -> float | None:
    found = [value for value in map(of, rounds) if value is not None]
    return statistics.median(found) if found else None


def _ratio(above: float | None, below: float | None) -> float | None:
    return above / below if above is not None and below else None
