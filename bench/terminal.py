"""Figures on a terminal, in columns."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any


def columns(rows: Sequence[Sequence[str]]) -> str:
    """Text in columns: the first to the left, numbers to the right."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    lines = []
    for row in rows:
        cells = [row[0].ljust(widths[0]), *(cell.rjust(width) for cell, width in zip(row[1:], widths[1:], strict=True))]
        lines.append("  ".join(cells).rstrip())
    return "\n".join(lines)


def number(value: float | None, unit: str = "") -> str:
    """Three digits are what a bench on a shared machine can say."""
    if value is None:
        return "-"
    digits = 0 if abs(value) >= 100 else 1 if abs(value) >= 10 else 2
    return f"{value:,.{digits}f}{unit}"


HEAD = ("", "wall us", "CPU us", "server us", "x floor's speed", "x floor's CPU")


def setting(found: dict[str, Any]) -> str:
    """One setting with all its candidates."""
    title = f"{found['store']}, {found['phase']}, {found['concurrency']} at once"
    rows = [HEAD]
    for row in found["figures"]:
        if row["broken"]:
            rows.append((row["name"], "broken", "", "", "", ""))
            continue
        cells = [number(row[name]) for name in ("wall", "cpu", "server")]
        rows.append((row["name"], *cells, number(row["speed"], "x"), number(row["work"], "x")))
    broken = "".join(f"\n  {row['name']}: {row['broken']}" for row in found["figures"] if row["broken"])
    return f"{title}\n{columns(rows)}{broken}\n"
