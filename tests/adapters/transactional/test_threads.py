"""FastAPI's plain endpoints run on threads, which are few and which nobody can stop."""

import asyncio
import sqlite3
import threading
from collections.abc import AsyncIterator
from typing import Annotated, Any

from anyio import to_thread
from fastapi import APIRouter, Depends, FastAPI
from sqlalchemy import Engine, QueuePool, create_engine, text
from sqlalchemy.orm import Session

from tests.adapters.asgi_kit import Wire, call, http
from tests.adapters.transactional.apps import INSERT
from tests.effects.kinds import engine_url
from tests.effects.transaction.shop import Shop


async def test_a_thread_that_works_on_is_waited_for(tmp_path: Any) -> None:
    """A server that cancels when the client leaves stops no thread: nothing is undone under its hands."""
    shop = Shop(f"sqlite:///{tmp_path}/app.db")
    shop.empty()
    began, go_on, ended = threading.Event(), threading.Event(), threading.Event()
    pooled = sqlite3.connect(tmp_path / "app.db", isolation_level=None, check_same_thread=False)

    def get_connection() -> sqlite3.Connection:
        return pooled

    router, app = APIRouter(route_class=shop.once.fastapi(get_connection)), FastAPI()

    @router.post("/orders")
    def order(connection: Annotated[Any, Depends(get_connection)]) -> str:
        began.set()
        assert go_on.wait(20)
        # On a connection that was given back already, this would be committed by itself, or with another request.
        connection.execute(INSERT.format(1))
        ended.set()
        return "done"

    app.include_router(router)
    wire = Wire()
    task = asyncio.create_task(app(http(path="/orders", root_path=""), wire.receive, wire.send))
    await asyncio.to_thread(began.wait, 20)
    task.cancel()
    await asyncio.wait([task], timeout=0.2)
    go_on.set()
    await asyncio.wait([task])
    await asyncio.to_thread(ended.wait, 20)
    pooled.close()
    assert (task.cancelled(), shop.orders(), shop.record("key-1")) == (True, [], None)


def waiting_app(shop: Shop, engine: Engine, go_on: threading.Event) -> FastAPI:
    """An order that has the connection until it may go on."""

    async def get_session() -> AsyncIterator[Session]:
        with Session(engine) as session:
            yield session

    router, app = APIRouter(route_class=shop.once.fastapi(get_session)), FastAPI()

    @router.post("/orders")
    def order(session: Annotated[Session, Depends(get_session)]) -> dict[str, str]:
        session.execute(text(INSERT.format(1)))
        assert go_on.wait(20)
        return {"said": "done"}

    app.include_router(router)
    return app


async def test_an_end_waits_for_no_thread_of_the_endpoints(tmp_path: Any) -> None:
    """They may all be waiting for the connection that the commit gives back to the pool."""
    shop = Shop(f"sqlite:///{tmp_path}/app.db")
    shop.empty()
    asked, go_on = threading.Semaphore(0), threading.Event()

    class Pool(QueuePool):
        def _do_get(self) -> Any:
            asked.release()
            return super()._do_get()

    engine = create_engine(engine_url(shop.url), poolclass=Pool, pool_size=1, max_overflow=0, pool_timeout=4)
    app, posts = waiting_app(shop, engine, go_on), []
    limiter = to_thread.current_default_thread_limiter()
    limiter.total_tokens = 2
    for key in (b"owner", b"waits for the connection", b"waits for a thread"):
        posts.append(asyncio.create_task(call(app, http(key.replace(b" ", b"-"), path="/orders", root_path=""))))
        while not (limiter.statistics().tasks_waiting or asked.acquire(blocking=False)):
            await asyncio.sleep(0.01)
    go_on.set()
    assert [answer.status for answer in await asyncio.gather(*posts)] == [200, 200, 200]
    engine.dispose()
    assert shop.orders() == ["1", "1", "1"]
