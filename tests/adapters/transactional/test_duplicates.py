"""Many at once over HTTP, and commits whose answer is lost."""

import asyncio
import threading
from collections.abc import AsyncIterator, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Annotated, Any

import httpx
import psycopg
import pytest
from fastapi import APIRouter, Depends, FastAPI
from flask import Flask
from sqlalchemy import NullPool, create_engine, text
from sqlalchemy.ext.asyncio import AsyncSession, create_async_engine
from sqlalchemy.orm import Session, scoped_session, sessionmaker

from tests.adapters.transactional import apps
from tests.adapters.transactional.apps import INSERT, installation
from tests.effects.kinds import engine_url
from tests.effects.transaction.cutting import Cutting, How
from tests.effects.transaction.shop import Shop

POOL: dict[str, Any] = {"pool_size": 4, "max_overflow": 0, "pool_timeout": 20}


def client_of(app: FastAPI) -> httpx.AsyncClient:
    return httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://shop", timeout=30)


class Held:
    """A FastAPI shop on a pool of four, whose orders wait in the midst of their transaction until they may go on."""

    def __init__(self, url: str) -> None:
        self.engine = create_engine(engine_url(url), **POOL)
        self.began, self.go_on = threading.Event(), threading.Event()

    def session(self) -> Iterator[Session]:
        with Session(self.engine) as session:
            yield session

    def order(self, asked: dict[str, Any], session: Session) -> dict[str, Any]:
        session.execute(text(INSERT.format(asked["number"])))
        if asked.get("do") == "wait":
            self.began.set()
            assert self.go_on.wait(30)
        return {"number": asked["number"]}

    def fastapi(self, url: str) -> FastAPI:
        app, session = FastAPI(), self.session
        router = APIRouter(route_class=installation(url).fastapi(session))

        @router.post("/orders", status_code=201)
        def order(asked: dict[str, Any], own: Annotated[Session, Depends(session)]) -> dict[str, Any]:
            return self.order(asked, own)

        app.include_router(router)
        return app

    def flask(self, url: str) -> Flask:
        session, app = scoped_session(sessionmaker(self.engine)), Flask("shop")

        @app.post("/orders")
        @installation(url).flask(session)
        def order() -> Any:
            from flask import request

            return self.order(request.get_json(), session()), 201

        app.teardown_appcontext(lambda error: session.remove())
        return app


async def test_duplicates_do_not_take_the_pool_from_the_owner(shop: Shop) -> None:
    """A hundred of them on a pool of four are told at once, another key is served meanwhile, and all get one answer."""
    held = Held(shop.url)
    async with client_of(held.fastapi(shop.url)) as client:

        async def post(key: str, **asked: str) -> httpx.Response:
            return await client.post("/orders", json=asked, headers=apps.headers(key))

        owner = asyncio.create_task(post("k", number="1", do="wait"))
        assert await asyncio.to_thread(held.began.wait, 20)
        told = await asyncio.gather(*(post("k", number="1", do="wait") for _ in range(100)))
        assert {(one.status_code, one.headers["idempotency-problem"]) for one in told} == {(409, "in-progress")}
        assert all(int(one.headers["retry-after"]) >= 1 for one in told)
        assert (await post("another", number="2")).status_code == 201
        held.go_on.set()
        first = await owner
        assert first.status_code == 201
        again = await asyncio.gather(*(post("k", number="1", do="wait") for _ in range(20)))
        assert {one.content for one in again} == {first.content}
    held.engine.dispose()
    assert shop.orders() == ["1", "2"]


def test_the_same_in_threads(shop: Shop) -> None:
    """Under WSGI, a thread for each request."""
    held = Held(shop.url)
    post = apps.asking(held.flask(shop.url))
    with ThreadPoolExecutor(12) as threads:
        owner = threads.submit(post, "k", number="1", do="wait")
        assert held.began.wait(20)
        told = list(threads.map(lambda _: post("k", number="1", do="wait").problem, range(100)))
        assert set(told) == {"in-progress"}
        assert post("another", number="2").status == 201
        held.go_on.set()
        assert owner.result().status == 201
    held.engine.dispose()
    assert shop.orders() == ["1", "2"]


# ---- a commit whose answer is lost -------------------------------------------------------------------------------


@pytest.mark.parametrize("how", ["reply", "late", "request"])
def test_a_lost_commit_is_looked_for(shop: Shop, how: How) -> None:
    """Who is answered 201 has an order; where nothing was committed, the answer is 503 and the same key runs."""
    with Cutting(shop.url, how) as proxy:
        place = proxy.url
        engine = create_engine("postgresql+psycopg://", creator=lambda: psycopg.connect(place), poolclass=NullPool)

        def get_session() -> Iterator[Session]:
            with Session(engine) as session:
                yield session

        with apps.served(apps.fastapi_app(installation(shop.url), get_session)) as post:
            told = post("k", number="1")
        engine.dispose()
    assert (told.status, told.problem) == ((503, "not-executed") if how == "request" else (201, ""))
    with apps.fastapi_session(shop.url) as post:
        again = post("k", number="1")
    assert (again.status, again.replayed) == (201, how != "request")
    assert shop.orders() == ["1"]


@pytest.mark.parametrize("how", ["reply", "request"])
async def test_a_lost_commit_is_looked_for_under_asyncio(shop: Shop, how: How) -> None:
    """The same on asyncio's sessions."""
    with Cutting(shop.url, how) as proxy:
        place = proxy.url
        engine = create_async_engine(
            "postgresql+psycopg://",
            async_creator=lambda: psycopg.AsyncConnection.connect(place),
            poolclass=NullPool,
        )

        async def get_session() -> AsyncIterator[AsyncSession]:
            async with AsyncSession(engine) as session:
                yield session

        router, app = APIRouter(route_class=installation(shop.url).fastapi(get_session)), FastAPI()

        @router.post("/orders", status_code=201)
        async def order(session: Annotated[AsyncSession, Depends(get_session)]) -> str:
            await session.execute(text(INSERT.format(1)))
            return "done"

        app.include_router(router)
        async with client_of(app) as client:
            told = await client.post("/orders", headers=apps.headers("k"))
        await engine.dispose()
    assert told.status_code == (503 if how == "request" else 201)
    assert shop.orders() == ([] if how == "request" else ["1"])
