"""The naive forms that OnceKey is measured against: what one would write by hand, correct only without faults."""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, NamedTuple

from bench.traffic import Count, starlette

KEEP_FOR = 86_400
CONNECTIONS = 256  # redis-py's own limit of 100 is an error for the 101st request at once


class Running(NamedTuple):
    """A candidate at work: its application, how to end it, and how many round trips it made, if it can say."""

    app: Any
    close: Callable[[], Awaitable[None]] | None = None
    trips: Callable[[], dict[str, int]] | None = None


def key_of(scope: Any) -> bytes:
    key: bytes = next(value for name, value in scope["headers"] if name == b"idempotency-key")
    return key


class Floor:
    """Claim, run, store; or give the stored messages again. A floor answers `claim` and `settle` in its own way."""

    replaying = False

    def __init__(self, app: Any) -> None:
        self.app = app

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        key = key_of(scope)
        stored = await self.claim(key)
        if stored is not None:
            await send(
                {"type": "http.response.start", "status": 201, "headers": [(b"content-type", b"application/json")]}
            )
            await send({"type": "http.response.body", "body": stored})
            return
        sent: list[Any] = []

        async def keep(message: Any) -> None:
            sent.append(message)

        await self.app(scope, receive, keep)
        await self.settle(key, b"".join(message.get("body", b"") for message in sent))
        for message in sent:
            await send(message)

    async def open(self) -> None: ...
    async def claim(self, key: bytes) -> bytes | None: ...
    async def settle(self, key: bytes, body: bytes) -> None: ...
    async def close(self) -> None: ...


class MemoryFloor(Floor):
    """A dict."""

    async def open(self) -> None:
        self.kept: dict[bytes, bytes | None] = {}

    async def claim(self, key: bytes) -> bytes | None:
        return self.kept.setdefault(key, None)

    async def settle(self, key: bytes, body: bytes) -> None:
        self.kept[key] = body


class RedisFloor(Floor):
    """redis-py: SET NX EX, then SET EX; a replay is one GET."""

    def __init__(self, app: Any, url: str) -> None:
        super().__init__(app)
        self.url = url

    async def open(self) -> None:
        import redis.asyncio

        self.redis = redis.asyncio.from_url(self.url, max_connections=CONNECTIONS)

    async def claim(self, key: bytes) -> bytes | None:
        if self.replaying:
            stored: bytes | None = await self.redis.get(b"floor:" + key)  # type: ignore[assignment]
            return stored
        await self.redis.set(b"floor:" + key, b"", nx=True, ex=KEEP_FOR)
        return None

    async def settle(self, key: bytes, body: bytes) -> None:
        await self.redis.set(b"floor:" + key, body, ex=KEEP_FOR)

    async def close(self) -> None:
        await self.redis.aclose()


class PostgresFloor(Floor):
    """psycopg: two autocommitted statements a request, on a pool of 16; a replay is a lost insert and a select."""

    def __init__(self, app: Any, url: str) -> None:
        super().__init__(app)
        self.url = url

    async def open(self) -> None:
        from psycopg_pool import AsyncConnectionPool

        self.pool = AsyncConnectionPool(self.url, min_size=16, max_size=16, open=False, kwargs={"autocommit": True})
        await self.pool.open()
        async with self.pool.connection() as connection:
            await connection.execute("create table if not exists floor (key bytea primary key, body bytea)")

    async def claim(self, key: bytes) -> bytes | None:
        async with self.pool.connection() as connection:
            won = await connection.execute(
                "insert into floor (key) values (%b) on conflict do nothing returning 1", (key,)
            )
            if await won.fetchone():
                return None
            found = await connection.execute("select body from floor where key = %b", (key,), binary=True)
            row = await found.fetchone()
            body: bytes | None = row[0] if row else None
            return body

    async def settle(self, key: bytes, body: bytes) -> None:
        async with self.pool.connection() as connection:
            await connection.execute("update floor set body = %b where key = %b", (body, key))

    async def close(self) -> None:
        await self.pool.close()


class SqliteFloor(Floor):
    """sqlite3 in a thread: one transaction for each statement, synchronous=FULL."""

    def __init__(self, app: Any, path: str) -> None:
        super().__init__(app)
        self.path = path

    async def open(self) -> None:
        self.thread = ThreadPoolExecutor(1)
        await self._do(self._connect)

    def _connect(self) -> None:
        self.db = sqlite3.connect(self.path, isolation_level=None)
        self.db.executescript(
            "pragma journal_mode=wal; pragma synchronous=full;"
            "create table if not exists floor (key blob primary key, body blob)"
        )

    async def _do(self, work: Any, *args: Any) -> Any:
        return await asyncio.get_running_loop().run_in_executor(self.thread, work, *args)

    async def claim(self, key: bytes) -> bytes | None:
        def work() -> bytes | None:
            if self.db.execute("insert into floor (key) values (?) on conflict do nothing", (key,)).rowcount:
                return None
            found: bytes | None = self.db.execute("select body from floor where key = ?", (key,)).fetchone()[0]
            return found

        stored: bytes | None = await self._do(work)
        return stored

    async def settle(self, key: bytes, body: bytes) -> None:
        await self._do(self.db.execute, "update floor set body = ? where key = ?", (body, key))

    async def close(self) -> None:
        await self._do(self.db.close)
        self.thread.shutdown()


FLOORS = {"redis": RedisFloor, "postgres": PostgresFloor, "sqlite": SqliteFloor}


async def floor(store: str, url: str, count: Count) -> Running:
    app = starlette(count)
    made: Floor = MemoryFloor(app) if store == "memory" else FLOORS[store](app, url.removeprefix("sqlite:///"))
    await made.open()
    return Running(made, made.close)


async def bare(store: str, url: str, count: Count) -> Running:
    return Running(starlette(count))
