"""The console on each store, and what its lists cost where very many records lie."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

import pytest

from oncekey import OnceKey, by_header
from oncekey.core.commands import Page
from oncekey.core.record import State
from oncekey.operations import history
from oncekey.stores.memory import MemoryStore
from oncekey.stores.open import open_store
from tests.console.kit import TOKEN, Visitor, let_in, words
from tests.operations.filled import claim, fill, settle

SERVERS = ["postgres_url", "redis_url"]


@pytest.mark.parametrize("name", ["sqlite", *SERVERS])
async def test_it_works_on_each_store(name: str, tmp_path: Any, request: pytest.FixtureRequest) -> None:
    """Given an address, it opens the store for threads: lists, one operation, and a decision."""
    url = f"sqlite:///{tmp_path}/oncekey.db" if name == "sqlite" else request.getfixturevalue(name)
    store = open_store(url)
    await asyncio.to_thread(store.migrate)
    made = await asyncio.to_thread(fill, store)
    alice = await let_in(url)
    for place in ("", "operations", "operations?state=all", "unknown", "dead-letters", "health"):
        assert (await alice.get(place)).status_code == 200
    id_ = made["unknown"].id
    assert id_.hex() in (await alice.get("unknown")).text
    answer = await alice.decide(id_, "retryable", sure="1", why="void", step="do")
    seen = await asyncio.to_thread(store.get, id_)
    assert seen is not None
    assert (answer.status_code, seen.record.state, history(seen.record)[0].by) == (303, State.FAILED_RETRYABLE, "Alice")
    await alice.console.aclose()
    await asyncio.to_thread(store.close)


async def test_an_installation_gives_its_own_console() -> None:
    """`once.console()` looks at the very records of the installation, in memory too."""
    once = OnceKey("memory://", scope=by_header("Authorization"))
    one = claim(once.async_engine.store.sync, "k")  # type: ignore[attr-defined]
    visitor = Visitor(once.console(token=TOKEN))
    await visitor.sign_in()
    assert one.id.hex() in (await visitor.get("operations")).text
    await once.aclose()


class Counted(MemoryStore):
    """A store that counts what is asked of it."""

    def __init__(self) -> None:
        super().__init__()
        self.asked: list[tuple[str, int]] = []

    def scan(self, states: Sequence[State], **more: Any) -> Page:
        self.asked.append(("scan", more.get("limit", 100)))
        return super().scan(states, **more)

    def stats(self) -> dict[str, int | str]:
        self.asked.append(("stats", 0))
        return super().stats()


@pytest.mark.parametrize("place", ["unknown", "dead-letters", "operations", "operations?state=all"])
async def test_a_list_asks_for_one_page_however_many_there_are(place: str) -> None:
    """One look of fifty at the store's index: nothing is counted, and nothing read that is not shown."""
    store = Counted()
    for number in range(200):
        settle(store, claim(store, f"k{number}"), State.UNKNOWN, due_for=None if number % 2 else 1)
    alice = await let_in(store)
    page = await alice.get(place)
    assert store.asked == [("scan", 50)]
    assert page.text.count("data-key=") == 50


async def test_a_search_stops_after_some_thousand() -> None:
    """What no index knows is looked for in bounded steps, and goes on from where it came to."""
    store = Counted()
    for number in range(60):
        settle(store, claim(store, f"k{number}"), State.UNKNOWN, note="lost" if number == 59 else "")
    alice = await let_in(store)
    page = await alice.post("operations", text="lost", state="open")
    assert page.status_code == 303
    assert sum(limit for _, limit in store.asked) <= 10_000


async def test_the_overview_counts_seldom() -> None:
    """All records are counted once for many looks: the longer it took, the longer it is good for."""
    store = Counted()
    alice = await let_in(store)
    for _ in range(5):
        await alice.get()
    assert store.asked.count(("stats", 0)) == 1
    assert "Unknown" in words(await alice.get())
