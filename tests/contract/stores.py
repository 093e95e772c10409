"""The table of stores under test, each in both colours. A new store is one more line in `STORES`."""

from __future__ import annotations

import uuid
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Literal

import pytest

from oncekey.stores import sqlite
from oncekey.stores.memory import AsyncMemoryStore, MemoryStore
from oncekey.stores.open import open_async_store, open_store
from oncekey.testing import Bench, ManualClock
from oncekey.testing.bench import AnyStore

Colour = Literal["sync", "async"]
COLOURS: tuple[Colour, ...] = ("sync", "async")
STORE_FOR = 30.0  # these tests crowd two cores; a store that is slow there is not at fault


@dataclass(frozen=True)
class Subject:
    """A store under test. `url` is None where no other process can open it; `clock` where it can be set."""

    open: Callable[[], AnyStore]
    url: str | None
    clock: ManualClock | None = None

    def bench(self) -> Bench:
        """Clients of their own, on records that are there already."""
        return Bench(self.open, self.clock)


def memory(_: pytest.FixtureRequest, colour: Colour) -> Subject:
    """All clients share one store, as all users in a process do."""
    clock = ManualClock()
    store = MemoryStore(clock)
    return Subject((lambda: store) if colour == "sync" else (lambda: AsyncMemoryStore(store)), None, clock)


def sqlite_file(request: pytest.FixtureRequest, colour: Colour) -> Subject:
    """A new file."""
    folder: Path = request.getfixturevalue("tmp_path")
    url = f"sqlite:///{folder / 'once.db'}"
    clock = ManualClock()
    open_ = sqlite.open_sync if colour == "sync" else sqlite.open_async
    return Subject(partial(open_, url, store_for=STORE_FOR, clock=clock), url, clock)


def postgres(request: pytest.FixtureRequest, colour: Colour) -> Subject:
    """One database for the whole run: every scenario brings its own keys."""
    return served(request.getfixturevalue("contract_postgres_url"), colour)


def redis(request: pytest.FixtureRequest, colour: Colour, *, server: str) -> Subject:
    """One server for the whole run."""
    return served(request.getfixturevalue(server).url, colour)


def served(url: str, colour: Colour) -> Subject:
    """A store that has a server, and with it a clock of its own."""
    open_: Callable[..., AnyStore] = open_store if colour == "sync" else open_async_store
    return Subject(partial(open_, url, store_for=STORE_FOR), url)


STORES: dict[str, Callable[[pytest.FixtureRequest, Colour], Subject]] = {
    "memory": memory,
    "sqlite": sqlite_file,
    "postgres": postgres,
    "redis7": partial(redis, server="redis_server"),
    "valkey": partial(redis, server="valkey_server"),
    "redis62": partial(redis, server="redis62_server"),
}

ALL = [pytest.param(name, colour, id=f"{name}-{colour}") for name in STORES for colour in COLOURS]
SHARED = [pytest.param(name, "sync", id=name) for name in STORES if name != "memory"]
SERVED = [
    pytest.param(name, colour, id=f"{name}-{colour}")
    for name in STORES
    for colour in COLOURS
    if name not in {"memory", "sqlite"}
]


def fresh_id() -> bytes:
    """The id of a key that nobody used."""
    return uuid.uuid4().bytes + bytes(4)
