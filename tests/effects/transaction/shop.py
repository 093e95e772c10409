"""A database with a table of orders and the records beside it: what the transactions of these tests write to."""

from __future__ import annotations

import sqlite3
import uuid
from collections.abc import Iterator
from contextlib import closing, contextmanager
from typing import Any

import psycopg

from oncekey import SHARED, OnceKey, Policy
from oncekey.core.record import Record, State
from oncekey.stores.open import open_store

TABLE = "CREATE TABLE IF NOT EXISTS orders (number text NOT NULL)"
INSERT = "INSERT INTO orders (number) VALUES ($1)"


def path(url: str) -> str:
    """The file of an sqlite URL."""
    return url.removeprefix("sqlite:///")


class Shop:
    """An installation and its database."""

    def __init__(self, url: str, **policy: Any) -> None:
        self.url = url
        self.once = OnceKey(url, scope=SHARED, policy=Policy(guarantee="transactional", **policy))

    @contextmanager
    def look(self) -> Iterator[Any]:
        """A connection of somebody else."""
        opened: Any = (
            psycopg.connect(self.url, autocommit=True)
            if self.url.startswith("postgresql")
            else sqlite3.connect(path(self.url), isolation_level=None)
        )
        with closing(opened):
            yield opened

    def orders(self) -> list[str]:
        """All orders that were committed."""
        with self.look() as connection:
            return sorted(row[0] for row in connection.execute("SELECT number FROM orders").fetchall())

    def record(self, key: str) -> Record | None:
        """What the store knows of a key."""
        store = open_store(self.url)
        found = [record for record in store.scan(list(State), limit=1000).records if record.label.key == key]
        store.close()
        return found[0] if found else None

    def key(self) -> str:
        """A new one."""
        return uuid.uuid4().hex

    def empty(self) -> None:
        """Tables, and nothing in them."""
        store = open_store(self.url)
        store.migrate()
        store.close()
        records = "oncekey_records" if self.url.startswith("postgresql") else "oncekey_record"
        with self.look() as connection:
            connection.execute(TABLE)
            connection.execute("DELETE FROM orders")
            connection.execute(f"DELETE FROM {records}")
