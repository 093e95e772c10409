"""Figures on a terminal, in columns."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from bench.pieces import Note, Piece, Table


def columns(rows: Sequence[Sequence[str]]) -> str:
    """Text in columns: the first to the left, numbers to the right."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    lines = []
    for row in rows:
        cells = [row[0].ljust(widths[0]), *(cell.rjust(width) for cell, width in zip(row[1:], widths[1:], strict=True))]
        lines.append("  ".join(cells).rstrip())
    return "\n".join(lines)


def show(pieces: Iterable[Piece]) -> str:
    """Tables and notes; a chart is for the page."""
    found = []
    for piece in pieces:
        if isinstance(piece, Table):
            found.append(f"{piece.title}\n{columns([piece.head, *piece.rows])}\n")
        elif isinstance(piece, Note):
            found.append(f"{piece.text}\n")
    return "\n".join(found)
