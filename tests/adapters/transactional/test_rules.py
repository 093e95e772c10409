"""What the word `transactional` is refused without, and what else each framework's layer promises."""

import asyncio
import io
from collections.abc import AsyncIterator, Callable, Iterator
from typing import Annotated, Any

import psycopg
import pytest
from fastapi import APIRouter, BackgroundTasks, Depends, FastAPI, HTTPException, Request
from flask import Flask
from sqlalchemy import NullPool, create_engine, text
from sqlalchemy.ext.asyncio import AsyncSession, create_async_engine
from sqlalchemy.orm import Session

from oncekey import SHARED, ConfigurationError, OnceKey, OnceKeyMiddleware, OnceKeyWSGI, Policy
from oncekey.core.record import State
from tests.adapters.asgi_kit import Wire, call, chunks, http
from tests.adapters.transactional import apps
from tests.adapters.transactional.apps import INSERT, Post, installation, served
from tests.adapters.wsgi_kit import Shop as WsgiShop
from tests.effects.kinds import ALIAS, engine_url
from tests.effects.transaction.shop import Shop

TRANSACTIONAL = Policy(guarantee="transactional")


async def nothing(scope: Any, receive: Any, send: Any) -> None:
    """An application."""


REFUSED: list[tuple[Callable[[], Any], str]] = [
    (lambda: OnceKeyMiddleware(nothing, "sqlite:///a.db", scope=SHARED, policy=TRANSACTIONAL), "route_class=once.fast"),
    (lambda: OnceKeyWSGI(WsgiShop(), "sqlite:///a.db", scope=SHARED, policy=TRANSACTIONAL), "@once.django()"),
    (lambda: OnceKey("sqlite:///a.db", scope=SHARED).fastapi(lambda: None), "Policy(guarantee='transactional')"),
    (lambda: OnceKey("sqlite:///a.db", scope=SHARED).flask(lambda: None), "the policy says 'at_most_once'"),
    (lambda: OnceKey("memory://", scope=SHARED, policy=TRANSACTIONAL).django(), "cannot commit together"),
    (lambda: installation("sqlite:///a.db").fastapi(None), "once.fastapi(session=get_session)"),
    (lambda: installation("sqlite:///a.db").flask("session"), "lambda: g.connection"),
]


@pytest.mark.parametrize(("make", "says"), REFUSED, ids=[says for _, says in REFUSED])
def test_without_a_session_the_word_is_refused(make: Callable[[], Any], says: str) -> None:
    """When the layer is made, with what to write instead: a promise that nothing keeps is not taken."""
    with pytest.raises(ConfigurationError) as refused:
        make()
    assert says in str(refused.value)


def test_views_that_cannot_be_held_together_are_refused() -> None:
    """Streams in FastAPI, coroutines in Flask and Django: when they are declared."""
    once = installation("sqlite:///a.db")

    def stream() -> Iterator[bytes]:
        yield b""

    async def view() -> None:
        """Not here."""

    with pytest.raises(ConfigurationError, match="is a stream"):
        APIRouter(route_class=once.fastapi(lambda: None)).post("/orders")(stream)
    for guard in (once.flask(lambda: None), once.django()):
        with pytest.raises(ConfigurationError, match="write it with def"):
            guard(view)


# ---- FastAPI -----------------------------------------------------------------------------------------------------


class Place:
    """FastAPI over sessions that are counted."""

    def __init__(self, url: str, **policy: Any) -> None:
        self.engine = create_engine(engine_url(url), poolclass=NullPool)
        self.told: list[str] = []
        self.once = installation(url, **policy)
        self.router = APIRouter(route_class=self.once.fastapi(self.session))

    def session(self) -> Iterator[Session]:
        with Session(self.engine) as session:
            yield session
        self.told.append("session ended")

    def orders(self) -> int:
        with self.engine.connect() as connection:
            return int(connection.execute(text("SELECT count(*) FROM orders")).scalar_one())

    def app(self, **choices: Any) -> FastAPI:
        app = FastAPI()
        app.include_router(self.router, **choices)
        return app


