"""Every kind of connection that people have: claim, order and outcome together, or nothing."""

from __future__ import annotations

from contextlib import AbstractContextManager
from typing import Any

import pytest

from oncekey import ConfigurationError, NotGranted, TransactionEnded
from oncekey.core.record import Guarantee, State
from oncekey.effects.connections import execute, execute_async, recognised
from oncekey.effects.link import drive
from tests.effects.kinds import ASYNC, SYNC, Kind, named
from tests.effects.transaction.shop import INSERT, Shop

PLACE = "POST /orders"
# Ends the transaction behind our back, whatever the library thinks of it.
ENDS = ["COMMIT", "ROLLBACK"]


def fails() -> AbstractContextManager[Any, bool]:
    """The block's own error comes out of it."""
    return pytest.raises(ValueError, match="no")


def ended() -> AbstractContextManager[Any, bool]:
    """The error says what not to do."""
    return pytest.raises(TransactionEnded, match="Leave the end")


class Asked:
    """One order: how to write it, in both colours, and what to ask for."""

    def __init__(self, shop: Shop) -> None:
        self.shop, self.key = shop, shop.key()

    def on(self, given: Any, key: str | None = None, body: object = "a book") -> Any:
        return self.shop.once.transaction(given, key=key or self.key, operation=PLACE, body=body)


@pytest.mark.parametrize("kind", SYNC, ids=named)
def test_all_or_nothing(kind: Kind, shop: Shop) -> None:
    """A block that fails leaves nothing, one that ends leaves all, and its retry is given what it gave."""
    asked = Asked(shop)
    with kind.opened(shop.url) as connection:
        with fails(), asked.on(connection):
            execute(connection, INSERT, ("1",))
            raise ValueError("no")
        assert (shop.orders(), shop.record(asked.key)) == ([], None)
        for attempt in range(3):
            with asked.on(connection) as tx:
                assert tx.replayed is bool(attempt)
                execute(tx.connection, INSERT, (str(attempt),))  # in a replay this is forgotten
                if not tx.replayed:
                    tx.complete({"id": 7})
            assert tx.value == {"id": 7}
        assert shop.orders() == ["0"]
        with pytest.raises(NotGranted, match="another request"), asked.on(connection, body="a pen"):
            pass
    record = shop.record(asked.key)
    assert record is not None
    assert (record.state, record.guarantee, record.attempts) == (State.COMPLETED, Guarantee.TRANSACTIONAL, 1)


@pytest.mark.parametrize("kind", ASYNC, ids=named)
async def test_all_or_nothing_when_awaited(kind: Kind, shop: Shop) -> None:
    """The same under asyncio."""
    asked = Asked(shop)
    async with kind.opened(shop.url) as connection:
        with fails():
            async with asked.on(connection):
                await execute_async(connection, INSERT, ("1",))
                raise ValueError("no")
        assert (shop.orders(), shop.record(asked.key)) == ([], None)
        for attempt in range(3):
            async with asked.on(connection) as tx:
                assert tx.replayed is bool(attempt)
                await execute_async(tx.connection, INSERT, (str(attempt),))
                if not tx.replayed:
                    tx.complete(b"\0\xff")
            assert tx.value == b"\0\xff"
        assert shop.orders() == ["0"]
        with pytest.raises(NotGranted, match="another request"):
            await asked.on(connection, body="a pen").__aenter__()
    record = shop.record(asked.key)
    assert record is not None
    assert (record.state, record.guarantee, record.attempts) == (State.COMPLETED, Guarantee.TRANSACTIONAL, 1)


@pytest.mark.parametrize("kind", SYNC, ids=named)
def test_what_opens_a_connection(kind: Kind, shop: Shop) -> None:
    """Each attempt gets one of its own, and a decorated function is run once for each key."""

    @shop.once.transaction(lambda: kind.opened(shop.url), key=lambda number: f"order-{number}", operation="buy")
    def buy(connection: Any, number: str) -> dict[str, str]:
        execute(connection, INSERT, (number,))
        return {"bought": number}

    assert [buy("1"), buy("2"), buy("1")] == [{"bought": "1"}, {"bought": "2"}, {"bought": "1"}]
    assert shop.orders() == ["1", "2"]


@pytest.mark.parametrize("kind", ASYNC, ids=named)
async def test_what_opens_a_connection_to_await(kind: Kind, shop: Shop) -> None:
    """The same under asyncio."""

    @shop.once.transaction(lambda: kind.opened(shop.url), key=lambda number: f"order-{number}", operation="buy")
    async def buy(connection: Any, number: str) -> dict[str, str]:
        await execute_async(connection, INSERT, (number,))
        return {"bought": number}

    assert [await buy("1"), await buy("2"), await buy("1")] == [{"bought": "1"}, {"bought": "2"}, {"bought": "1"}]
    assert shop.orders() == ["1", "2"]


