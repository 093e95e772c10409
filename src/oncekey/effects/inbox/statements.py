"""The statements of the inbox by name, for PostgreSQL and for SQLite.

They stand in statements.sql, with their values as `:name`; where the two differ, the words are here.
"""

from __future__ import annotations

from functools import cache
from typing import Final

from oncekey.effects import sqlfiles
from oncekey.effects.sqlfiles import Sql, Statements
from oncekey.errors import ConfigurationError

TABLE: Final = "oncekey_inbox"
COLUMNS: Final = (
    *(
        "id",
        "consumer",
        "source",
        "message_id",
        "attempts",
        "first_at",
        "last_at",
        "parked_at",
        "requeued_at",
        "reason",
    ),
    *("form", "headers", "body"),
)

_HANDLED = """(
    EXISTS (SELECT 1 FROM {table} WHERE id = :id) OR EXISTS (
        SELECT 1 FROM {table_place} WHERE consumer = :consumer AND source = :source
        AND partition = CAST(:partition AS {small}) AND position >= CAST(:position AS {large})
    )
)"""
_BEGINNING = (
    "INSERT INTO {table_trouble} AS t (id, consumer, source, message_id, attempts, first_at, last_at, reason) "
    "SELECT CAST(:id AS {bytes}), CAST(:consumer AS {text}), CAST(:source AS {text}), CAST(:message_id AS {text}), 1, "
    "{now}, {now}, CAST(:reason AS {text})"
)
_AGAIN = (
    "ON CONFLICT (id) DO UPDATE SET "
    "attempts = t.attempts + CASE WHEN t.parked_at IS NULL THEN 1 ELSE 0 END, last_at = excluded.last_at"
)

DIALECTS: Final[dict[str, dict[str, str]]] = {
    "postgresql": {
        "now": "CAST(floor(date_part('epoch', clock_timestamp()) * 1000) AS int8)",
        "text": "text",
        "bytes": "bytea",
        "small": "int4",
        "large": "int8",
        "skip_locked": "FOR UPDATE SKIP LOCKED",
        "free": "free AS MATERIALIZED (SELECT pg_try_advisory_xact_lock(CAST(:lock AS int8)) AS got)",
        "claim": "WITH {free}, put AS (INSERT INTO {table} (id, expires_at) "
        "SELECT CAST(:id AS bytea), {now} + CAST(:keep_for AS int8) FROM free WHERE got "
        "ON CONFLICT (id) DO NOTHING RETURNING 1) "
        "SELECT got FROM free WHERE NOT got OR EXISTS (SELECT 1 FROM put)",
        "look": "WITH {free} SELECT got, (SELECT position FROM {table_place} "
        "WHERE consumer = :consumer AND source = :source AND partition = :partition) FROM free",
        "begin": f"WITH {{free}}, counted AS ({_BEGINNING} FROM free WHERE got AND NOT {_HANDLED} {_AGAIN} "
        "RETURNING attempts, parked_at) "
        "SELECT got, attempts, parked_at FROM free LEFT JOIN counted ON true",
    },
    "sqlite": {
        "now": "CAST(round((julianday('now') - 2440587.5) * 86400000) AS INTEGER)",
        "text": "TEXT",
        "bytes": "BLOB",
        "small": "INTEGER",
        "large": "INTEGER",
        "skip_locked": "",
        "claim": "INSERT INTO {table} (id, expires_at) VALUES (:id, {now} + :keep_for) "
        "ON CONFLICT (id) DO NOTHING RETURNING 1",
        "look": "SELECT 1, (SELECT position FROM {table_place} "
        "WHERE consumer = :consumer AND source = :source AND partition = :partition)",
        "begin": f"{_BEGINNING} WHERE NOT {_HANDLED} {_AGAIN} RETURNING 1, attempts, parked_at",
    },
}


@cache
def statements(dialect: str, table: str = TABLE) -> Statements:
    """The statements for one database; refused where we know none."""
    if dialect not in DIALECTS:
        raise ConfigurationError(f"the inbox knows PostgreSQL and SQLite, and this connection speaks {dialect}")
    name = checked(table).rpartition(".")[2]
    words = DIALECTS[dialect] | {
        "table": table,
        "table_place": f"{table}_place",
        "table_trouble": f"{table}_trouble",
        "index_expiry": f"{name}_expiry",
        "index_parked": f"{name}_parked",
        "columns": ", ".join(COLUMNS),
    }
    return Statements(__package__, dialect, words)


def checked(table: str) -> str:
    """The name of the table, if it may stand in SQL as it is."""
    return sqlfiles.checked(table, TABLE)


__all__ = ["COLUMNS", "DIALECTS", "TABLE", "Sql", "Statements", "checked", "statements"]
