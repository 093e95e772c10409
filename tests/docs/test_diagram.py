"""The diagram and the table in the docs are those of the code."""

from __future__ import annotations

from oncekey.core.transitions import TABLE
from tests.core.model import Fault
from tests.docs.diagram import PAGE, current, diagram, generated


def test_the_page_shows_the_table_of_the_code() -> None:
    """docs/concepts.md holds what core/transitions.py says, word for word."""
    assert current() == generated(), "run: python -m tests.docs.diagram"


def test_the_diagram_shows_every_row_but_the_operators() -> None:
    """Each row of the table is an arrow, except what an operator may do from anywhere."""
    drawn = {name for line in diagram().splitlines() if "-->" in line for name in line.partition(": ")[2].split(", ")}
    assert set(TABLE) - drawn == {"override_completed", "override_retryable"}


def test_the_page_lists_every_guard_that_was_taken_away() -> None:
    """The page's table of guards is the one that the model search proves."""
    page = PAGE.read_text(encoding="utf-8")
    assert not [fault for fault in Fault if fault is not Fault.NONE and f"| {fault.value} " not in page]
