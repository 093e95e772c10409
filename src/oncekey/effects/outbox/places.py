"""Where an outbox is kept, as its relay sees it: connections of its own, by the store's URL, and news of commits.

A block runs in one short transaction. Nothing is held while a broker is waited for: what a relay has taken is leased.
"""

from __future__ import annotations

import asyncio
import importlib
import sqlite3
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import Any, Final, Protocol, TypeVar, cast
from urllib.parse import quote

from oncekey.effects import on_sqlite
from oncekey.effects.link import drive
from oncekey.effects.outbox.blocks import Block, carry_out
from oncekey.effects.outbox.statements import checked
from oncekey.errors import ConfigurationError, MissingExtra, SchemaMissing, StoreUnavailable
from oncekey.stores.sqlite import path_of

T = TypeVar("T")

# SQLite: how often the relay looks whether anybody has committed. It reads a number in shared memory, not the file.
LOOK_EVERY: Final = 0.05
MIGRATE: Final = "the outbox has no table yet: run `oncekey outbox migrate`, or call outbox.migrate(connection)"


class Place(Protocol):
    """A database with an outbox in it."""

    shown: str

    async def together(self, make: Callable[[], Block[T]]) -> T:
        """Run a block in a transaction of its own. StoreUnavailable: the next call tries with a new connection."""
        ...

    async def news(self, seconds: float) -> None:
        """Return when something was committed, or the time is over; it may also return for nothing."""
        ...

    async def close(self) -> None:
        """Let go of the connections."""
        ...


class SqlitePlace:
    """A file, in one thread of its own."""

    def __init__(self, url: str, table: str, store_for: float) -> None:
        self.shown = url
        self._path = path_of(url)
        self._table = table
        self._store_for = store_for
        self._thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix="oncekey-outbox")
        self._connection: sqlite3.Connection | None = None
        self._seen = 0

    async def together(self, make: Callable[[], Block[T]]) -> T:
        return await self._in_thread(lambda: self._together(make))

    async def news(self, seconds: float) -> None:
        deadline = asyncio.get_running_loop().time() + seconds
        while not await self._in_thread(self._changed):
            if asyncio.get_running_loop().time() > deadline:
                return
            await asyncio.sleep(LOOK_EVERY)

    async def close(self) -> None:
        if self._connection is not None:
            await self._in_thread(self._connection.close)
        self._thread.shutdown()

    async def _in_thread(self, work: Callable[[], T]) -> T:
        running = asyncio.get_running_loop().run_in_executor(self._thread, work)
        try:
            return await asyncio.shield(running)
        except asyncio.CancelledError:
            # A transaction that has begun ends before anybody goes on: it is short.
            with suppress(Exception):
                await running
            raise

    def _together(self, make: Callable[[], Block[T]]) -> T:
        try:
            return drive(carry_out(make, on_sqlite.SqliteLink(self._open(), awaited=False), self._table))
        except sqlite3.OperationalError as error:
            if f"no such table: {self._table}" in str(error):
                raise SchemaMissing(MIGRATE) from error
            if "no such column" in str(error):
                raise SchemaMissing(f"the table {self._table} is not of this version ({error})") from error
            raise StoreUnavailable(f"{self._path} cannot be used just now: {error}") from error

    def _open(self) -> sqlite3.Connection:
        if self._connection is None:
            if not Path(self._path).exists():
                raise SchemaMissing(
                    f"there is no file {self._path}: correct the URL, or make it with `oncekey outbox migrate`"
                )
            self._connection = sqlite3.connect(
                f"file:{quote(self._path)}?mode=rw", uri=True, timeout=self._store_for, isolation_level=None
            )
        return self._connection

    def _changed(self) -> bool:
        (now,) = self._open().execute("PRAGMA data_version").fetchone()
        before, self._seen = self._seen, now
        return bool(before != now)


SCHEMES: Final = {
    "sqlite": (__name__, "SqlitePlace"),
    "postgresql": ("oncekey.effects.outbox.place_postgres", "PostgresPlace"),
    "postgres": ("oncekey.effects.outbox.place_postgres", "PostgresPlace"),
}


def place_of(url: str, table: str, store_for: float) -> Place:
    """The place that a URL names. Nothing is contacted yet."""
    scheme = url.partition(":")[0].lower()
    if scheme not in SCHEMES:
        what = f"store={scheme + ':'!r}" if ":" in url else "the text given as store="
        raise ConfigurationError(
            f"{what} cannot keep an outbox: it lives beside your own tables, in postgresql:// or sqlite:///"
        )
    module, name = SCHEMES[scheme]
    try:
        made: Any = getattr(importlib.import_module(module), name)
    except ModuleNotFoundError as missing:
        if (missing.name or "").startswith("oncekey"):
            raise
        raise MissingExtra(f"an outbox in {scheme}://", "postgres") from missing
    return cast("Place", made(url, checked(table), store_for))
