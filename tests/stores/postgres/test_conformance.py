"""The shipped suite on PostgreSQL: both colours, directly and as behind a pooler."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, ClassVar

import pytest

from oncekey.stores.open import open_async_store, open_store
from oncekey.testing import StoreConformance
from tests.infra import PostgresServer


class OnPostgres(StoreConformance):
    """A database for all scenarios of a class; `options` are ours, in the URL."""

    options: ClassVar[str] = ""
    url: ClassVar[str] = ""

    @pytest.fixture(autouse=True, scope="class")
    @classmethod
    def database(cls, postgres_server: PostgresServer) -> Iterator[None]:
        """Make the database and its schema."""
        with postgres_server.new_database(f"conformance_{cls.__name__.lower()}") as url:
            cls.url = url + cls.options
            store = open_store(cls.url)
            store.migrate()
            store.close()
            yield

    def open(self) -> Any:
        """Open one more client."""
        return open_store(self.url)


class TestSync(OnPostgres):
    """For threads."""


class TestAsync(OnPostgres):
    """For asyncio."""

    def open(self) -> Any:
        """Open one more client."""
        return open_async_store(self.url)


class TestPooled(OnPostgres):
    """As behind a pooler in transaction mode, in a table with a name of its own."""

    options: ClassVar[str] = "?oncekey_pooler=yes&oncekey_table=public.payments_keys"
