"""Samples as what a page draws: a path for each figure, and how much happened lately. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import NamedTuple

from oncekey.console.rates import ALL, EACH, FIGURES, KEPT, MORE, Figure, Sample

WIDTH, HEIGHT = KEPT - 1, 48
# Bars of a quarter of a minute: shorter ones would be specks, longer ones would hide a burst.
BAR = 3
BARS = WIDTH // BAR
MINUTE = 60 // EACH


class Chart(NamedTuple):
    """One figure: how often in the last minute, in the time that is drawn and in all, and its bars."""

    figure: Figure
    minute: int
    window: int
    total: int
    peak: int
    path: str
    bars: tuple[int, ...]

    @property
    def minutes(self) -> list[int]:
        """The same minute by minute, the oldest first."""
        each = MINUTE // BAR
        return [sum(self.bars[at : at + each]) for at in range(0, BARS, each)]


def charts(samples: Sequence[Sample]) -> list[Chart]:
    """A chart for each of FIGURES; none while there is no sample."""
    if not samples:
        return []
    return [_chart(figure, place, samples) for place, figure in enumerate(FIGURES)]


def totals(samples: Sequence[Sample]) -> list[tuple[Figure, int]]:
    """The figures without a chart."""
    return [(figure, samples[-1].totals[ALL.index(figure)]) for figure in MORE] if samples else []


def _chart(figure: Figure, place: int, samples: Sequence[Sample]) -> Chart:
    now = samples[-1].at
    moved = [0] * WIDTH
    for before, after in pairwise(samples):
        # What began again from nothing, after a restart, has counted as much as it shows.
        step = after.totals[place] - before.totals[place]
        moved[WIDTH - 1 - (now - after.at)] += step if step >= 0 else after.totals[place]
    bars = tuple(sum(moved[at : at + BAR]) for at in range(0, WIDTH, BAR))
    peak = max(bars)
    return Chart(figure, sum(moved[-MINUTE:]), sum(moved), samples[-1].totals[place], peak, _path(bars, peak), bars)


def _path(bars: Sequence[int], peak: int) -> str:
    """One path with a box for each bar that is not empty; the smallest can still be seen."""
    parts = []
    for place, count in enumerate(bars):
        if count:
            high = max(2.0, HEIGHT * count / peak)
            parts.append(f"M{place * BAR + 0.3:.1f} {HEIGHT}v{-high:.1f}h{BAR - 0.6:.1f}v{high:.1f}z")
    return "".join(parts)
