"""A thousand clients and a server that is away for ten seconds: and when their requests arrive.

python -m tests.client.storm > docs/img/storm.svg
"""

from __future__ import annotations

import heapq
import random
import sys
from collections.abc import Callable, Iterator
from itertools import count

from oncekey.client import Retries
from oncekey.client.machine import Attempts, Sent, Wait

CLIENTS, AWAY_FOR, SECONDS, BIN = 1_000, 10.0, 40.0, 0.25
Waits = Callable[[], Iterator[float]]


def naive() -> Iterator[float]:
    """Exponential back-off as it is often written: 0.5 s, then twice as long each time."""
    return (min(20.0, 0.5 * 2.0**number) for number in count())


def ours(chance: random.Random) -> Iterator[float]:
    """What the machine of this package waits."""
    attempts = Attempts(Retries(attempts=None, budget=None), chance=chance.random)
    while True:
        attempts.next(0.0)
        step = attempts.failed(Sent.NO, 0.0)
        assert isinstance(step, Wait)
        yield step.seconds


def arrivals(waits: Waits) -> list[int]:
    """How many requests arrive in each quarter of a second. All clients are cut off within the first tenth."""
    chance = random.Random(4)
    due = [(chance.random() * 0.1, number, waits()) for number in range(CLIENTS)]
    heapq.heapify(due)
    found = [0] * int(SECONDS / BIN)
    while due:
        at, number, rest = heapq.heappop(due)
        if at < SECONDS:
            found[int(at / BIN)] += 1
            if at < AWAY_FOR:
                heapq.heappush(due, (at + next(rest), number, rest))
    return found


def both() -> tuple[list[int], list[int]]:
    """The naive curve, and ours."""
    chance = random.Random(5)
    return arrivals(naive), arrivals(lambda: ours(chance))


WIDTH, HEIGHT, LEFT, TOP = 720, 300, 50, 40
STYLE = """<style>
text{fill:#222;font:12px sans-serif}.axis{stroke:#888}.away{fill:#8883}.naive{fill:#d9480f}.ours{fill:#1971c2}
@media(prefers-color-scheme:dark){text{fill:#ddd}.naive{fill:#ff922b}.ours{fill:#4dabf7}}
</style>"""


def drawn(curves: tuple[list[int], list[int]]) -> str:
    """Both curves as an SVG that is readable on light and on dark."""
    tallest = max(max(curve) for curve in curves)
    step = (WIDTH - LEFT - 10) / len(curves[0])
    high = HEIGHT - TOP - 40
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}">',
        "<title>Requests that arrive in each quarter of a second</title>",
        STYLE,
        f'<rect class="away" x="{LEFT}" y="{TOP}" width="{AWAY_FOR / BIN * step:.1f}" height="{high}"/>',
        f'<text x="{LEFT + 6}" y="{TOP + 16}">server away</text>',
    ]
    for name, curve, shift in (("naive", curves[0], 0.0), ("ours", curves[1], 0.5)):
        for number, value in enumerate(curve):
            if value:
                tall = max(1.0, value / tallest * high)
                x, y = LEFT + (number + shift) * step, TOP + high - tall
                parts.append(
                    f'<rect class="{name}" x="{x:.1f}" y="{y:.1f}" width="{step / 2:.2f}" height="{tall:.1f}"/>'
                )
    parts.append(f'<line class="axis" x1="{LEFT}" y1="{TOP + high}" x2="{WIDTH - 10}" y2="{TOP + high}"/>')
    for second in range(0, int(SECONDS) + 1, 10):
        x, anchor = LEFT + second / BIN * step, "end" if second == SECONDS else "middle"
        parts.append(f'<text x="{x:.1f}" y="{TOP + high + 16}" text-anchor="{anchor}">{second} s</text>')
    parts.append(f'<text x="{LEFT - 6}" y="{TOP + 10}" text-anchor="end">{tallest}</text>')
    for number, (name, words) in enumerate((("naive", "doubling, without jitter"), ("ours", "full jitter"))):
        x = LEFT + number * 200
        parts.append(
            f'<rect class="{name}" x="{x}" y="14" width="12" height="12"/><text x="{x + 18}" y="24">{words}</text>'
        )
    parts.append(
        f'<text x="{LEFT}" y="{HEIGHT - 6}">requests per quarter of a second, {CLIENTS:,} clients</text></svg>'
    )
    return "\n".join(parts) + "\n"


if __name__ == "__main__":
    sys.stdout.write(drawn(both()))
