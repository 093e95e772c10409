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


WIDTH, LEFT, RIGHT, TOP, PANEL, GAP = 720, 50, 10, 34, 120, 34
HEIGHT = TOP + 2 * PANEL + GAP + 44
STYLE = """<style>
text{fill:#222;font:12px sans-serif}.quiet{fill:#666}.axis{stroke:#888}.away{fill:#8883}
.naive{fill:#d9480f}.ours{fill:#1971c2}
@media(prefers-color-scheme:dark){text{fill:#ddd}.quiet{fill:#aaa}.naive{fill:#ff922b}.ours{fill:#4dabf7}}
</style>"""


def text(x: float, y: float, words: str, *, anchor: str = "start", kind: str = "") -> str:
    """A line of text."""
    named = f' class="{kind}"' if kind else ""
    return f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}"{named}>{words}</text>'


def panel(top: float, kind: str, words: str, curve: list[int]) -> list[str]:
    """One curve over the outage. What is taller than 1,000 is cut, and says how tall it is."""
    step, foot = (WIDTH - LEFT - RIGHT) / len(curve), top + PANEL
    back = int(AWAY_FOR / BIN)
    end = LEFT + back * step
    busiest = max(curve[back:])
    parts = [
        f'<rect class="away" x="{LEFT}" y="{top}" width="{end - LEFT:.1f}" height="{PANEL}"/>',
        text(LEFT, top - 8, words),
        text(LEFT - 6, top + 10, f"{CLIENTS:,}", anchor="end", kind="quiet"),
        text(LEFT - 6, foot, "0", anchor="end", kind="quiet"),
        text(end, top - 8, "server away", anchor="end", kind="quiet"),
        text(WIDTH - RIGHT, top + 16, f"busiest quarter of a second afterwards: {busiest:,}", anchor="end"),
    ]
    for number, value in enumerate(curve):
        if value:
            tall, x = max(1.0, min(value, CLIENTS) / CLIENTS * PANEL), LEFT + number * step
            parts.append(
                f'<rect class="{kind}" x="{x:.1f}" y="{foot - tall:.1f}" width="{step - 0.5:.2f}" height="{tall:.1f}"/>'
            )
            if value > CLIENTS:
                parts.append(text(x + step + 2, top + 12, f"{value:,}", kind="quiet"))
    return [*parts, f'<line class="axis" x1="{LEFT}" y1="{foot}" x2="{WIDTH - RIGHT}" y2="{foot}"/>']


def drawn(curves: tuple[list[int], list[int]]) -> str:
    """Both curves as an SVG that is readable on light and on dark."""
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}">',
        "<title>Requests that arrive in each quarter of a second, of naive clients and of ours</title>",
        STYLE,
        *panel(TOP, "naive", "doubling, without jitter", curves[0]),
        *panel(TOP + PANEL + GAP, "ours", "this client: full jitter", curves[1]),
    ]
    foot = TOP + 2 * PANEL + GAP
    for second in range(0, int(SECONDS) + 1, 10):
        x = LEFT + second / SECONDS * (WIDTH - LEFT - RIGHT)
        parts.append(text(x, foot + 16, f"{second} s", anchor="end" if second == SECONDS else "middle"))
    parts.append(text(LEFT, HEIGHT - 8, f"requests in each quarter of a second, {CLIENTS:,} clients", kind="quiet"))
    return "\n".join([*parts, "</svg>"]) + "\n"


if __name__ == "__main__":
    sys.stdout.write(drawn(both()))
