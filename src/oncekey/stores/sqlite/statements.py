"""The SQL of this room: statements by name, repeated for as many items as a batch has."""

from __future__ import annotations

import re
import sqlite3
from collections.abc import Iterator
from functools import cache
from pathlib import Path

_HERE = Path(__file__).parent
_NAME = re.compile(r"^-- name: (\w+)\n", re.MULTILINE)
_COMMENT = re.compile(r"^--.*\n?", re.MULTILINE)
_REPEATED = re.compile(r"(\([?, 0-9]*\)|\?), \.\.\.")

# The largest number of items in one statement.
MOST = 64
# Below that, sizes go in steps, so that a connection keeps all prepared statements that it ever needs.
STEP = 8


def _named() -> dict[str, str]:
    _, *parts = _NAME.split((_HERE / "statements.sql").read_text(encoding="utf-8"))
    texts = {name: " ".join(_COMMENT.sub("", sql).split()) for name, sql in zip(parts[::2], parts[1::2], strict=True)}
    return {name: sql.replace("{columns}", texts["columns"]) for name, sql in texts.items()}


STATEMENTS = _named()


@cache
def repeated(name: str, items: int) -> str:
    """The statement with its repeated group written out for so many items."""
    return _REPEATED.sub(lambda group: ", ".join([group[1]] * items), STATEMENTS[name])


def sizes(items: int) -> Iterator[tuple[int, int]]:
    """Cut a batch into (start, size) so that few different sizes ever occur."""
    start = 0
    while start < items:
        left = items - start
        size = MOST if left >= MOST else left - left % STEP or left
        yield start, size
        start += size


def migrations() -> dict[int, tuple[str, list[str]]]:
    """Schema versions, each with its name and its statements, in order."""
    files = sorted((_HERE / "schema").glob("*.sql"))
    return {int(file.stem): (file.stem, list(_split(file.read_text(encoding="utf-8")))) for file in files}


def _split(script: str) -> Iterator[str]:
    statement = ""
    for line in _COMMENT.sub("", script).splitlines(keepends=True):
        statement += line
        if sqlite3.complete_statement(statement):
            yield statement.strip()
            statement = ""
