"""The servers that stores need, started for one measurement and thrown away."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import NamedTuple

from tests.infra import PostgresServer, RedisServer


class Served(NamedTuple):
    """Where a store is, and which processes work for it."""

    url: str
    port: int
    pids: Callable[[], list[int]]


@contextlib.contextmanager
def served(store: str) -> Iterator[Served]:
    """Serve one store. Postgres commits to the disk; Redis has no append-only file."""
    if store not in {"redis", "postgres"}:
        yield Served("memory://", 0, list)
        return
    with RedisServer() if store == "redis" else PostgresServer() as server:
        yield Served(server.url, server.port, lambda: [server.pid])
