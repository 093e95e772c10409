"""What else a transaction promises, and what it refuses in a sentence."""

from __future__ import annotations

import contextlib
import sqlite3
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psycopg
import pytest

from oncekey import SHARED, BadKey, ConfigurationError, NotGranted, OnceKey, Policy, SchemaMissing, by_header
from oncekey.core.outcome import Answer
from oncekey.engine.events import Event
from oncekey.engine.sealing import Sealer
from tests.conftest import started
from tests.effects.transaction.shop import TABLE, Shop, path
from tests.stores.postgres.test_pooler import PgBouncer


@pytest.fixture
def file(tmp_path: Path) -> Shop:
    """An installation on a file."""
    shop = Shop(f"sqlite:///{tmp_path}/app.db")
    shop.empty()
    return shop


@contextlib.contextmanager
def opened(shop: Shop, **settings: Any) -> Iterator[sqlite3.Connection]:
    with contextlib.closing(sqlite3.connect(path(shop.url), **settings)) as connection:
        yield connection


def test_a_busy_file_is_in_flight(file: Shop) -> None:
    """SQLite has one writer: who has waited for it as long as the connection says is told to come again."""
    with opened(file) as other, opened(file, timeout=0.02) as connection:
        other.execute("BEGIN IMMEDIATE")
        with pytest.raises(NotGranted) as refused:
            file.once.transaction(connection, key="k", operation="order").__enter__()
        assert (refused.value.reason, refused.value.status, refused.value.after) == ("in-progress", 409, 1)
        other.rollback()
        with file.once.transaction(connection, key="k", operation="order"):
            pass


def test_savepoints_inside_are_the_callers(file: Shop) -> None:
    """A part may be undone."""
    with opened(file) as connection, file.once.transaction(connection, key="k", operation="order"):
        connection.execute("INSERT INTO orders (number) VALUES ('1')")
        connection.execute("SAVEPOINT part")
        connection.execute("INSERT INTO orders (number) VALUES ('2')")
        connection.execute("ROLLBACK TO part")
    assert file.orders() == ["1"]


def test_savepoints_of_postgres_too(shop: Shop) -> None:
    """Whatever the nesting, it is one transaction."""
    with psycopg.connect(shop.url) as connection, shop.once.transaction(connection, key="k", operation="order"):
        with connection.transaction():
            connection.execute("INSERT INTO orders (number) VALUES ('1')")
        with connection.transaction(force_rollback=True):
            connection.execute("INSERT INTO orders (number) VALUES ('2')")
    assert shop.orders() == ["1"]


def test_an_error_that_was_swallowed_commits_nothing(shop: Shop) -> None:
    """PostgreSQL forgets a transaction in which a statement failed: that comes out, and the key is free."""
    failed = pytest.raises(psycopg.errors.InFailedSqlTransaction)
    with psycopg.connect(shop.url) as connection:
        with failed, shop.once.transaction(connection, key="k", operation="order"), contextlib.suppress(psycopg.Error):
            connection.execute("SELECT nothing")
        with shop.once.transaction(connection, key="k", operation="order") as tx:
            assert not tx.replayed


def test_the_commit_is_durable_whatever_the_default(shop: Shop) -> None:
    """An application may run its connections with `synchronous_commit` off; an answer must not be lost."""
    with psycopg.connect(shop.url, options="-c synchronous_commit=off") as connection:
        with shop.once.transaction(connection, key="k", operation="order"):
            assert connection.execute("SHOW synchronous_commit").fetchone() == ("on",)
        assert connection.execute("SHOW synchronous_commit").fetchone() == ("off",)


def test_through_a_pooler_in_transaction_mode(shop: Shop) -> None:
    """No session is needed: neither for the lock nor for knowing the transaction again."""
    with started(lambda: PgBouncer(shop.url)) as bouncer:
        pooled = Shop(bouncer.url)
        with psycopg.connect(bouncer.url, prepare_threshold=None) as one:
            for _ in range(3):
                with pooled.once.transaction(one, key="k", operation="order") as tx:
                    if not tx.replayed:
                        one.execute("INSERT INTO orders (number) VALUES ('1')")
                        with psycopg.connect(bouncer.url, prepare_threshold=None) as two, pytest.raises(NotGranted):
                            pooled.once.transaction(two, key="k", operation="order").__enter__()
    assert shop.orders() == ["1"]


