"""The stores under test: where workers reach them, and how they are taken away for a while."""

from __future__ import annotations

import asyncio
import sqlite3
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from oncekey.stores.open import open_store
from tests.infra import PostgresServer, RedisServer, Server

NAMES = ("sqlite", "postgres", "redis")


@dataclass
class Backing:
    """One store. Without a server (SQLite) there is no link to break, and its trouble is a writer that does not end."""

    name: str
    url: str
    server: Server | None = None
    trouble: str = "store killed"

    @property
    def port(self) -> int | None:
        """Where its server listens."""
        return self.server.port if self.server is not None else None

    def through(self, port: int) -> str:
        """Its address behind a link."""
        return self.url.replace(f":{self.port}/", f":{port}/")

    async def suffer(self, seconds: float) -> None:
        """Be away for so long."""
        if self.server is None:
            await asyncio.to_thread(_lock, Path(self.url.removeprefix("sqlite:///")), seconds)
            return
        await asyncio.to_thread(self.server.kill)
        await asyncio.sleep(seconds)
        await asyncio.to_thread(self.server.start)


def _lock(path: Path, seconds: float) -> None:
    """Be another program that writes to the file and does not come to an end."""
    file = sqlite3.connect(path, timeout=30.0, isolation_level=None)
    try:
        file.execute("BEGIN IMMEDIATE")
        time.sleep(seconds)
        file.execute("ROLLBACK")
    finally:
        file.close()


@contextmanager
def backing(name: str, folder: Path) -> Iterator[Backing]:
    """A store of this run's own, migrated."""
    if name == "sqlite":
        found = Backing(name, f"sqlite:///{folder}/oncekey.db", trouble="store locked")
        _migrate(found)
        yield found
        return
    made = PostgresServer() if name == "postgres" else RedisServer(appendonly="yes", appendfsync="always")
    with made as server:
        found = Backing(name, server.url, server)
        _migrate(found)
        yield found


def _migrate(found: Backing) -> None:
    store = open_store(found.url)
    store.migrate()
    store.close()
