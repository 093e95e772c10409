"""What a section shows, on the terminal and on the page alike: sentences, tables and charts. Values, nothing more."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple


class Note(NamedTuple):
    """A sentence or two."""

    text: str


class Table(NamedTuple):
    """Rows of text below a head; a chart may say the same, so that the page needs no second look."""

    title: str
    head: tuple[str, ...]
    rows: Sequence[tuple[str, ...]]


class Bar(NamedTuple):
    """One bar of a group; `series` decides its colour, `text` stands at its end."""

    series: str
    value: float
    text: str


class Chart(NamedTuple):
    """Groups of bars on one scale from nought; `mark` draws a line at that value. `name` is its file's name."""

    name: str
    title: str
    groups: list[tuple[str, list[Bar]]]
    mark: float | None = None


Piece = Note | Table | Chart


def number(value: float | None, unit: str = "") -> str:
    """Three digits are what a bench on a shared machine can say."""
    if value is None:
        return "-"
    digits = 0 if abs(value) >= 100 else 1 if abs(value) >= 10 else 2
    return f"{value:,.{digits}f}{unit}"
