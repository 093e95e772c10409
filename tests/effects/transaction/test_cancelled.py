"""A task that is cancelled in the midst of a transaction gives back what it had opened."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import aiosqlite
import pytest

from tests.effects.transaction.shop import Shop


class Place:
    """Connections to a file that are counted, and that hang once, at one statement."""

    def __init__(self, file: Any, at: str) -> None:
        self.file, self.at = file, at
        self.reached = asyncio.Event()
        self.opened = 0

    @asynccontextmanager
    async def connect(self) -> AsyncIterator[aiosqlite.Connection]:
        self.opened += 1
        async with aiosqlite.connect(self.file, isolation_level=None) as connection:
            plain = connection.cursor

            async def cursor() -> Any:
                made: Any = await plain()
                made.execute = self.hanging(made.execute)
                return made

            connection.cursor = cursor  # type: ignore[method-assign,assignment]
            try:
                yield connection
            finally:
                self.opened -= 1

    def hanging(self, execute: Any) -> Any:
        async def hang(sql: str, *values: Any) -> Any:
            if sql == self.at and not self.reached.is_set():
                self.reached.set()
                await asyncio.Event().wait()
            return await execute(sql, *values)

        return hang


@pytest.mark.parametrize("at", ["BEGIN IMMEDIATE", "COMMIT"])
async def test_who_is_cancelled_gives_the_connection_back(at: str, tmp_path: Any) -> None:
    """At its begin and at its commit: the next one has a connection and a key that is not held."""
    shop, place = Shop(f"sqlite:///{tmp_path}/app.db"), Place(tmp_path / "app.db", at)
    shop.empty()

    async def work() -> None:
        async with shop.once.transaction(place.connect, key="k", operation="POST /orders") as tx:
            if not tx.replayed:
                await tx.connection.execute("INSERT INTO orders (number) VALUES ('1')")

    task = asyncio.create_task(work())
    await place.reached.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert place.opened == 0
    await work()
    assert shop.orders() == ["1"]