@pytest.fixture
def place(tmp_path: Any) -> Place:
    """On a file."""
    Shop(f"sqlite:///{tmp_path}/app.db").empty()
    return Place(f"sqlite:///{tmp_path}/app.db")


def test_the_commit_comes_first(place: Place) -> None:
    """Then the answer, then background tasks and the end of dependencies; a replay runs none of the tasks."""

    @place.router.post("/orders")
    def order(tasks: BackgroundTasks, session: Annotated[Session, Depends(place.session)]) -> str:
        session.execute(text(INSERT.format(1)))
        tasks.add_task(lambda: place.told.append(f"{place.orders()} committed"))
        return "done"

    with served(place.app()) as post:
        assert [post("k").body for _ in range(2)] == [b'"done"'] * 2
    assert place.told == ["1 committed", "session ended", "session ended"]


@pytest.mark.parametrize("how", ["scope", "annotated", "default", "nested", "nested scope"])
def test_the_session_is_the_endpoints_own(place: Place, how: str) -> None:
    """However it is asked for: with a scope of its own, by an annotation, or through another dependency."""
    mine: Any = Depends(place.session, scope="function" if "scope" in how else None)

    def repository(session: Annotated[Session, mine]) -> Session:
        return session

    def order(session: Annotated[Any, Depends(repository) if "nested" in how else mine]) -> str:
        session.execute(text(INSERT.format(1)))
        return "done"

    if how == "default":
        order.__annotations__["session"], order.__defaults__ = Session, (mine,)
    router = APIRouter(route_class=place.once.fastapi(session=mine if how == "nested scope" else place.session))
    router.post("/orders")(order)
    app = FastAPI()
    app.include_router(router, prefix="/v1")
    with served(app) as post:
        assert [post("k", at="/v1/orders").status for _ in range(2)] == [200, 200]
    assert place.orders() == 1


def test_another_session_than_the_endpoints_is_refused(place: Place) -> None:
    """A claim that does not commit with the work would be worth nothing."""

    @place.router.post("/orders")
    def order(
        one: Annotated[Session, Depends(place.session)],
        session: Annotated[Session, Depends(place.session, use_cache=False)],
    ) -> str:
        raise AssertionError

    with served(place.app()) as post:
        assert post("k").status == 500


def test_what_the_framework_refuses_needs_no_key(place: Place) -> None:
    """Logins and validation come before the claim: they are answered anew for every request."""
    seen = [401, 200]

    def login() -> None:
        if seen.pop(0) == 401:
            raise HTTPException(401)

    @place.router.post("/orders", dependencies=[Depends(login)])
    def order(number: int, session: Annotated[Session, Depends(place.session)]) -> str:
        return "done"

    with served(place.app()) as post:
        assert [post("k", at="/orders?number=1").status for _ in range(2)] == [401, 200]
        seen += [200, 200]
        assert post("k", at="/orders?number=one").status == 422
        assert not post("k2", at="/orders?number=1").replayed


def test_an_exception_of_http_leaves_the_key_free(place: Place) -> None:
    """As any exception: what was written is undone, and the retry runs."""
    told = [HTTPException(404), None]

    @place.router.post("/orders")
    def order(session: Annotated[Session, Depends(place.session)]) -> str:
        session.execute(text(INSERT.format(1)))
        if (error := told.pop(0)) is not None:
            raise error
        return "done"

    with served(place.app()) as post:
        assert [post("k").status for _ in range(3)] == [404, 200, 200]
    assert place.orders() == 1


def test_the_page_of_the_api_shows_the_key(place: Place) -> None:
    """In OpenAPI, once, also for a router that is included; methods that are not guarded have none."""

    @place.router.post("/orders")
    def order(session: Annotated[Session, Depends(place.session)]) -> str:
        return "done"

    @place.router.get("/orders")
    def orders() -> str:
        return "all"

    paths = place.app(prefix="/v1").openapi()["paths"]["/v1/orders"]
    (parameter,) = paths["post"]["parameters"]
    assert (parameter["name"], parameter["in"], parameter["required"]) == ("Idempotency-Key", "header", True)
    assert {"400", "409", "422", "503"} <= set(paths["post"]["responses"])
    assert "parameters" not in paths["get"]


