from __future__ import annotations

from pathlib import Path

from tests.client.storm import AWAY_FOR, BIN, CLIENTS, both, drawn

BACK = int(AWAY_FOR / BIN)
DRAWING = Path(__file__).parents[2] / "docs" / "img" / "storm.svg"


def test_clients_do_not_come_back_together() -> None:
    """After an outage the busiest moment has less than a quarter of the requests that naive clients send then."""
    naive, ours = both()
    assert max(ours[BACK:]) * 4 < max(naive[BACK:])
    assert sum(ours[BACK:]) == sum(naive[BACK:]) == CLIENTS


def test_the_drawing_is_that_of_the_simulation() -> None:
    """The page shows what this code does."""
    assert DRAWING.read_text("utf-8") == drawn(both())
