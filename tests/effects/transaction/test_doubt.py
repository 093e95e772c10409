"""OutcomeUnknown raised in a transaction: one commit undoes the work and shuts the key, and nobody comes between."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any

import psycopg
import pytest
from sqlalchemy import event
from sqlalchemy.orm import DeclarativeBase, Mapped, mapped_column

from oncekey import NotExecuted, NotGranted, OutcomeUnknown
from oncekey.core.commands import Claim, Settlement
from oncekey.core.keys import scope_of
from oncekey.core.record import Record, State
from oncekey.effects.connections import execute, execute_async, recognised
from oncekey.effects.link import drive
from oncekey.effects.transaction.block import Block
from oncekey.stores.open import open_store
from tests.effects.kinds import ALIAS, ASYNC, SYNC, Kind, named
from tests.effects.transaction.shop import INSERT, Shop

PLACE = "POST /orders"


def doubtful() -> AbstractContextManager[Any, bool]:
    """The error comes out of the block."""
    return pytest.raises(OutcomeUnknown)


class Duplicates:
    """Whoever has the key shut in a step of its own leaves a gap before it: there a duplicate comes."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, come: Callable[[], object]) -> None:
        self.ran: list[object] = []
        shut = Block.shut

        def late(block: Block, note: str) -> Any:
            self.ran.append(come())
            return shut(block, note)

        monkeypatch.setattr(Block, "shut", late)


def coming(shop: Shop, kind: Kind, monkeypatch: pytest.MonkeyPatch) -> Duplicates:
    """A duplicate on a connection of its own."""

    def come() -> str:
        # Of the same library, or, for those that are awaited, of the one below.
        sync = next(one for one in SYNC if one.database == kind.database and one.name in {"psycopg", "sqlite3"})
        with sync.opened(shop.url) as connection, shop.once.transaction(connection, key="k", operation=PLACE):
            execute(connection, INSERT, ("duplicate",))
        return "duplicate"

    return Duplicates(monkeypatch, come)


def unknown(shop: Shop) -> Record:
    record = shop.record("k")
    assert record is not None
    assert (record.state, record.lease_until) == (State.UNKNOWN, None)
    assert "OutcomeUnknown" in record.note
    assert record.due_at is not None
    return record


@pytest.mark.parametrize("kind", SYNC, ids=named)
def test_the_work_is_undone_and_the_key_stays(kind: Kind, shop: Shop, monkeypatch: pytest.MonkeyPatch) -> None:
    """In no moment does the key belong to nobody, and the connection is as good as before."""
    duplicates = coming(shop, kind, monkeypatch)
    with kind.opened(shop.url) as connection:
        with doubtful(), shop.once.transaction(connection, key="k", operation=PLACE):
            execute(connection, INSERT, ("1",))
            raise OutcomeUnknown
        assert (duplicates.ran, shop.orders()) == ([], [])
        unknown(shop)
        with pytest.raises(NotGranted) as refused, shop.once.transaction(connection, key="k", operation=PLACE):
            pass
        assert refused.value.reason == "outcome-unknown"
        with shop.once.transaction(connection, key="another", operation=PLACE):
            execute(connection, INSERT, ("2",))
    assert shop.orders() == ["2"]


@pytest.mark.parametrize("kind", ASYNC, ids=named)
async def test_the_same_when_it_is_awaited(kind: Kind, shop: Shop, monkeypatch: pytest.MonkeyPatch) -> None:
    """Under asyncio."""
    duplicates = coming(shop, kind, monkeypatch)
    async with kind.opened(shop.url) as connection:
        with doubtful():
            async with shop.once.transaction(connection, key="k", operation=PLACE):
                await execute_async(connection, INSERT, ("1",))
                raise OutcomeUnknown
        assert (duplicates.ran, shop.orders()) == ([], [])
        unknown(shop)
        async with shop.once.transaction(connection, key="another", operation=PLACE):
            await execute_async(connection, INSERT, ("2",))
    assert shop.orders() == ["2"]


@pytest.mark.parametrize("kind", SYNC, ids=named)
def test_what_opens_a_connection(kind: Kind, shop: Shop, monkeypatch: pytest.MonkeyPatch) -> None:
    """A decorated function with a connection of its own for each attempt."""
    duplicates = coming(shop, kind, monkeypatch)

    @shop.once.transaction(lambda: kind.opened(shop.url), key="k", operation=PLACE, body=1)
    def buy(connection: Any) -> None:
        execute(connection, INSERT, ("1",))
        raise OutcomeUnknown

    with doubtful():
        buy()
    assert (duplicates.ran, shop.orders()) == ([], [])
    unknown(shop)


