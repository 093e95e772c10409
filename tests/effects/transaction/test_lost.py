"""The commit whose answer is lost: looked for before anybody is told anything."""

from __future__ import annotations

from typing import Any

import psycopg
import pytest
from sqlalchemy import NullPool, create_engine, text
from sqlalchemy.exc import DBAPIError

from oncekey import OutcomeUnknown
from oncekey.core.record import State
from tests.effects.transaction.cutting import Cutting, How
from tests.effects.transaction.shop import Shop

PLACE = "POST /orders"
INSERT = "INSERT INTO orders (number) VALUES ('1')"


def order(shop: Shop, given: Any, key: str) -> Any:
    with shop.once.transaction(given, key=key, operation=PLACE) as tx:
        if not tx.replayed:
            tx.connection.execute(INSERT)
            tx.complete("done")
    return tx.value


@pytest.mark.parametrize("how", ["reply", "late"])
def test_a_commit_that_took_place_is_found(shop: Shop, how: How) -> None:
    """Also one that is still on its way when we look: a claim of the same key waits for it, a look would not."""
    key = shop.key()
    with Cutting(shop.url, how) as proxy, psycopg.connect(proxy.url) as connection:
        assert order(shop, connection, key) == "done"
        assert order(shop, lambda: psycopg.connect(shop.url), key) == "done"
    assert shop.orders() == ["1"]
    record = shop.record(key)
    assert record is not None
    assert (record.state, record.attempts) == (State.COMPLETED, 1)


def test_a_commit_that_did_not_take_place_is_said(shop: Shop) -> None:
    """The error comes out, and the same key is run."""
    key = shop.key()
    with Cutting(shop.url, "request") as proxy, psycopg.connect(proxy.url) as connection:
        with pytest.raises(psycopg.OperationalError):
            order(shop, connection, key)
        assert shop.orders() == []
    assert order(shop, lambda: psycopg.connect(shop.url), key) == "done"
    assert shop.orders() == ["1"]


@pytest.mark.parametrize("how", ["reply", "late", "request"])
async def test_the_same_is_true_when_it_is_awaited(shop: Shop, how: How) -> None:
    """All three under asyncio."""
    key = shop.key()
    with Cutting(shop.url, how) as proxy:
        async with await psycopg.AsyncConnection.connect(proxy.url) as connection:
            try:
                async with shop.once.transaction(connection, key=key, operation=PLACE) as tx:
                    await connection.execute(INSERT)
                    tx.complete("done")
            except psycopg.OperationalError:
                assert how == "request"
            else:
                assert how != "request"
    assert shop.orders() == ([] if how == "request" else ["1"])


@pytest.mark.parametrize("how", ["reply", "request"])
def test_through_sqlalchemy(shop: Shop, how: How) -> None:
    """Its own error is recognised, and what opens a connection is given it back."""
    key = shop.key()
    with Cutting(shop.url, how) as proxy:
        place = proxy.url
        engine = create_engine("postgresql+psycopg://", creator=lambda: psycopg.connect(place), poolclass=NullPool)
        try:
            with shop.once.transaction(engine.connect, key=key, operation=PLACE) as tx:
                tx.connection.execute(text(INSERT))
        except DBAPIError:
            assert how == "request"
        else:
            assert how == "reply"
        engine.dispose()
    assert shop.orders() == ([] if how == "request" else ["1"])


def test_where_nobody_can_be_asked_it_is_unknown(shop: Shop) -> None:
    """The error says that the same key finds out."""
    astray = Shop("postgresql://oncekey@127.0.0.1:1/none", store_for=0.1)
    lost = pytest.raises(OutcomeUnknown, match="the same key finds out")
    with Cutting(shop.url, "reply") as proxy, psycopg.connect(proxy.url) as connection, lost:
        order(astray, connection, "key")
    assert order(shop, lambda: psycopg.connect(shop.url), "key") == "done"
    assert shop.orders() == ["1"]
