"""The peers, each as its own documentation installs it. Runs in their virtual environment."""

from __future__ import annotations

from typing import Any

from bench.floors import CONNECTIONS, Running
from bench.traffic import CREATED, Count, starlette


async def idemkit(store: str, url: str, count: Count) -> Running:
    from idemkit import HttpConfig, IdempotencyMiddleware, InMemoryBackend, RedisBackend

    backend: Any
    if store == "memory":
        backend = InMemoryBackend(max_size=1_000_000)  # at its default of 10,000 keys it answers 503
    elif store == "redis":
        backend = RedisBackend.from_url(url)
    else:
        from idemkit.backends.postgres import PostgresBackend, init_pg

        await init_pg(url)
        backend = PostgresBackend.from_url(url)
    config = HttpConfig(scope=lambda request: request.headers.get("authorization", "anonymous"))
    return Running(IdempotencyMiddleware(starlette(count), backend=backend, config=config))


async def fastapi_idempotency(store: str, url: str, count: Count) -> Running:
    from fastapi_idempotency import IdempotencyMiddleware, MemoryStore

    def caller(request: Any) -> str:
        return str(request.headers["authorization"])

    return Running(IdempotencyMiddleware(starlette(count), store=MemoryStore(), scope=caller))


async def fastapi_idempotency_key(store: str, url: str, count: Count) -> Running:
    from fastapi_idempotency_key import IdempotencyMiddleware, MemoryBackend, RedisBackend, SQLiteBackend

    backend: Any
    if store == "memory":
        backend = MemoryBackend()
    elif store == "redis":
        backend = RedisBackend(redis_url=url, max_connections=CONNECTIONS)
    else:
        backend = SQLiteBackend(url.removeprefix("sqlite:///"))
    return Running(IdempotencyMiddleware(starlette(count), backend=backend), getattr(backend, "close", None))


async def ichido(store: str, url: str, count: Count) -> Running:
    from ichido import IchidoMiddleware, RedisIdempotencyStore
    from redis.asyncio import from_url

    client = from_url(url, max_connections=CONNECTIONS)
    return Running(IchidoMiddleware(starlette(count), store=RedisIdempotencyStore(client)), client.aclose)


async def asgi_idempotency_header(store: str, url: str, count: Count) -> Running:
    from idempotency_header_middleware import IdempotencyHeaderMiddleware
    from idempotency_header_middleware.backends import MemoryBackend, RedisBackend
    from redis.asyncio import from_url

    backend = MemoryBackend() if store == "memory" else RedisBackend(redis=from_url(url, max_connections=CONNECTIONS))
    return Running(IdempotencyHeaderMiddleware(starlette(count), backend=backend))


async def bare_fastapi(store: str, url: str, count: Count) -> Running:
    from bench.fastapi_app import fastapi

    return Running(fastapi(count, lambda handler: handler))


async def mobius(store: str, url: str, count: Count) -> Running:
    from mobius_idempotence import IdempotencyConfig, IdempotencyManager, idempotent

    from bench.fastapi_app import fastapi

    backend: Any
    if store == "memory":
        from mobius_idempotence.backends.memory import MemoryBackend

        backend = MemoryBackend()
    else:
        from mobius_idempotence.backends.redis import RedisBackend

        backend = RedisBackend(url)
    manager = IdempotencyManager(backend, IdempotencyConfig(fail_open=False))
    return Running(fastapi(count, idempotent(manager, status_code=CREATED)), manager.aclose)
