"""Every kind of connection that transactions work on, sync and async, opened on one database."""

from __future__ import annotations

import sqlite3
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from typing import Any, NamedTuple

import aiosqlite
import django
import psycopg
from django.conf import settings
from psycopg.conninfo import conninfo_to_dict
from sqlalchemy import NullPool, create_engine
from sqlalchemy.ext.asyncio import AsyncSession, create_async_engine
from sqlalchemy.orm import Session

ALIAS = "oncekey_effects"


class Kind(NamedTuple):
    """A kind of connection; `opened` takes the store's URL."""

    name: str
    database: str
    opened: Callable[[str], Any]

    @property
    def awaited(self) -> bool:
        return self.name.startswith("async")


def path(url: str) -> str:
    """The file of an sqlite URL."""
    return url.removeprefix("sqlite:///")


@contextmanager
def on_psycopg(url: str) -> Iterator[Any]:
    with psycopg.connect(url) as connection:
        yield connection


@asynccontextmanager
async def async_on_psycopg(url: str) -> AsyncIterator[Any]:
    async with await psycopg.AsyncConnection.connect(url) as connection:
        yield connection


@contextmanager
def on_sqlite(url: str) -> Iterator[Any]:
    connection = sqlite3.connect(path(url))
    try:
        yield connection
    finally:
        connection.close()


@asynccontextmanager
async def async_on_sqlite(url: str) -> AsyncIterator[Any]:
    async with aiosqlite.connect(path(url)) as connection:
        yield connection


def engine_url(url: str, *, awaited: bool = False) -> str:
    """The same address as SQLAlchemy writes it."""
    if url.startswith("sqlite"):
        return f"sqlite+aiosqlite:///{path(url)}" if awaited else f"sqlite:///{path(url)}"
    return url.replace("postgresql://", "postgresql+psycopg://")


@contextmanager
def on_session(url: str) -> Iterator[Any]:
    engine = create_engine(engine_url(url), poolclass=NullPool)
    with Session(engine) as session:
        yield session
    engine.dispose()


@contextmanager
def on_core(url: str) -> Iterator[Any]:
    engine = create_engine(engine_url(url), poolclass=NullPool)
    with engine.connect() as connection:
        yield connection
    engine.dispose()


@asynccontextmanager
async def async_on_session(url: str) -> AsyncIterator[Any]:
    engine = create_async_engine(engine_url(url, awaited=True), poolclass=NullPool)
    async with AsyncSession(engine) as session:
        yield session
    await engine.dispose()


@asynccontextmanager
async def async_on_core(url: str) -> AsyncIterator[Any]:
    engine = create_async_engine(engine_url(url, awaited=True), poolclass=NullPool)
    async with engine.connect() as connection:
        yield connection
    await engine.dispose()


def django_settings(url: str) -> dict[str, Any]:
    """The same address as Django writes it."""
    if url.startswith("sqlite"):
        return {"ENGINE": "django.db.backends.sqlite3", "NAME": path(url)}
    parts = conninfo_to_dict(url)
    place = {"HOST": parts["host"], "PORT": parts["port"], "USER": parts["user"], "NAME": parts["dbname"]}
    return {"ENGINE": "django.db.backends.postgresql", **place}


@contextmanager
def on_django(url: str) -> Iterator[Any]:
    if not settings.configured:
        settings.configure(DATABASES={}, USE_TZ=True)
        django.setup()
    from django.db import connections

    known = connections.configure_settings({"default": {}, ALIAS: django_settings(url)})
    connections.settings[ALIAS] = known[ALIAS]
    try:
        yield connections[ALIAS]
    finally:
        connections[ALIAS].close()
        del connections[ALIAS]
        del connections.settings[ALIAS]


MAKERS = (
    *(("psycopg", on_psycopg), ("async psycopg", async_on_psycopg)),
    *(("sqlite3", on_sqlite), ("async sqlite3", async_on_sqlite)),
    *(("session", on_session), ("async session", async_on_session)),
    *(("core", on_core), ("async core", async_on_core), ("django", on_django)),
)
KINDS = [
    Kind(name, database, maker)
    for name, maker in MAKERS
    for database in ("postgresql", "sqlite")
    if not (name.endswith("psycopg") and database == "sqlite")
    and not (name.endswith("sqlite3") and database == "postgresql")
]
SYNC = [kind for kind in KINDS if not kind.awaited]
ASYNC = [kind for kind in KINDS if kind.awaited]


def named(kind: Kind) -> str:
    """For the names of tests."""
    return f"{kind.name} {kind.database}".replace(" ", "-")
