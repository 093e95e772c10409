"""A store by its URL, in either colour. A typo, a missing extra or a bad address is answered with what to write."""

from __future__ import annotations

import difflib
import importlib
import re
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


# Where a package announces its own: `[project.entry-points."oncekey.stores"]`, with a line `scheme = "package.module"`.
GROUP = "oncekey.stores"
_SCHEME = re.compile(r"[a-z][a-z0-9+.-]*")


def register_store(scheme: str, module: str, *, example: str | None = None, extra: str | None = None) -> None:
    """Let URLs of this scheme name a store of your own. Its module has `open_sync` and `open_async`.

    Each takes the URL and `store_for=`, and contacts nothing yet. A package announces its store by an entry point of
    the group `oncekey.stores` instead, and then the command line knows it too.
    """
    if not (isinstance(scheme, str) and _SCHEME.fullmatch(scheme)):
        raise ConfigurationError(f"scheme={scheme!r} cannot begin a URL: write small letters, such as 'journal'")
    known = ROOMS.get(scheme)
    if known is not None and known.module != module:
        raise ConfigurationError(f"{scheme}:// is the store of {known.module}: choose another scheme for {module}")
    ROOMS[scheme] = Room(module, extra, example or f"{scheme}://")


def open_store(url: str, *, store_for: float = 5.0) -> Store:
    """The store for threads. Nothing is contacted before the first verb."""
    return cast("Store", _room(url).open_sync(url, store_for=store_for))


def open_async_store(url: str, *, store_for: float = 5.0) -> AsyncStore:
    """The store for asyncio. Nothing is contacted before the first verb."""
    return cast("AsyncStore", _room(url).open_async(url, store_for=store_for))


def _room(url: str) -> ModuleType:
    scheme, colon, _ = url.partition(":")
    room = ROOMS.get(scheme.lower()) or (_announced(scheme.lower()) if colon else None)
    if room is None or not colon:
        raise ConfigurationError(_unknown(url, scheme))
    try:
        urlsplit(url).port  # noqa: B018 - reading it is the check
    except ValueError as wrong:
        raise ConfigurationError(f"the store address is not a URL ({wrong}): write it like {room.example}") from wrong
    try:
        return _complete(importlib.import_module(room.module))
    except ModuleNotFoundError as missing:
        if room.extra is None or (missing.name or "").startswith("oncekey"):
            raise
        raise MissingExtra(f"the store {scheme}://", room.extra) from missing


def _announced(scheme: str) -> Room | None:
    """The store of an installed package, if one announces this scheme."""
    from importlib.metadata import entry_points  # noqa: PLC0415 - slow to load, and only strange schemes need it

    for found in entry_points(group=GROUP, name=scheme):
        register_store(scheme, found.module)
    return ROOMS.get(scheme)


def _complete(module: ModuleType) -> ModuleType:
    missing = [name for name in ("open_sync", "open_async") if not callable(getattr(module, name, None))]
    if missing:
        raise ConfigurationError(
            f"the module {module.__name__} has no {' and no '.join(missing)}: write both, each of the form "
            "open_sync(url, *, store_for); the one for the colour that you do not serve may raise ConfigurationError"
        )
    return module


def _unknown(url: str, scheme: str) -> str:
    near = difflib.get_close_matches(scheme.lower(), ROOMS, n=1)
    examples = ", ".join(dict.fromkeys(room.example for room in ROOMS.values()))
    meant = f"did you mean {near[0]}://?" if near else "it must start with a store's name."
    # Only the scheme is repeated: the rest of a URL may hold a password.
    what = f"store={scheme + ':'!r}" if ":" in url else "the text given as store="
    return f"{what} is not a store that OnceKey knows; {meant} Examples: {examples}"
