"""Where a transaction's connection comes from: the caller has one at hand, or a way to open one for each attempt."""

from __future__ import annotations

import asyncio
import importlib
import sys
import time
from collections.abc import Callable
from typing import Any

from oncekey.effects import connections
from oncekey.effects.link import Flow, Link
from oncekey.errors import ConfigurationError

KNOWN = f"{connections.KNOWN}; or what opens one: a pool, an engine, a sessionmaker, transaction.atomic"


class Undone(Exception):
    """Leave without a trace."""


class Source:
    """One attempt's connection: opened, linked, and given back."""

    def __init__(self, given: Any, *, awaited: bool) -> None:
        self._given = given
        self._opens = opener(given)
        self._manager: Any = None
        self.awaited = awaited
        self.connection: Any = None

    @property
    def reopens(self) -> bool:
        """Whether another attempt gets another connection."""
        return self._opens is not None

    def open(self) -> Flow[Link]:
        """The connection to work on."""
        if self._opens is None:
            self.connection = self._given
        else:
            manager = self._opens()
            if not hasattr(manager, "__aenter__" if self.awaited else "__enter__"):
                self._check(manager, awaited=not self.awaited)
            self._manager = manager
            self.connection = yield manager.__aenter__() if self.awaited else manager.__enter__()
        # Django's `atomic` gives nothing: its connection is known to everybody.
        nothing = self.connection is None
        link = connections.recognised(importlib.import_module("django.db").connection if nothing else self.connection)
        self._check(self.connection, awaited=link.awaited)
        return link

    def _check(self, given: object, *, awaited: bool) -> None:
        if awaited is not self.awaited:
            kind, word = ("asyncio", "async with, or async def") if awaited else ("threads", "with, or a plain def")
            raise ConfigurationError(f"{type(given).__name__} is a connection for {kind}: use it by {word}")

    def leave(self, why: BaseException | None = None) -> Flow[None]:
        """Give it back; what commits on leaving commits now, unless there is a reason not to."""
        manager, self._manager = self._manager, None
        if manager is not None:
            leave = manager.__aexit__ if self.awaited else manager.__exit__
            yield leave(type(why) if why is not None else None, why, None)

    def pause(self, seconds: float) -> Flow[None]:
        """Wait, in the colour of the connection."""
        if self.awaited:
            yield asyncio.sleep(seconds)
        else:
            time.sleep(seconds)


def opener(given: Any) -> Callable[[], Any] | None:
    """How to open a connection; None if we were given one."""
    if connections.found(given) is not None:
        return None
    pools = sys.modules.get("psycopg_pool")
    if pools is not None and isinstance(given, pools.ConnectionPool | pools.AsyncConnectionPool):
        return given.connection  # type: ignore[no-any-return]
    if hasattr(given, "dialect") and hasattr(given, "connect"):  # SQLAlchemy's engines
        return given.connect  # type: ignore[no-any-return]
    if not callable(given):
        raise ConfigurationError(f"{type(given).__name__} is no connection that OnceKey knows: give it {KNOWN}")
    return given  # type: ignore[no-any-return]