def test_results_are_sealed(file: Shop) -> None:
    """As answers are: encrypted where there are keys, and only the same installation opens them."""
    sealed = OnceKey(file.url, scope=SHARED, sealer=Sealer(None, {"a": b"k" * 32}))
    with opened(file) as connection:
        for _ in range(2):
            with sealed.transaction(connection, key="k", operation="order") as tx:
                if not tx.replayed:
                    tx.complete("a secret")
            assert tx.value == "a secret"
    record = file.record("k")
    assert record is not None
    assert b"secret" not in record.outcome


@pytest.mark.parametrize("value", [None, 1, "ä", [1, {"a": None}], b"", b"\0", Answer(201, ((b"a", b"b"),), b"{}")])
def test_results_come_back_as_they_were(file: Shop, value: object) -> None:
    """What JSON can say, bytes, and answers of HTTP."""
    found = []
    with opened(file) as connection:
        for _ in range(2):
            with file.once.transaction(connection, key="k", operation="order") as tx:
                if not tx.replayed:
                    tx.complete(value)
            found.append(tx.value)
    assert found == [value, value]


def test_sinks_are_told(file: Shop) -> None:
    """As by the engines."""
    told: list[Event] = []
    once = OnceKey(file.url, scope=SHARED, sinks=(told.append,))
    with opened(file) as connection:
        for _ in range(2):
            with once.transaction(connection, key="k", operation="order"):
                pass
    assert [event.name for event in told] == ["created", "completed", "replayed"]


REFUSED: list[tuple[str, Callable[[Shop], Any], str]] = [
    ("store", lambda shop: OnceKey("memory://", scope=SHARED), "in memory:// cannot commit together"),
    ("other database", lambda shop: OnceKey("postgresql://u@h/d", scope=SHARED), "the store is postgresql"),
    ("caller", lambda shop: OnceKey(shop.url, scope=by_header("authorization")), "caller= is missing"),
]


@pytest.mark.parametrize(("make", "says"), [row[1:] for row in REFUSED], ids=[row[0] for row in REFUSED])
def test_what_cannot_work_is_refused(file: Shop, make: Callable[[Shop], OnceKey], says: str) -> None:
    """With what to write instead."""
    with opened(file) as connection, pytest.raises(ConfigurationError, match=says):
        make(file).transaction(connection, key="k", operation="order").__enter__()


def test_more_that_is_refused(file: Shop) -> None:
    """Keys, results, connections and numbers."""
    transaction = file.once.transaction
    with opened(file) as connection:
        with pytest.raises(BadKey):
            transaction(connection, key="a b", operation="order").__enter__()
        with pytest.raises(ConfigurationError, match="key= is a function: that is for a decorator"):
            transaction(connection, key=str, operation="order").__enter__()
        with pytest.raises(ConfigurationError, match="write a whole number"):
            transaction(connection, key="k", operation="order", tries=0)
        with pytest.raises(ConfigurationError, match="is no connection that OnceKey knows"):
            transaction("sqlite:///", key="k", operation="order").__enter__()
        with pytest.raises(ConfigurationError, match="has not begun"):
            _ = transaction(connection, key="k", operation="order").connection
        for value, says in ((object(), "cannot be written as JSON"), (b"a" * 2_000_000, "give less")):
            with pytest.raises(ConfigurationError, match=says), transaction(connection, key="k", operation="o") as tx:
                tx.complete(value)
        function = transaction(connection, key="k", operation="order")(lambda connection, thing: None)
        with pytest.raises(ConfigurationError, match="what the function was called with"):
            function(object())
    assert file.record("k") is None


def test_without_the_table_it_says_what_to_run(file: Shop, shop: Shop, tmp_path: Path) -> None:
    """On both databases."""
    with contextlib.closing(sqlite3.connect(tmp_path / "other.db")) as connection:
        connection.execute(TABLE)
        with pytest.raises(SchemaMissing, match="oncekey migrate"):
            file.once.transaction(connection, key="k", operation="order").__enter__()
        assert not connection.in_transaction
    elsewhere = OnceKey(f"{shop.url}?oncekey_table=elsewhere", scope=SHARED, policy=Policy())
    with psycopg.connect(shop.url) as there:
        with pytest.raises(SchemaMissing, match="no table elsewhere"):
            elsewhere.transaction(there, key="k", operation="order").__enter__()
        assert there.info.transaction_status == psycopg.pq.TransactionStatus.IDLE
