"""An outbox in PostgreSQL: one connection that works, and one that listens."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import suppress
from typing import Any, TypeVar

import psycopg

from oncekey.effects.link import drive_async
from oncekey.effects.on_psycopg import PsycopgLink
from oncekey.effects.outbox.blocks import Block, carry_out
from oncekey.effects.outbox.places import MIGRATE
from oncekey.errors import OnceKeyError, SchemaMissing
from oncekey.stores.postgres import trouble
from oncekey.stores.postgres.listen import KEEPALIVE, PostgresListener
from oncekey.stores.postgres.options import read_options

T = TypeVar("T")


class PostgresPlace:
    """A database, by the same URL as a store's."""

    def __init__(self, url: str, table: str, store_for: float) -> None:
        # A listener hears the channel that is named after the table.
        self._options = read_options(url, store_for)._replace(table=table)
        self.shown = self._options.shown
        self._connection: psycopg.AsyncConnection[Any] | None = None
        self._listener: PostgresListener | None = None
        self._told = asyncio.Event()

    async def together(self, make: Callable[[], Block[T]]) -> T:
        try:
            async with asyncio.timeout(self._options.store_for):
                connection = await self._connected()
                return await drive_async(carry_out(make, PsycopgLink(connection), self._options.table))
        except TimeoutError as error:
            await self._drop()
            raise trouble.out_of_time(self._options) from error
        except psycopg.Error as error:
            await self._drop()
            raise self._translated(error) from error
        except BaseException:
            await self._drop()
            raise

    async def news(self, seconds: float) -> None:
        if self._listener is None:
            await self._listen()
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._told.wait()
        self._told.clear()

    async def close(self) -> None:
        await self._drop()
        if self._listener is not None:
            await asyncio.to_thread(self._listener.close)

    async def _listen(self) -> None:
        loop = asyncio.get_running_loop()

        def told(id_: bytes) -> None:
            loop.call_soon_threadsafe(self._told.set)

        # Ours from here on: if we are cancelled while it starts, it is closed with us.
        self._listener = PostgresListener(self._options, told)
        try:
            await asyncio.to_thread(self._listener.start)
        except OnceKeyError:
            self._listener = None
            raise
        # What was committed before we listened has been told to nobody.
        self._told.set()

    async def _connected(self) -> psycopg.AsyncConnection[Any]:
        if self._connection is None or self._connection.closed:
            seconds = max(1, round(self._options.store_for))
            try:
                self._connection = await psycopg.AsyncConnection.connect(
                    self._options.conninfo, connect_timeout=seconds, **KEEPALIVE
                )
            except psycopg.Error as error:
                raise trouble.unreachable(error, self._options) from error
            # The database may prefer another level, in which a claim would not see what was claimed a moment ago.
            await self._connection.set_isolation_level(psycopg.IsolationLevel.READ_COMMITTED)
            # A pooler may give every transaction another connection, which knows nothing of prepared statements.
            self._connection.prepare_threshold = None
        return self._connection

    async def _drop(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            with suppress(Exception):
                await connection.close()

    def _translated(self, error: psycopg.Error) -> OnceKeyError:
        if error.sqlstate == "42P01":
            return SchemaMissing(MIGRATE)
        if error.sqlstate == "42703":
            return SchemaMissing(f"the table {self._options.table} is not of this version")
        return trouble.translated(error, self._options)
