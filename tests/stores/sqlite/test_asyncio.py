"""The asyncio colour: a cancelled caller breaks nothing, and the loop is never blocked."""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import AsyncIterator
from contextlib import closing
from pathlib import Path

import pytest

from oncekey.core.commands import DONE, Won
from oncekey.core.record import Seen
from oncekey.stores.planned import AsyncPlannedStore
from oncekey.stores.sqlite import open_async
from tests.stores.sqlite.items import claim, completed


@pytest.fixture
async def awaited(path: Path) -> AsyncIterator[AsyncPlannedStore]:
    """An open store."""
    store = open_async(f"sqlite:///{path}", store_for=20.0)
    yield store
    await store.close()


async def test_cancelled_caller_leaves_the_batch_running(awaited: AsyncPlannedStore, path: Path) -> None:
    """A claim whose caller is cancelled while it waits for the file still lands, and the store goes on."""
    await awaited.migrate()
    complaints: list[object] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: complaints.append(context))
    with closing(sqlite3.connect(path, isolation_level=None)) as raw:
        raw.execute("BEGIN IMMEDIATE")
        waiting = asyncio.create_task(awaited.claim([claim("a")]))
        await asyncio.sleep(0)
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting
        raw.execute("ROLLBACK")
    assert await awaited.claim([claim("b")]) == [Won(30_000)]
    [seen] = await awaited.claim([claim("a", "second")])
    assert isinstance(seen, Seen)
    assert await awaited.settle([completed(claim("a"))]) == [DONE]
    assert complaints == []


async def test_loop_runs_on_while_the_file_is_locked(awaited: AsyncPlannedStore, path: Path) -> None:
    """Other tasks run while a claim waits, and replays are answered in the meantime."""
    first = claim("a")
    await awaited.claim([first])
    await awaited.settle([completed(first)])
    with closing(sqlite3.connect(path, isolation_level=None)) as raw:
        raw.execute("BEGIN IMMEDIATE")
        waiting = asyncio.create_task(awaited.claim([claim("b")]))
        await asyncio.sleep(0)
        [seen] = await awaited.claim([claim("a", "second")])
        assert isinstance(seen, Seen)
        assert not waiting.done()
        raw.execute("ROLLBACK")
    assert await waiting == [Won(30_000)]


def test_one_store_outlives_its_loop(path: Path) -> None:
    """A store may be used from one loop after another."""
    store = open_async(f"sqlite:///{path}", store_for=5.0)
    assert asyncio.run(store.claim([claim("a")])) == [Won(30_000)]
    assert isinstance(asyncio.run(store.claim([claim("a", "second")]))[0], Seen)
    asyncio.run(store.close())
