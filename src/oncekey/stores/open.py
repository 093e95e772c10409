"""A store by its URL, in either colour. A typo, a missing extra or a bad address is answered with what to write."""

from __future__ import annotations

import difflib
import importlib
from typing import TYPE_CHECKING, NamedTuple, cast
from urllib.parse import urlsplit

from oncekey.errors import ConfigurationError, MissingExtra

if TYPE_CHECKING:
    from types import ModuleType

    from oncekey.stores.contract import AsyncStore, Store


class Room(NamedTuple):
    """Where a scheme's store lives and which extra it needs. Each room has `open_sync` and `open_async`."""

    module: str
    extra: str | None
    example: str


MEMORY = Room("oncekey.stores.memory", None, "memory://")
SQLITE = Room("oncekey.stores.sqlite", None, "sqlite:///oncekey.db")
POSTGRES = Room("oncekey.stores.postgres", "postgres", "postgresql://user:password@host/database")
REDIS = Room("oncekey.stores.redis", "redis", "redis://host:6379/0")

ROOMS: dict[str, Room] = {
    "memory": MEMORY,
    "sqlite": SQLITE,
    "postgresql": POSTGRES,
    "postgres": POSTGRES,
    "redis": REDIS,
    "rediss": REDIS,
    "valkey": REDIS,
    "valkeys": REDIS,
}


def open_store(url: str, *, store_for: float = 5.0) -> Store:
    """The store for threads. Nothing is contacted before the first verb."""
    return cast("Store", _room(url).open_sync(url, store_for=store_for))


def open_async_store(url: str, *, store_for: float = 5.0) -> AsyncStore:
    """The store for asyncio. Nothing is contacted before the first verb."""
    return cast("AsyncStore", _room(url).open_async(url, store_for=store_for))


def _room(url: str) -> ModuleType:
    scheme, colon, _ = url.partition(":")
    room = ROOMS.get(scheme.lower())
    if room is None or not colon:
        raise ConfigurationError(_unknown(url, scheme))
    try:
        urlsplit(url).port  # noqa: B018 - reading it is the check
    except ValueError as wrong:
        raise ConfigurationError(f"the store address is not a URL ({wrong}): write it like {room.example}") from wrong
    try:
        return importlib.import_module(room.module)
    except ModuleNotFoundError as missing:
        if room.extra is None or (missing.name or "").startswith("oncekey"):
            raise
        raise MissingExtra(f"the store {scheme}://", room.extra) from missing


def _unknown(url: str, scheme: str) -> str:
    near = difflib.get_close_matches(scheme.lower(), ROOMS, n=1)
    examples = ", ".join(dict.fromkeys(room.example for room in ROOMS.values()))
    meant = f"did you mean {near[0]}://?" if near else "it must start with a store's name."
    # Only the scheme is repeated: the rest of a URL may hold a password.
    what = f"{scheme}:" if ":" in url else "the given text"
    return f"store={what!r} is not a store that OnceKey knows; {meant} Examples: {examples}"
