"""Orders in processes that kill themselves, each one step later: `child.py URL`.

A step is before or after each thing that a connection is told. Printed is, for each, how many orders stand when the
process is dead, and when a retry has ended.
"""

from __future__ import annotations

import json
import os
import signal
import sqlite3
import sys
from contextlib import closing
from typing import Any

import psycopg

from oncekey.effects.on_psycopg import PsycopgLink
from oncekey.effects.on_sqlite import SqliteLink
from tests.effects.transaction.shop import Shop, path


class Fuse:
    """Kills the process at a step."""

    def __init__(self, steps: int) -> None:
        self.left = steps

    def burn(self) -> None:
        self.left -= 1
        if self.left < 0:
            os.kill(os.getpid(), signal.SIGKILL)

    def watch(self, kind: type[Any], name: str) -> None:
        """Count before and after this method."""
        method = getattr(kind, name)

        def watched(*args: Any, **more: Any) -> Any:
            self.burn()
            answer = yield from method(*args, **more)
            self.burn()
            return answer

        setattr(kind, name, watched)


def opened(url: str) -> Any:
    return psycopg.connect(url) if url.startswith("postgresql") else closing(sqlite3.connect(path(url)))


def order(shop: Shop, key: str) -> None:
    with shop.once.transaction(lambda: opened(shop.url), key=key, operation="order") as tx:
        if not tx.replayed:
            tx.connection.execute(f"INSERT INTO orders (number) VALUES ('{key}')")


def killed(shop: Shop, key: str, steps: int) -> bool:
    """Order in a process that dies at this step. False: it came through."""
    child = os.fork()
    if child == 0:
        fuse = Fuse(steps)
        for kind in (PsycopgLink, SqliteLink):
            for name in ("begin", "execute", "ask", "close", "commit"):
                fuse.watch(kind, name)
        order(shop, key)
        os._exit(0)
    return os.WIFSIGNALED(os.waitpid(child, 0)[1])


def main(url: str) -> None:
    shop, died = Shop(url), True
    found: list[tuple[int, int]] = []
    while died:
        key = shop.key()
        died = killed(shop, key, len(found))
        dead = shop.orders().count(key)
        order(shop, key)
        found.append((dead, shop.orders().count(key)))
    sys.stdout.write(json.dumps(found))


if __name__ == "__main__":
    main(sys.argv[1])