def test_the_operation_is_in_the_scope(place: Place) -> None:
    """With its key and derived keys; what needs a record that others see says where it belongs."""
    found: list[Any] = []

    @place.router.post("/orders")
    def order(request: Request, session: Annotated[Session, Depends(place.session)]) -> str:
        operation = request.scope["oncekey"]
        found.append(
            (operation.key, operation.attempt, operation.connection is session, len(operation.derived_key("a")))
        )
        for use in (operation.external, lambda name: operation.step(name, print)):
            with pytest.raises(ConfigurationError, match="guarantee='transactional'"):
                use("psp")
        return "done"

    with served(place.app()) as post:
        assert post("k").status == 200
    assert found == [("k", 1, True, 36)]


async def test_a_layer_in_front_is_the_one_that_counts(place: Place) -> None:
    """Guarded by a middleware already, the route does not claim the same key again."""

    @place.router.post("/orders")
    def order(session: Annotated[Session, Depends(place.session)]) -> str:
        return "done"

    layer = OnceKeyMiddleware(place.app(), place.once.store, scope=SHARED)
    answer = await call(layer, http(path="/orders"))
    assert (answer.status, answer.body) == (200, b'"done"')
    await layer.engine.close()


async def test_who_is_cancelled_in_the_commit_has_committed(tmp_path: Any) -> None:
    """A middleware that cancels when the client leaves does not leave a commit half way."""
    shop = Shop(f"sqlite:///{tmp_path}/app.db")
    shop.empty()
    engine = create_async_engine(engine_url(shop.url, awaited=True), poolclass=NullPool)
    committing, go_on = asyncio.Event(), asyncio.Event()

    class Slow(AsyncSession):
        async def commit(self) -> None:
            committing.set()
            await go_on.wait()
            await super().commit()

    async def get_session() -> AsyncIterator[AsyncSession]:
        async with Slow(engine) as session:
            await session.execute(text("SELECT 1"))
            yield session

    router = APIRouter(route_class=shop.once.fastapi(get_session))

    @router.post("/orders")
    async def order(session: Annotated[AsyncSession, Depends(get_session)]) -> str:
        await session.execute(text(INSERT.format(1)))
        return "done"

    app, wire = FastAPI(), Wire()
    app.include_router(router)
    task = asyncio.create_task(app(http(path="/orders", root_path=""), wire.receive, wire.send))
    await committing.wait()
    task.cancel()
    await asyncio.sleep(0)
    go_on.set()
    with pytest.raises(asyncio.CancelledError):
        await task
    await engine.dispose()
    record = shop.record("key-1")
    assert record is not None
    assert (record.state, shop.orders()) == (State.COMPLETED, ["1"])


async def test_half_an_upload_runs_nothing(place: Place) -> None:
    """A client that leaves before the last byte has sent nothing."""

    @place.router.post("/orders")
    async def order(request: Request, session: Annotated[Session, Depends(place.session)]) -> str:
        raise AssertionError

    answer = await call(place.app(), http(path="/orders", root_path=""), chunks(b"{", complete=False))
    assert dict(answer.headers)[b"idempotency-problem"] == b"body-incomplete"


def test_a_block_of_psycopgs_own_is_refused(shop: Shop) -> None:
    """It ends when it likes, so the answer could not be true: refused before anything is run."""

    def get_connection() -> Iterator[Any]:
        with psycopg.connect(shop.url) as connection, connection.transaction():
            yield connection

    with served(apps.fastapi_app(shop.once, get_connection)) as post:
        assert (post("k", number="1").status, shop.orders()) == (503, [])


