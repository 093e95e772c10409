"""The bench's own arithmetic: turns, medians, ratios, and what counts as broken."""

from __future__ import annotations

from typing import Any

from bench import requests, terminal
from bench.pieces import Note
from bench.rounds import figures, turns


def cost(wall: float, cpu: float) -> dict[str, float]:
    return {"wall": wall, "cpu": cpu}


def test_ratios_are_taken_within_a_round() -> None:
    """A round that the whole machine slowed down does not change a ratio."""
    rounds = [
        {"floor": cost(10, 8), "ours": cost(5, 4)},
        {"floor": cost(1000, 8), "ours": cost(500, 4)},
        {"floor": cost(20, 8), "ours": cost(10, 4)},
    ]
    floor, ours = figures(rounds)
    assert (floor.speed, floor.work) == (1.0, 1.0)
    assert (ours.wall, ours.cpu, ours.speed, ours.work) == (10, 4, 2.0, 0.5)


def test_median_is_not_the_mean() -> None:
    """One slow round does not move a figure."""
    rounds = [{"floor": cost(10, 1), "ours": cost(wall, 1)} for wall in (5, 5, 500)]
    assert figures(rounds)[1].wall == 5


def test_broken_once_is_broken() -> None:
    """A candidate that answered wrongly in one round has no figures at all, and the others keep theirs."""
    rounds: list[dict[str, Any]] = [{"floor": cost(10, 1), "peer": cost(1, 1)}]
    rounds += [{"floor": cost(10, 1), "peer": {"broken": "answered 500"}}]
    floor, peer = figures(rounds)
    assert floor.speed == 1.0
    assert peer.broken == "answered 500"
    assert peer.wall is peer.speed is peer.work is None


def test_without_a_floor_there_are_no_ratios() -> None:
    """If the floor itself is broken, times stand alone."""
    floor, ours = figures([{"floor": {"broken": "it fell"}, "ours": cost(5, 4)}])
    assert floor.broken
    assert (ours.wall, ours.speed, ours.work) == (5, None, None)


def test_everybody_goes_first_in_turn() -> None:
    """The order rotates, and each round has everybody once."""
    orders = [names for _, names in turns(["a", "b", "c"], 4)]
    assert orders == [["a", "b", "c"], ["b", "c", "a"], ["c", "a", "b"], ["a", "b", "c"]]


def test_executing_twice_is_broken() -> None:
    """A first phase executes each key once and a replay none; a bare application executes every time."""
    answer = {"wall": 1.0, "cpu": 1.0, "executions": 10}
    assert requests.checked("oncekey", "first", 10, answer) == answer
    assert "executed 10 of 10" in requests.checked("oncekey", "replay", 10, answer)["broken"]
    assert "executed 10 of 5" in requests.checked("oncekey", "first", 5, answer)["broken"]
    assert requests.checked("no layer", "replay", 10, answer) == answer


def test_table_says_what_is_broken() -> None:
    """Columns line up, and a broken candidate is named with its reason."""
    found = figures([{"floor": cost(1234, 8), "peer": {"broken": "answered 422"}}])
    setting = {"store": "redis", "concurrency": 32, "phase": "first", "figures": [one._asdict() for one in found]}
    pieces = requests.show({"settings": [setting], "same": {"peer": {"same": False}}}, "redis")
    lines = terminal.show(pieces).splitlines()
    assert lines[0] == "redis, first, 32 at once"
    assert lines[1].index("CPU us") + len("CPU us") == lines[2].index("8.00") + len("8.00")
    assert "1,234" in lines[2]
    assert "peer: answered 422" in lines
    assert pieces[-1] == Note("A replay differs from the first answer: peer.")
