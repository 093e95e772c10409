"""Records in an SQLite file: the embedded default, no server needed. SQLite 3.37 or later.

`sqlite:///oncekey.db` is a file in the working folder, `sqlite:////var/lib/app/oncekey.db` one by its absolute path.
Several processes of one machine may share the file; the tables are made at the first use.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from urllib.parse import unquote, urlsplit

from oncekey.errors import ConfigurationError
from oncekey.stores.memory import wall_clock
from oncekey.stores.planned import AsyncPlannedStore, PlannedStore
from oncekey.stores.sqlite.plan import SqlitePlan
from oncekey.stores.sqlite.wire import SqliteWire
from oncekey.stores.sqlite.wire_async import AsyncSqliteWire

Clock = Callable[[], int]


def open_sync(url: str, *, store_for: float, clock: Clock = wall_clock) -> PlannedStore:
    """The store for threads. `clock` answers milliseconds: the machine's clock is the clock of an embedded store."""
    return PlannedStore(url, SqlitePlan(), SqliteWire(path_of(url), store_for=store_for, clock=clock))


def open_async(url: str, *, store_for: float, clock: Clock = wall_clock) -> AsyncPlannedStore:
    """The same for asyncio."""
    wire = AsyncSqliteWire(SqliteWire(path_of(url), store_for=store_for, clock=clock))
    return AsyncPlannedStore(url, SqlitePlan(), wire)


def path_of(url: str) -> str:
    """The absolute path that a URL names: a later change of the working folder changes nothing."""
    parts = urlsplit(url)
    path = unquote(parts.path)
    if parts.netloc and parts.netloc != ":memory:":
        raise ConfigurationError(
            f"store={url!r} names a host: write sqlite:///{parts.netloc}{parts.path} (three slashes) for that file in "
            f"the working folder, or four slashes and an absolute path"
        )
    if parts.query or parts.fragment:
        raise ConfigurationError(f"store={url!r}: an SQLite URL takes no options: end it with the file's name")
    name = path.removeprefix("/")
    if not name or ":memory:" in (name, parts.netloc):
        raise ConfigurationError(
            f"store={url!r} names no file: write memory:// for records in this process's memory, or sqlite:///oncekey.db"
        )
    if "\0" in name:
        raise ConfigurationError(f"store={url!r}: a file's name has no NUL")
    return str(Path(name).absolute())


__all__ = ["open_async", "open_sync", "path_of"]
