"""The statements of the outbox by name, for PostgreSQL and for SQLite.

They stand in statements.sql, with their values as `:name`; where the two differ, the words are here.
"""

from __future__ import annotations

from functools import cache
from typing import Final

from oncekey.effects import sqlfiles
from oncekey.effects.sqlfiles import Statements
from oncekey.errors import ConfigurationError

TABLE: Final = "oncekey_outbox"
_PENDING = "sent_at IS NULL AND parked_at IS NULL"
_INSERT = (
    "INSERT INTO {table} (id, aggregatetype, aggregateid, type, payload, headers, staged_at, due_at) "
    "VALUES ({id}, :topic, :key, :type, :body, :headers, {now}, {now}) RETURNING 1"
)
_DUE = (
    "SELECT position FROM {table} AS o "
    f"WHERE {_PENDING} AND due_at <= {{now}} AND (aggregateid IS NULL OR NOT EXISTS ("
    "SELECT 1 FROM {table} AS e WHERE e.aggregatetype = o.aggregatetype AND e.aggregateid = o.aggregateid "
    "AND e.position < o.position AND e.sent_at IS NULL AND e.parked_at IS NULL AND e.due_at > {now})) "
    "ORDER BY position LIMIT :most {skip_locked}"
)
_COLUMNS = "CAST({table}.id AS {text}), aggregatetype, payload, headers, aggregateid, type, staged_at, attempts"

DIALECTS: Final[dict[str, dict[str, str]]] = {
    "postgresql": {
        # One instant for a whole statement: a message and the earlier one of its key must be judged at the same time.
        "now": "CAST(floor(date_part('epoch', statement_timestamp()) * 1000) AS int8)",
        "text": "text",
        "small": "int4",
        "id": "CAST(CAST(:id AS text) AS uuid)",
        "ids": "SELECT CAST(value AS uuid) FROM json_array_elements_text(CAST(:ids AS json)) AS value",
        "skip_locked": "FOR UPDATE SKIP LOCKED",
        "wake": "SELECT pg_notify('{channel}', '')",
        "stage": f"WITH put AS ({_INSERT}) SELECT pg_notify('{{channel}}', '') FROM put",
        "take_turn": "SELECT pg_advisory_xact_lock(hashtextextended('{channel}', 7305808869231651))",
        "claim": f"WITH due AS MATERIALIZED ({_DUE}) "
        "UPDATE {table} SET lease = :lease, due_at = {now} + :lease_for FROM due "
        "WHERE {table}.position = due.position RETURNING {columns}",
    },
    "sqlite": {
        "now": "CAST(round((julianday('now') - 2440587.5) * 86400000) AS INTEGER)",
        "text": "TEXT",
        "small": "INTEGER",
        "id": ":id",
        "ids": "SELECT value FROM json_each(:ids)",
        "skip_locked": "",
        "wake": "SELECT 1",
        "stage": _INSERT,
        "take_turn": "SELECT 1",
        "claim": f"UPDATE {{table}} SET lease = :lease, due_at = {{now}} + :lease_for WHERE position IN ({_DUE}) "
        "RETURNING {columns}",
    },
}


@cache
def statements(dialect: str, table: str = TABLE) -> Statements:
    """The statements for one database; refused where we know none."""
    if dialect not in DIALECTS:
        raise ConfigurationError(f"the outbox knows PostgreSQL and SQLite, and this connection speaks {dialect}")
    name = checked(table).rpartition(".")[2]
    words = DIALECTS[dialect] | {
        "table": table,
        "columns": f"{_COLUMNS}, {table}.position",
        "channel": channel(table),
        "index_pending": f"{name}_pending",
        "index_key": f"{name}_key",
        "index_sent": f"{name}_sent",
        "index_parked": f"{name}_parked",
    }
    return Statements(__package__, dialect, words)


def channel(table: str) -> str:
    """Where relays listen: named after the table, as the stores name theirs."""
    return table.replace(".", "/")


def checked(table: str) -> str:
    """The name of the table, if it may stand in SQL as it is."""
    return sqlfiles.checked(table, TABLE)