@pytest.mark.parametrize("end", ENDS)
@pytest.mark.parametrize("kind", SYNC, ids=named)
def test_an_end_behind_our_back_is_noticed(kind: Kind, shop: Shop, end: str) -> None:
    """What was committed stays, what came after it is undone, and nobody runs it again before somebody has looked."""
    asked = Asked(shop)
    with kind.opened(shop.url) as connection, ended(), asked.on(connection):
        execute(connection, INSERT, ("1",))
        execute(connection, end)
        execute(connection, INSERT, ("2",))
    # Without a transaction Django's sqlite3 commits each statement.
    after = ["2"] if named(kind) == "django-sqlite" else []
    assert shop.orders() == (["1", *after] if end == "COMMIT" else after)
    with kind.opened(shop.url) as connection, pytest.raises(NotGranted) as refused, asked.on(connection):
        pass
    assert refused.value.reason == "outcome-unknown"


@pytest.mark.parametrize("end", ENDS)
@pytest.mark.parametrize("kind", ASYNC, ids=named)
async def test_an_end_behind_our_back_is_noticed_when_awaited(kind: Kind, shop: Shop, end: str) -> None:
    """The same under asyncio."""
    asked = Asked(shop)
    async with kind.opened(shop.url) as connection:
        with ended():
            async with asked.on(connection):
                await execute_async(connection, INSERT, ("1",))
                await execute_async(connection, end)
                await execute_async(connection, INSERT, ("2",))
    assert shop.orders() == (["1"] if end == "COMMIT" else [])
    record = shop.record(asked.key)
    assert record is not None
    assert record.state is State.UNKNOWN


@pytest.mark.parametrize("kind", [kind for kind in SYNC if kind.name in {"session", "core"}], ids=named)
def test_a_session_that_is_committed_is_noticed(kind: Kind, shop: Shop) -> None:
    """SQLAlchemy begins the next transaction by itself, and all would look well."""
    asked = Asked(shop)
    with kind.opened(shop.url) as session, ended(), asked.on(session):
        execute(session, INSERT, ("1",))
        session.commit()
        execute(session, INSERT, ("2",))
    assert shop.orders() == ["1"]
    record = shop.record(asked.key)
    assert record is not None
    assert record.state is State.UNKNOWN


@pytest.mark.parametrize("kind", SYNC, ids=named)
def test_an_open_transaction_is_joined(kind: Kind, shop: Shop) -> None:
    """Then it is the caller's commit that makes it true; a block that fails leaves what was written before it."""
    asked, other = Asked(shop), shop.key()
    with kind.opened(shop.url) as connection:
        outer = recognised(connection)
        drive(outer.begin())
        execute(connection, INSERT, ("before",))
        with asked.on(connection):
            execute(connection, INSERT, ("1",))
        with fails(), asked.on(connection, key=other):
            execute(connection, INSERT, ("2",))
            raise ValueError("no")
        assert shop.orders() == []
        drive(outer.commit())
    assert shop.orders() == ["1", "before"]
    assert shop.record(asked.key) is not None
    assert shop.record(other) is None


@pytest.mark.parametrize("kind", SYNC, ids=named)
def test_two_operations_in_one_transaction(kind: Kind, shop: Shop) -> None:
    """One inside the other: both are kept with the outer one, or neither."""
    asked, inner = Asked(shop), shop.key()
    with kind.opened(shop.url) as connection:
        with fails(), asked.on(connection):
            with asked.on(connection, key=inner):
                execute(connection, INSERT, ("inner",))
            raise ValueError("no")
        assert (shop.orders(), shop.record(inner)) == ([], None)
        with asked.on(connection):
            with asked.on(connection, key=inner):
                execute(connection, INSERT, ("inner",))
            execute(connection, INSERT, ("outer",))
    assert shop.orders() == ["inner", "outer"]


async def test_the_wrong_colour_is_refused(shop: Shop) -> None:
    """The message says how to write it."""
    kinds = {kind.name: kind for kind in (*SYNC, *ASYNC) if kind.database == "postgresql"}
    asked = Asked(shop)
    with kinds["session"].opened(shop.url) as session, pytest.raises(ConfigurationError, match="use it by with"):
        await asked.on(session).__aenter__()
    async with kinds["async session"].opened(shop.url) as session:
        with pytest.raises(ConfigurationError, match="use it by async with"), asked.on(session):
            pass
        with pytest.raises(ConfigurationError, match="use it by async with"), asked.on(lambda: session):
            pass
