"""The third guarantee: whatever stops an attempt at whichever step of its transaction, it leaves nothing or everything.

Killed processes are in tests/effects/transaction/test_deaths.py; here the process lives on.
"""

from __future__ import annotations

import asyncio
import contextlib
from pathlib import Path
from typing import Any

import pytest

from oncekey.effects.on_psycopg import PsycopgLink
from oncekey.effects.on_sqlite import SqliteLink
from tests.effects.kinds import ASYNC, SYNC, Kind, named
from tests.effects.transaction.shop import Shop

NATIVE = {"psycopg", "sqlite3", "async psycopg", "async sqlite3"}
VERBS = ("begin", "execute", "ask", "commit", "close")


class Stopped(Exception):
    """An ordinary error, on purpose."""


STOPS = (Stopped, asyncio.CancelledError, SystemExit, KeyboardInterrupt)


class Fuse:
    """Raises at a step: before or after something that a connection is told."""

    def __init__(self) -> None:
        self.left = -1
        self.stop: type[BaseException] = Stopped
        self.burnt = False

    def set(self, steps: int, stop: type[BaseException]) -> None:
        self.left, self.stop, self.burnt = steps, stop, False

    def burn(self) -> None:
        self.left -= 1
        if self.left == -1:
            self.burnt = True
            raise self.stop

    def watch(self, kind: type[Any], verb: str, monkeypatch: pytest.MonkeyPatch) -> None:
        method = getattr(kind, verb)

        def watched(*args: Any, **more: Any) -> Any:
            self.burn()
            answer = yield from method(*args, **more)
            self.burn()
            return answer

        monkeypatch.setattr(kind, verb, watched)


@pytest.fixture
def fuse(monkeypatch: pytest.MonkeyPatch) -> Fuse:
    """One that sits in all connections."""
    made = Fuse()
    for kind in (PsycopgLink, SqliteLink):
        for verb in VERBS:
            made.watch(kind, verb, monkeypatch)
    return made


@pytest.fixture
def shop(kind: Kind, request: pytest.FixtureRequest, tmp_path: Path) -> Shop:
    """An empty one, in this kind's database."""
    url = request.getfixturevalue("postgres_url") if kind.database == "postgresql" else f"sqlite:///{tmp_path}/shop.db"
    made = Shop(url)
    made.empty()
    return made


def order(kind: Kind, shop: Shop, key: str, fuse: Fuse) -> None:
    with kind.opened(shop.url) as connection, shop.once.transaction(connection, key=key, operation="order") as tx:
        if not tx.replayed:
            fuse.burn()
            connection.execute(f"INSERT INTO orders (number) VALUES ('{key}')")
            fuse.burn()


async def order_async(kind: Kind, shop: Shop, key: str, fuse: Fuse) -> None:
    async with (
        kind.opened(shop.url) as connection,
        shop.once.transaction(connection, key=key, operation="order") as tx,
    ):
        if not tx.replayed:
            fuse.burn()
            await connection.execute(f"INSERT INTO orders (number) VALUES ('{key}')")
            fuse.burn()


def ordered(kind: Kind, shop: Shop, key: str, fuse: Fuse) -> None:
    """Order, in either colour."""
    if kind.awaited:
        asyncio.run(order_async(kind, shop, key, fuse))
    else:
        order(kind, shop, key, fuse)


@pytest.mark.parametrize("stop", STOPS, ids=lambda stop: stop.__name__)
@pytest.mark.parametrize("kind", [kind for kind in (*SYNC, *ASYNC) if kind.name in NATIVE], ids=named)
def test_no_stop_leaves_half_of_it(kind: Kind, stop: type[BaseException], shop: Shop, fuse: Fuse) -> None:
    """Stopped at each step in turn, there is no order or one; and a retry always ends with one."""
    left: list[int] = []
    while True:
        key = shop.key()
        fuse.set(len(left), stop)
        with contextlib.suppress(stop, asyncio.CancelledError):
            ordered(kind, shop, key, fuse)
        if not fuse.burnt:
            break
        left.append(shop.orders().count(key))
        ordered(kind, shop, key, fuse)
        assert shop.orders().count(key) == 1, f"step {len(left)}"
    assert len(left) > 6
    assert left == sorted(left), "what was committed is not undone"
    assert set(left) == {0, 1}
