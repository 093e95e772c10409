"""The records of an installation, as a caller's connection reaches them: the same table as the store's."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from oncekey.effects.transaction import trouble
from oncekey.errors import ConfigurationError, SchemaMissing
from oncekey.stores.open import open_async_store, open_store

if TYPE_CHECKING:
    from oncekey.effects.link import Link
    from oncekey.stores.contract import AsyncStore, Store
    from oncekey.stores.within import Within


class Records:
    """Where they are, and how to work on them from inside of a transaction."""

    def __init__(self, url: str, store_for: float) -> None:
        self._url = url
        self._store_for = store_for
        self.database, self.table, self._plan = _place(url, store_for)

    def plan(self, link: Link) -> Within:
        """For one attempt on this connection."""
        if link.database != self.database:
            raise ConfigurationError(
                f"the connection is to {link.database} and the store is {self.database}: they commit together only in "
                "one database; name that of the connection as the store"
            )
        return self._plan()

    def store(self) -> Store:
        """A connection of our own to them, under threads."""
        return open_store(self._url, store_for=self._store_for)

    def async_store(self) -> AsyncStore:
        """The same under asyncio."""
        return open_async_store(self._url, store_for=self._store_for)

    def explained(self, error: BaseException) -> BaseException:
        """What to raise instead, where we know what to do about it."""
        if not trouble.missing(error, self.table):
            return error
        found = SchemaMissing(
            f"the database of this connection has no table {self.table}: run `oncekey migrate --store URL`, with the "
            "address of that database; the store of this installation must be the same"
        )
        found.__cause__ = error
        return found


def _place(url: str, store_for: float) -> tuple[str, str, Callable[[], Within]]:
    scheme = url.partition(":")[0].lower()
    if scheme in {"postgresql", "postgres"}:
        from oncekey.stores.postgres.options import read_options  # noqa: PLC0415 - needs psycopg
        from oncekey.stores.postgres.within import PostgresWithin  # noqa: PLC0415 - as above

        table = read_options(url, store_for).table
        return "postgresql", table, lambda: PostgresWithin(table)
    if scheme == "sqlite":
        from oncekey.stores.sqlite.within import SqliteWithin  # noqa: PLC0415 - loaded where it is used

        return "sqlite", "oncekey_record", SqliteWithin
    raise ConfigurationError(
        f"records in {scheme}:// cannot commit together with your own writes: a transaction needs the store in the "
        "database that you write to, postgresql:// or sqlite://"
    )