def test_a_block_of_the_sessions_own_is_taken_over(place: Place) -> None:
    """A dependency that begins and commits by itself finds that it is done."""

    def get_session() -> Iterator[Session]:
        with Session(place.engine) as session, session.begin():
            yield session

    with served(apps.fastapi_app(place.once, get_session)) as post:
        assert [post("k", number="1").status for _ in range(2)] == [201, 201]
        assert post("other", number="2", do="fail").status == 500
    assert place.orders() == 1


# ---- Flask and Django --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("opened", [apps.flask_session, apps.django_decorated], ids=["flask", "django"])
def test_half_a_body_is_no_body(opened: Any, tmp_path: Any) -> None:
    """An upload that ends early, or whose end nobody knows, runs nothing."""
    shop = Shop(f"sqlite:///{tmp_path}/app.db")
    shop.empty()
    with opened(shop.url) as post:
        assert raw(opened, post, {"CONTENT_LENGTH": "500"}, b'{"number": "1"}') == 400
        chunked = {"HTTP_TRANSFER_ENCODING": "chunked", "CONTENT_LENGTH": ""}
        assert raw(opened, post, chunked, b"5\r\n{}\r\n") == 411
        assert raw(opened, post, {"CONTENT_LENGTH": str(2 << 20)}, b"") == 413
        assert raw(opened, post, {"CONTENT_LENGTH": "9" * 5000}, b"") == 413
    assert shop.orders() == []


def raw(opened: Any, post: Post, more: dict[str, str], body: bytes) -> int:
    """A request as a server would hand it over, and the status of its answer."""
    environ = {"REQUEST_METHOD": "POST", "PATH_INFO": "/orders", "SERVER_NAME": "s", "SERVER_PORT": "80"}
    environ |= {"HTTP_IDEMPOTENCY_KEY": "k", "HTTP_AUTHORIZATION": "a", "CONTENT_TYPE": "application/json"}
    environ |= {"SERVER_PROTOCOL": "HTTP/1.1", "wsgi.url_scheme": "http", "SCRIPT_NAME": "", "QUERY_STRING": ""} | more
    given: list[str] = []
    application: Any = post.application  # type: ignore[attr-defined]
    answer = application(environ | {"wsgi.input": io.BytesIO(body)}, lambda status, headers, *_: given.append(status))
    b"".join(answer)
    getattr(answer, "close", lambda: None)()
    return int(given[0][:3])


def test_a_form_that_was_read_before_is_said(place: Place) -> None:
    """Its bytes are gone, so nobody can tell whether a retry is the same request: refused."""
    app = Flask("shop")
    session = Session(place.engine)

    @app.before_request
    def look() -> None:
        from flask import request

        assert request.form

    @app.post("/orders")
    @place.once.flask(session=lambda: session)
    def order() -> str:
        raise AssertionError

    sent = app.test_client().post("/orders", data={"a": "1"}, headers=apps.headers("k"))
    assert sent.status_code == 503
    session.close()


def test_a_rollback_that_the_code_asks_for_keeps_nothing(shop: Shop) -> None:
    """Django's set_rollback: the answer goes out as it is, and the retry runs."""
    from django.db import transaction
    from django.http import HttpResponse

    def view(request: Any) -> Any:
        from django.db import connections

        with connections[ALIAS].cursor() as cursor:
            cursor.execute(INSERT.format(1))
        transaction.set_rollback(True, using=ALIAS)
        return HttpResponse("never mind", status=202)

    with apps.asked_of_django(shop.url, shop.once.django(ALIAS)(view)) as post:
        assert [post("k").replayed for _ in range(2)] == [False, False]
    assert (shop.orders(), shop.record("k")) == ([], None)


def test_other_methods_are_as_they_were(shop: Shop) -> None:
    """A GET of a guarded view, or of any behind the middleware, needs no key."""
    from django.http import HttpResponse
    from django.test import Client

    with apps.asked_of_django(shop.url, shop.once.django(ALIAS)(lambda request: HttpResponse("all"))):
        assert Client().get("/orders").content == b"all"
    app = Flask("shop")
    app.get("/orders")(shop.once.flask(lambda: None)(lambda: "all"))
    assert app.test_client().get("/orders").data == b"all"
