"""A store whose calls are steps. It stands before a real one and has an address, which any part of OnceKey opens."""

from __future__ import annotations

import itertools
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import TypeVar

from oncekey.core.commands import Claim, Claimed, Page, Purged, Renewal, Settlement, Stale, Swap, Written
from oncekey.core.record import Record, Seen, State
from oncekey.errors import ConfigurationError, StoreUnavailable
from oncekey.stores import sqlite
from oncekey.stores.contract import AsyncStore, Finding, Listener, Store
from oncekey.stores.memory import AsyncMemoryStore, MemoryStore
from oncekey.stores.open import ROOMS, Room, open_async_store, open_store
from oncekey.testing.clock import ManualClock
from oncekey.testing.crashes.steps import Place, Steps, Way, thrown

T = TypeVar("T")
SQLITE = "sqlite:///"
PATIENT_FOR = 30.0  # an embedded store is never at fault for a busy machine


class World:
    """What outlives a process: the records, and the clock where it can be set."""

    def __init__(self, url: str, folder: Path) -> None:
        self.url = f"{SQLITE}{folder / 'once.db'}" if url in {"sqlite", "sqlite://", SQLITE} else url
        self.memory = url.startswith("memory:")
        self.embedded = self.memory or self.url.startswith(SQLITE)
        self.clock = ManualClock() if self.embedded else None
        self._records = MemoryStore(self.clock) if self.clock else MemoryStore()

    def open_sync(self, store_for: float = PATIENT_FOR) -> Store:
        """A client of the records, for threads."""
        if self.memory:
            return self._records
        if self.clock is not None:
            return sqlite.open_sync(self.url, store_for=PATIENT_FOR, clock=self.clock)
        return open_store(self.url, store_for=store_for)

    def open_async(self, store_for: float) -> AsyncStore:
        """The same, for asyncio."""
        if self.clock is not None:
            return sqlite.open_async(self.url, store_for=PATIENT_FOR, clock=self.clock)
        return open_async_store(self.url, store_for=store_for)


class Link:
    """One process's way to the records. It can be cut, and then nothing of that process reaches them any more."""

    _numbers = itertools.count(1)

    def __init__(self, world: World, steps: Steps) -> None:
        self.world = world
        self.steps = steps
        self.url = f"{SCHEME}://{next(self._numbers)}"
        self.ids: list[bytes] = []
        self.cut = False
        self._down = False
        self._deaf = False
        self.clients: list[Store] = []
        self.async_clients: list[AsyncStore] = []
        LINKS[self.url] = self

    def before(self, verb: str) -> None:
        """A call is about to be made."""
        if self.steps.here:
            self._happens(self.steps.reach(Place.BEFORE, verb))
        if self._down:
            raise StoreUnavailable("the store is away, on purpose")

    def after(self, verb: str) -> None:
        """It has been made."""
        if self.steps.here:
            self._happens(self.steps.reach(Place.AFTER, verb))
        if self._deaf:
            raise StoreUnavailable("the reply was lost, on purpose")

    def _happens(self, way: Way | None) -> None:
        if way is Way.DOWN:
            self._down = True
        elif way is Way.DEAF:
            self._deaf = True
        elif way in {Way.FAIL, Way.LOSE}:
            raise StoreUnavailable(f"the store's {way.value}, on purpose")
        elif way is not None:
            raise thrown(way)

    def close(self) -> None:
        """Cut it, and let go of what it opened. Async clients are let go of by their own loop, before."""
        self.cut = True
        LINKS.pop(self.url, None)
        for client in self.clients:
            client.close()


def hourly() -> Callable[[], int]:
    """A clock that is an hour later at every look: what a worker remembers by it would hide the store, and is over."""
    hours = itertools.count(0, 3_600_000)
    return lambda: next(hours)


