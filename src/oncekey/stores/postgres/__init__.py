"""Records in PostgreSQL: durable once acknowledged, one round trip and one commit for a whole batch."""

from __future__ import annotations

from typing import TYPE_CHECKING

from oncekey.stores.planned import PlannedStore
from oncekey.stores.postgres.options import read_options
from oncekey.stores.postgres.plan import PostgresPlan
from oncekey.stores.postgres.statements import migrations, statements
from oncekey.stores.postgres.wire import PostgresWire
from oncekey.stores.postgres.wire_async import AsyncPostgresWire
from oncekey.stores.posting import PostingStore

if TYPE_CHECKING:
    from oncekey.stores.postgres.options import Options


def open_sync(url: str, *, store_for: float) -> PlannedStore:
    """The store for threads. Nothing is contacted before the first verb."""
    options = read_options(url, store_for)
    return PlannedStore(url, _plan(options), PostgresWire(options, statements(options.table)))


def open_async(url: str, *, store_for: float) -> PostingStore:
    """The store for asyncio. Nothing is contacted before the first verb."""
    options = read_options(url, store_for)
    return PostingStore(url, _plan(options), AsyncPostgresWire(options, statements(options.table)))


def _plan(options: Options) -> PostgresPlan:
    return PostgresPlan(options, statements(options.table), migrations(options.table))
