"""What operators do with an inbox by its store's URL: look, count, run parked messages again, forget them, migrate."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any, Final
from urllib.parse import quote

from oncekey.effects.inbox import parked
from oncekey.effects.inbox.drivers import Once
from oncekey.effects.inbox.parked import Counts, Page
from oncekey.effects.inbox.statements import TABLE, checked
from oncekey.errors import ConfigurationError, MissingExtra, OnceKeyError, SchemaMissing, StoreUnavailable
from oncekey.stores.sqlite import path_of

MIGRATE: Final = "the inbox has no tables yet: run `oncekey inbox migrate`, or call inbox.migrate()"
POSTGRES: Final = ("postgresql", "postgres")


class InboxDesk:
    """The inbox in a database, whoever its consumers are, on connections of its own. For threads."""

    def __init__(self, store: str, *, table: str = TABLE, store_for: float = 10.0) -> None:
        scheme = store.partition(":")[0].lower()
        if scheme not in {"sqlite", *POSTGRES}:
            raise ConfigurationError(
                f"store={scheme}: cannot keep an inbox: it lives beside your own tables, in postgresql:// or sqlite:///"
            )
        opened = _on_postgres if scheme in POSTGRES else _on_sqlite
        self._once = Once(lambda: opened(store, store_for), checked(table), lambda message, given: None)

    def migrate(self) -> None:
        """Make the tables, where they are not there."""
        self._once.together(parked.migrate())

    def count(self) -> Counts:
        """How much there is, of all consumers."""
        return self._once.together(parked.count())

    def parked(self, source: str | None = None, *, after: tuple[int, bytes] | None = None, limit: int = 100) -> Page:
        """A page of the parked messages of all consumers, oldest first."""
        return self._once.together(parked.listing(None, source, after, limit))

    def requeue(self, id_: bytes) -> bool:
        """Let a parked message be run again by its consumer. False: it is not parked."""
        return self._once.together(parked.change("requeue", id_))

    def discard(self, id_: bytes) -> bool:
        """Forget a parked message. False: it is not parked."""
        return self._once.together(parked.change("discard", id_))


@contextmanager
def _on_sqlite(url: str, store_for: float) -> Iterator[sqlite3.Connection]:
    path = path_of(url)
    if not Path(path).exists():
        raise SchemaMissing(f"there is no file {path}: correct the URL, or make it with `oncekey inbox migrate`")
    try:
        opened = sqlite3.connect(f"file:{quote(path)}?mode=rw", uri=True, timeout=store_for, isolation_level=None)
        with closing(opened) as connection:
            yield connection
    except sqlite3.Error as error:
        if "no such table" in str(error):
            raise SchemaMissing(MIGRATE) from error
        raise StoreUnavailable(f"{path} cannot be used just now: {error}") from error


@contextmanager
def _on_postgres(url: str, store_for: float) -> Iterator[Any]:
    try:
        import psycopg  # noqa: PLC0415 - an extra

        from oncekey.stores.postgres import trouble  # noqa: PLC0415 - as above
        from oncekey.stores.postgres.options import read_options  # noqa: PLC0415 - as above
    except ModuleNotFoundError as missing:
        raise MissingExtra("an inbox in postgresql://", "postgres") from missing
    options = read_options(url, store_for)
    try:
        connection = psycopg.connect(options.conninfo, connect_timeout=max(1, round(store_for)))
    except psycopg.Error as error:
        raise trouble.unreachable(error, options) from error
    try:
        with closing(connection):
            yield connection
    except psycopg.Error as error:
        found: OnceKeyError = trouble.translated(error, options)
        raise (SchemaMissing(MIGRATE) if isinstance(found, SchemaMissing) else found) from error