class Crashing:
    """A store for threads that is reached over a link."""

    clock = staticmethod(hourly())

    def __init__(self, link: Link, inner: Store) -> None:
        self.url = link.url
        self.link = link
        self.inner = inner

    def _ask(self, verb: str, call: Callable[[], T]) -> T:
        self.link.before(verb)
        answer = call()
        self.link.after(verb)
        return answer

    def claim(self, many: Sequence[Claim]) -> list[Claimed]:
        self.link.ids += [one.id for one in many]
        return self._ask("claim", lambda: self.inner.claim(many))

    def settle(self, many: Sequence[Settlement]) -> list[Written]:
        # A process that is gone has nothing to say, and is not to wait for an answer either.
        return [Stale(None)] * len(many) if self.link.cut else self._ask("settle", lambda: self.inner.settle(many))

    def renew(self, many: Sequence[Renewal]) -> list[Written]:
        return [Stale(None)] * len(many) if self.link.cut else self._ask("renew", lambda: self.inner.renew(many))

    def swap(self, swap: Swap) -> Written:
        return self._ask("swap", lambda: self.inner.swap(swap))

    def put(self, many: Sequence[Record]) -> list[Written]:
        return self.inner.put(many)

    def get(self, id_: bytes) -> Seen | None:
        return self._ask("get", lambda: self.inner.get(id_))

    def watch(self, id_: bytes) -> Seen | None:
        return self._ask("watch", lambda: self.inner.watch(id_))

    def scan(
        self,
        states: Sequence[State],
        *,
        due_before: int | None = None,
        undated: bool = False,
        after: str | None = None,
        limit: int = 100,
    ) -> Page:
        return self.inner.scan(states, due_before=due_before, undated=undated, after=after, limit=limit)

    def purge(self, limit: int = 500) -> Purged:
        return self.inner.purge(limit)

    def stats(self) -> dict[str, int | str]:
        return self.inner.stats()

    def migrate(self) -> list[str]:
        return self.inner.migrate()

    def check(self) -> list[Finding]:
        return self.inner.check()

    def listen(self, told: Callable[[bytes], None]) -> Listener:
        return self.inner.listen(told)

    def close(self) -> None:
        """The link closes what it opened."""


class CrashingMemory(Crashing, MemoryStore):
    """The same where nothing waits: engines ask a memory store on the spot, and know it by its class."""


class AsyncCrashing:
    """A store for asyncio that is reached over a link."""

    clock = staticmethod(hourly())

    def __init__(self, link: Link, inner: AsyncStore) -> None:
        self.url = link.url
        self.link = link
        self.inner = inner

    async def _ask(self, verb: str, call: Callable[[], Awaitable[T]]) -> T:
        self.link.before(verb)
        answer = await call()
        self.link.after(verb)
        return answer

    async def claim(self, many: Sequence[Claim]) -> list[Claimed]:
        self.link.ids += [one.id for one in many]
        return await self._ask("claim", lambda: self.inner.claim(many))

    async def settle(self, many: Sequence[Settlement]) -> list[Written]:
        return await self._ask("settle", lambda: self.inner.settle(many))

    async def renew(self, many: Sequence[Renewal]) -> list[Written]:
        return await self._ask("renew", lambda: self.inner.renew(many))

    async def swap(self, swap: Swap) -> Written:
        return await self._ask("swap", lambda: self.inner.swap(swap))

    async def put(self, many: Sequence[Record]) -> list[Written]:
        return await self.inner.put(many)

    async def get(self, id_: bytes) -> Seen | None:
        return await self._ask("get", lambda: self.inner.get(id_))

    async def watch(self, id_: bytes) -> Seen | None:
        return await self._ask("watch", lambda: self.inner.watch(id_))

    async def scan(
        self,
        states: Sequence[State],
        *,
        due_before: int | None = None,
        undated: bool = False,
        after: str | None = None,
        limit: int = 100,
    ) -> Page:
        return await self.inner.scan(states, due_before=due_before, undated=undated, after=after, limit=limit)

    async def purge(self, limit: int = 500) -> Purged:
        return await self.inner.purge(limit)

    async def stats(self) -> dict[str, int | str]:
        return await self.inner.stats()

    async def migrate(self) -> list[str]:
        return await self.inner.migrate()

    async def check(self) -> list[Finding]:
        return await self.inner.check()

    async def listen(self, told: Callable[[bytes], None]) -> Listener:
        return await self.inner.listen(told)

    async def close(self) -> None:
        """The link closes what it opened."""


# ---- the room behind the address ---------------------------------------------------------------------------------

SCHEME = "crash"
LINKS: dict[str, Link] = {}


def open_sync(url: str, *, store_for: float) -> Store:
    """What `crash://1` names, for threads."""
    link = _link(url)
    inner = link.world.open_sync(store_for)
    if link.world.memory:
        return CrashingMemory(link, inner)
    link.clients.append(inner)
    return Crashing(link, inner)


def open_async(url: str, *, store_for: float) -> AsyncStore:
    """The same, for asyncio."""
    link = _link(url)
    if link.world.memory:
        return AsyncMemoryStore(CrashingMemory(link, link.world.open_sync()))
    inner = link.world.open_async(store_for)
    link.async_clients.append(inner)
    return AsyncCrashing(link, inner)


def _link(url: str) -> Link:
    if url not in LINKS:
        raise ConfigurationError(
            f"store={url!r} belongs to a trial that is over: take the address that `make` is given"
        )
    return LINKS[url]


ROOMS[SCHEME] = Room(__name__, None, f"{SCHEME}://1")

__all__ = ["Link", "World", "open_async", "open_sync"]
