"""Statements that stand in .sql files, by name, with what PostgreSQL and SQLite say in different words filled in.

`:word` is a value, `{word}` is filled in, `-- name: word` begins a statement.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from importlib.resources import files
from typing import Any, NamedTuple

from oncekey.errors import ConfigurationError

_NAME = re.compile(r"(?:[a-z_][a-z0-9_]{0,39}\.)?[a-z_][a-z0-9_]{0,39}")
_HEADER = re.compile(r"^-- name: (\w+)\n", re.MULTILINE)
_WORD = re.compile(r"\{(\w+)\}")
_VALUE = re.compile(r"(?<!:):(\w+)")
_COMMENT = re.compile(r"^--.*\n", re.MULTILINE)


class Sql(NamedTuple):
    """One statement, its values bound at $1, $2 and so on; what comes back is a list of rows."""

    text: str
    values: tuple[Any, ...] = ()


class Statements:
    """The statements of one package for one database: those of statements.sql, and those that make its tables."""

    def __init__(self, package: str, dialect: str, words: Mapping[str, str]) -> None:
        read = _read(package, "statements.sql", words)
        self.known = {name: _numbered(text) for name, text in read.items()}
        self.schema = [Sql(text) for text in _read(package, f"schema_{dialect}.sql", words).values()]

    def ask(self, name: str, values: Mapping[str, Any]) -> Sql:
        """A statement by name, with its values."""
        text, names = self.known[name]
        return Sql(text, tuple(values[name] for name in names))


def checked(table: str, example: str) -> str:
    """The name of a table, if it may stand in SQL as it is."""
    if not isinstance(table, str) or not _NAME.fullmatch(table):
        raise ConfigurationError(
            f"table={table!r} cannot be used: write lower-case letters, digits and _, such as {example!r}, with "
            f"its schema and a dot in front if it is not on the search path"
        )
    return table


def _read(package: str, path: str, words: Mapping[str, str]) -> dict[str, str]:
    _, *parts = _HEADER.split(files(package).joinpath(path).read_text(encoding="utf-8"))
    return {name: _filled(body, words) for name, body in zip(parts[::2], parts[1::2], strict=True)}


def _numbered(text: str) -> tuple[str, tuple[str, ...]]:
    """The statement with numbers for its values, and the names of these in order."""
    names = tuple(dict.fromkeys(_VALUE.findall(text)))
    return _VALUE.sub(lambda found: f"${names.index(found[1]) + 1}", text), names


def _filled(body: str, words: Mapping[str, str]) -> str:
    text = _COMMENT.sub("", body)
    while _WORD.search(text):
        text = _WORD.sub(lambda found: words[found[1]], text)
    return " ".join(text.split())
