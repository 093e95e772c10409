"""Databases that an inbox may live in, each with a table of shipments: what the handlers of these tests do."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import psycopg

TABLE = "CREATE TABLE IF NOT EXISTS shipment (number TEXT NOT NULL)"


class Place:
    """A database: `connect` is what an inbox takes, `ship` writes, `shipped` counts."""

    def __init__(self, url: str, mark: str) -> None:
        self.url = url
        self._insert = f"INSERT INTO shipment (number) VALUES ({mark})"
        with self.connect() as connection:
            connection.execute(TABLE)
            connection.commit()

    @contextmanager
    def connect(self) -> Iterator[Any]:
        """A new connection, closed in the end."""
        opened: Any = (
            psycopg.connect(self.url) if self.url.startswith("postgresql") else sqlite3.connect(self.url, timeout=10)
        )
        with closing(opened):
            yield opened

    def ship(self, connection: Any, number: str) -> None:
        """The effect."""
        connection.execute(self._insert, (number,))

    def shipped(self) -> list[str]:
        """All effects, in order."""
        with self.connect() as connection:
            return sorted(row[0] for row in connection.execute("SELECT number FROM shipment"))

    def rows(self, sql: str) -> list[tuple[Any, ...]]:
        """What a query gives."""
        with self.connect() as connection:
            return [tuple(row) for row in connection.execute(sql).fetchall()]

    def change(self, sql: str) -> None:
        """Change something behind everybody's back."""
        with self.connect() as connection:
            connection.execute(sql)
            connection.commit()


def sqlite_place(path: Path) -> Place:
    """A file."""
    return Place(str(path), "?")


def postgres_place(url: str) -> Place:
    """A database of a real server, emptied."""
    with psycopg.connect(url) as connection:
        connection.execute("DROP SCHEMA public CASCADE")
        connection.execute("CREATE SCHEMA public")
    return Place(url, "%s")