@pytest.mark.parametrize("kind", SYNC, ids=named)
def test_a_later_attempt_too(kind: Kind, shop: Shop, monkeypatch: pytest.MonkeyPatch) -> None:
    """One that has taken over the record of an earlier one which had done nothing."""
    duplicates = coming(shop, kind, monkeypatch)
    with kind.opened(shop.url) as connection:
        with shop.once.transaction(connection, key="example", operation=PLACE):
            pass
        example = shop.record("example")
        assert example is not None
        id_ = scope_of("shared", PLACE)[0].record_id("k")
        store = open_store(shop.url)
        store.claim([Claim(id_, b"t" * 16, example.fingerprint, 1000, label=example.label._replace(key="k"))])
        store.settle([Settlement(id_, b"t" * 16, State.FAILED_RETRYABLE, keep_for=10_000_000)])
        store.close()
        with doubtful(), shop.once.transaction(connection, key="k", operation=PLACE) as tx:
            assert tx.attempt == 2
            execute(connection, INSERT, ("1",))
            raise OutcomeUnknown
    assert (duplicates.ran, shop.orders()) == ([], [])
    assert unknown(shop).attempts == 2


@pytest.mark.parametrize("kind", SYNC, ids=named)
def test_where_the_caller_commits(kind: Kind, shop: Shop) -> None:
    """What was written before it stays the caller's, and when the caller has committed the key is shut."""
    with kind.opened(shop.url) as connection:
        outer = recognised(connection)
        drive(outer.begin())
        execute(connection, INSERT, ("before",))
        with doubtful(), shop.once.transaction(connection, key="k", operation=PLACE):
            execute(connection, INSERT, ("1",))
            raise OutcomeUnknown
        drive(outer.commit())
    assert shop.orders() == ["before"]
    unknown(shop)


@pytest.mark.parametrize("kind", SYNC, ids=named)
def test_where_the_transaction_was_ended_before(kind: Kind, shop: Shop) -> None:
    """It can only be shut by itself, as ever."""
    with kind.opened(shop.url) as connection, doubtful(), shop.once.transaction(connection, key="k", operation=PLACE):
        execute(connection, "COMMIT")
        raise OutcomeUnknown
    unknown(shop)


def test_after_a_statement_that_failed(shop: Shop, monkeypatch: pytest.MonkeyPatch) -> None:
    """PostgreSQL lets such a transaction do nothing but go back, and that is what is done."""
    duplicates = coming(shop, next(kind for kind in SYNC if kind.name == "psycopg"), monkeypatch)
    with psycopg.connect(shop.url) as connection:
        with doubtful(), shop.once.transaction(connection, key="k", operation=PLACE):
            try:
                connection.execute("SELECT nothing")
            except psycopg.Error as error:
                raise OutcomeUnknown from error
        assert duplicates.ran == []
    unknown(shop)


class Base(DeclarativeBase):
    """What is mapped."""


class Order(Base):
    """A row of the shop's."""

    __tablename__ = "orders"
    number: Mapped[str] = mapped_column(primary_key=True)


@pytest.mark.parametrize("kind", [kind for kind in SYNC if kind.name == "session"], ids=named)
def test_a_session_writes_nothing_of_what_it_still_holds(kind: Kind, shop: Shop) -> None:
    """Nor does it call its listeners: for it this is a rollback."""
    told: list[str] = []
    with kind.opened(shop.url) as session:
        event.listen(session, "before_commit", lambda _: told.append("commit"))
        event.listen(session, "after_soft_rollback", lambda *_: told.append("rollback"))
        with doubtful(), shop.once.transaction(session, key="k", operation=PLACE):
            session.add(Order(number="flushed"))
            session.flush()
            session.add(Order(number="held"))
            raise OutcomeUnknown
        assert (told, list(session.new), session.in_transaction()) == (["rollback"], [], False)
        session.commit()
    assert shop.orders() == []
    unknown(shop)


@pytest.mark.parametrize("kind", [kind for kind in SYNC if kind.name == "django"], ids=named)
def test_django_forgets_what_was_to_happen_after_the_commit(kind: Kind, shop: Shop) -> None:
    """And an inner block that has failed does not make it roll all of it back."""
    from django.db import transaction

    told: list[str] = []

    def fails() -> None:
        with transaction.atomic(using=ALIAS, savepoint=False):
            raise OutcomeUnknown

    with kind.opened(shop.url) as connection:
        with doubtful(), shop.once.transaction(connection, key="k", operation=PLACE):
            transaction.on_commit(lambda: told.append("sent"), using=ALIAS)
            fails()
        assert (told, connection.in_atomic_block) == ([], False)
    unknown(shop)


def test_what_is_said_otherwise_is_as_ever(shop: Shop) -> None:
    """NotExecuted, and any other error, frees the key."""
    with psycopg.connect(shop.url) as connection:
        for error in (NotExecuted(), ValueError("no")):
            with pytest.raises(type(error)), shop.once.transaction(connection, key="k", operation=PLACE):
                raise error
    assert shop.record("k") is None
