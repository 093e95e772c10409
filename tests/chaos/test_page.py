from __future__ import annotations

import json

from tests.chaos.backing import NAMES
from tests.chaos.page import FIGURES, PAGE, page
from tests.chaos.report import read


def test_the_page_is_made_from_the_figures() -> None:
    """Nobody writes figures by hand: `make chaos CHAOS_ARGS=--write-docs` writes both files."""
    kept, now = json.loads(FIGURES.read_text()), PAGE.read_text()
    assert page(kept, now) == now
    assert str(kept["reports"][0]["seen"]["operations"])[-3:] in now


def test_only_a_run_that_passed_is_shown() -> None:
    """All stores, no rule broken, no floor missed."""
    reports = [read(each) for each in json.loads(FIGURES.read_text())["reports"]]
    assert [each.store for each in reports] == list(NAMES)
    assert all(each.passed and not each.mutant for each in reports)
