"""The statements of this room by name, read from its .sql files and filled in for one table."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from importlib.resources import files
from typing import NamedTuple

from oncekey.core.record import FINAL, FORMAT, IN_PROGRESS, State
from oncekey.core.transitions import SETTLING

# A record as {columns} sends it and plan.seen reads it.
COLUMNS = (
    *("id", "format", "state", "version", "token", "fingerprint", "guarantee", "attempts", "claimed_at", "lease_until"),
    *("due_at", "expires_at", "waited", "scope", "endpoint", "key", "note", "outcome"),
)
# What an operator or a sweeper looks for; the same states as in the partial index of schema/0001.sql.
LISTED = (State.CLAIMED, State.EXECUTING, State.FAILED_RETRYABLE, State.UNKNOWN)
NOW = "floor(date_part('epoch', clock_timestamp()) * 1000)::int8"
_HEADER = re.compile(r"^-- name: (\w+)(?: \((\w+)\))?\n", re.MULTILINE)
_WORD = re.compile(r"\{(\w+)\}")
_COMMENT = re.compile(r"^--.*\n", re.MULTILINE)


class Statement(NamedTuple):
    """One statement, ready to be sent, and what its lane must know of it."""

    name: bytes
    sql: bytes
    prepared: bool = False
    patient: bool = False
    anywhere: bool = False


class Ask(NamedTuple):
    """A statement with its parameters in binary. A list of asks is one round trip and one transaction."""

    statement: Statement
    parameters: tuple[bytes | None, ...] = ()


class Migration(NamedTuple):
    """The statements that bring the schema to a version."""

    version: int
    statements: tuple[Statement, ...]


def statements(table: str) -> dict[str, Statement]:
    """All statements of statements.sql, for this table."""
    return _read("statements.sql", table)


def migrations(table: str) -> list[Migration]:
    """All versions of the schema, oldest first."""
    names = sorted(entry.name for entry in files(__package__).joinpath("schema").iterdir())
    scripts = [name for name in names if name.endswith(".sql")]
    return [Migration(int(name[:4]), tuple(_read(f"schema/{name}", table).values())) for name in scripts]


def texts_of(path: str, table: str) -> dict[str, str]:
    """The statements of another file, for connections that are not our lanes."""
    return {name: statement.sql.decode() for name, statement in _read(path, table).items()}


def _read(path: str, table: str) -> dict[str, Statement]:
    text = files(__package__).joinpath(path).read_text(encoding="utf-8")
    words = _words(table)
    _, *parts = _HEADER.split(text)
    always = "patient" if path.startswith("schema/") else None
    return {
        name: _statement(name, always or mark, body, words)
        for name, mark, body in zip(parts[::3], parts[1::3], parts[2::3], strict=True)
    }


def _statement(name: str, mark: str | None, body: str, words: Mapping[str, str]) -> Statement:
    sql = _WORD.sub(lambda found: words[found[1]], _COMMENT.sub("", body).strip())
    return Statement(
        f"oncekey_{name}".encode(), sql.encode(), mark == "prepared", mark == "patient", mark == "anywhere"
    )


def _words(table: str) -> dict[str, str]:
    schema, dot, name = table.rpartition(".")
    return {
        "table": quoted(table),
        "schema": quoted(f"{schema}{dot}oncekey_schema"),
        "index_open": quoted(f"{name}_open"),
        "index_expiry": quoted(f"{name}_expiry"),
        "index_answer": quoted(f"{name}_answer"),
        "index_unknown": quoted(f"{name}_unknown"),
        "now": NOW,
        "format": str(FORMAT),
        "formats": str(FORMAT),
        "columns": ", ".join(f"r.{column}" for column in COLUMNS),
        "settling": ", ".join(f"({source:d}, {target:d})" for source, target in SETTLING),
        "in_progress": _numbers(IN_PROGRESS),
        "listed": _numbers(LISTED),
        "final": _numbers(FINAL),
    } | {state.name.lower(): str(int(state)) for state in State}


def _numbers(states: Iterable[State]) -> str:
    return ", ".join(str(int(state)) for state in states)


def quoted(name: str) -> str:
    """A table's name as SQL writes it."""
    return ".".join(f'"{part}"' for part in name.split("."))
