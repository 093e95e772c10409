"""The same shop in every framework: orders that are written on the session that the framework has.

`POST /orders` with `{"number": ..., "do": ...}` writes an order and then does as it is told.
"""

import json
import warnings
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from typing import Annotated, Any, NamedTuple

import psycopg
from django.core.handlers.wsgi import WSGIHandler
from django.http import HttpResponse, JsonResponse, StreamingHttpResponse
from django.test import Client, override_settings
from django.urls import path as django_path
from fastapi import APIRouter, Depends, FastAPI
from fastapi.responses import JSONResponse, Response, StreamingResponse
from flask import Flask, g, jsonify, request
from flask import Response as FlaskResponse
from sqlalchemy import Connection, NullPool, create_engine, text
from sqlalchemy.ext.asyncio import AsyncSession, create_async_engine
from sqlalchemy.orm import Session, scoped_session, sessionmaker

from oncekey import Declined, NotExecuted, OnceKey, OutcomeUnknown, Policy, by_header
from tests.effects.kinds import ALIAS, engine_url, on_django

with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # it would rather have a successor of httpx that few people have yet
    from fastapi.testclient import TestClient

INSERT = "INSERT INTO orders (number) VALUES ('{}')"
COLLIDE = "DO $$ BEGIN RAISE EXCEPTION 'again' USING ERRCODE = '40001'; END $$"
RAISED: dict[str, Exception] = {
    "fail": ValueError("no"),
    "declined": Declined({"reason": "card"}, 402),
    "not-executed": NotExecuted(),
    "unknown": OutcomeUnknown(),
}


@dataclass(frozen=True)
class Answer:
    """What a client got."""

    status: int
    headers: Mapping[str, str]
    body: bytes

    def __getitem__(self, name: str) -> str:
        return next((value for found, value in self.headers.items() if found.lower() == name), "")

    @property
    def problem(self) -> str:
        return self["idempotency-problem"]

    @property
    def replayed(self) -> bool:
        return self["idempotency-replayed"] == "true"


Post = Callable[..., Answer]


def installation(url: str, **policy: Any) -> OnceKey:
    return OnceKey(url, scope=by_header("Authorization"), policy=Policy(guarantee="transactional", **policy))


def headers(key: str | None) -> dict[str, str]:
    known = {"Authorization": "Bearer alice"}
    return known if key is None else known | {"Idempotency-Key": key}


def said(asked: dict[str, Any]) -> tuple[int, dict[str, Any]]:
    """The answer to an order: 201, or the status that it asks for."""
    do = asked.get("do", "")
    return (int(do) if do.isdigit() else 201), {"number": asked["number"]}


def raised(asked: dict[str, Any]) -> None:
    """Raise what the order asks for."""
    if asked.get("do", "") in RAISED:
        raise RAISED[asked["do"]]


def chunks() -> Iterator[bytes]:
    yield b"a"
    yield b"b"


# ---- FastAPI -----------------------------------------------------------------------------------------------------


def fastapi_app(once: OnceKey, get_session: Callable[..., Any], *, login: bool = False) -> FastAPI:
    """Plain endpoints on a session that blocks; `login` reads on it before the endpoint does."""
    router = APIRouter(route_class=once.fastapi(session=get_session))

    def logged_in(session: Annotated[Any, Depends(get_session)]) -> None:
        if login:
            run(session, "SELECT count(*) FROM orders")

    @router.post("/orders", status_code=201, dependencies=[Depends(logged_in)])
    def order(asked: dict[str, Any], session: Annotated[Any, Depends(get_session)]) -> Any:
        written(session, asked)
        status, body = said(asked)
        return StreamingResponse(chunks()) if asked.get("do") == "stream" else JSONResponse(body, status)

    app = FastAPI()
    app.include_router(router)
    return app


def run(session: Any, sql: str) -> None:
    session.execute(text(sql) if isinstance(session, Session | scoped_session | Connection) else sql)


def written(session: Any, asked: dict[str, Any]) -> None:
    """What every endpoint does."""
    run(session, INSERT.format(asked["number"]))
    raised(asked)
    if asked.get("do") == "commit":
        # psycopg itself lets nobody commit inside of its block; the server does.
        run(session, "COMMIT") if isinstance(session, psycopg.Connection) else session.commit()
    if asked.get("do") == "collide":
        run(session, COLLIDE)


@contextmanager
def served(app: FastAPI) -> Iterator[Post]:
    with TestClient(app, raise_server_exceptions=False) as client:

        def post(key: str | None, at: str = "/orders", **asked: Any) -> Answer:
            given = client.post(at, json=asked, headers=headers(key))
            return Answer(given.status_code, given.headers, given.content)

        yield post


@contextmanager
def fastapi_session(url: str, login: bool = False, **policy: Any) -> Iterator[Post]:
    """FastAPI on SQLAlchemy's sessions."""
    engine = create_engine(engine_url(url), poolclass=NullPool)

    def get_session() -> Iterator[Session]:
        with Session(engine) as session:
            yield session

    with served(fastapi_app(installation(url, **policy), get_session, login=login)) as post:
        yield post
    engine.dispose()


@contextmanager
def fastapi_psycopg(url: str, login: bool = False, **policy: Any) -> Iterator[Post]:
    """FastAPI on psycopg's connections."""

    def get_connection() -> Iterator[Any]:
        with psycopg.connect(url) as connection:
            yield connection

    with served(fastapi_app(installation(url, **policy), get_connection, login=login)) as post:
        yield post


@contextmanager
def fastapi_async(url: str, login: bool = False, **policy: Any) -> Iterator[Post]:
    """FastAPI on SQLAlchemy's asyncio sessions."""
    engine = create_async_engine(engine_url(url, awaited=True), poolclass=NullPool)

    async def get_session() -> AsyncIterator[AsyncSession]:
        async with AsyncSession(engine) as session:
            yield session

    router = APIRouter(route_class=installation(url, **policy).fastapi(session=get_session))

    async def logged_in(session: Annotated[AsyncSession, Depends(get_session)]) -> None:
        if login:
            await session.execute(text("SELECT count(*) FROM orders"))

    @router.post("/orders", status_code=201, dependencies=[Depends(logged_in)])
    async def order(
        asked: dict[str, Any], response: Response, session: Annotated[AsyncSession, Depends(get_session)]
    ) -> Any:
        await session.execute(text(INSERT.format(asked["number"])))
        raised(asked)
        if asked.get("do") == "commit":
            await session.commit()
        if asked.get("do") == "collide":
            await session.execute(text(COLLIDE))
        if asked.get("do") == "stream":
            return StreamingResponse(chunks())
        response.status_code, body = said(asked)
        return body

    app = FastAPI()
    app.include_router(router)
    with served(app) as post:
        yield post


# ---- Flask -------------------------------------------------------------------------------------------------------


def flask_app(once: OnceKey, session: Any, given: Any, *, login: bool = False) -> Flask:
    """`session` is what OnceKey is given, `given()` what the view writes on."""
    app = Flask("shop")

    @app.before_request
    def logged_in() -> None:
        if login:
            run(given(), "SELECT count(*) FROM orders")

    @app.post("/orders")
    @once.flask(session=session)
    def order() -> Any:
        asked = request.get_json()
        written(given(), asked)
        status, body = said(asked)
        return FlaskResponse(chunks()) if asked.get("do") == "stream" else (jsonify(body), status)

    return app


def asking(app: Flask) -> Post:
    def post(key: str | None, at: str = "/orders", **asked: Any) -> Answer:
        answer = app.test_client().post(at, json=asked, headers=headers(key))
        return Answer(answer.status_code, dict(answer.headers.to_wsgi_list()), answer.get_data())

    post.application = app  # type: ignore[attr-defined]
    return post


@contextmanager
def flask_session(url: str, login: bool = False, **policy: Any) -> Iterator[Post]:
    """Flask on a scoped session."""
    engine = create_engine(engine_url(url), poolclass=NullPool)
    session = scoped_session(sessionmaker(engine))
    app = flask_app(installation(url, **policy), session, lambda: session, login=login)

    @app.teardown_appcontext
    def over(error: BaseException | None) -> None:
        session.remove()

    yield asking(app)
    engine.dispose()


@contextmanager
def flask_connection(url: str, login: bool = False, **policy: Any) -> Iterator[Post]:
    """Flask on a connection of the request's own."""
    engine = create_engine(engine_url(url), poolclass=NullPool)

    def connection() -> Any:
        if "connection" not in g:
            g.connection = engine.connect()
        return g.connection

    app = flask_app(installation(url, **policy), connection, connection, login=login)

    @app.teardown_appcontext
    def over(error: BaseException | None) -> None:
        if "connection" in g:
            g.pop("connection").close()

    yield asking(app)
    engine.dispose()


# ---- Django ------------------------------------------------------------------------------------------------------


class Urls:
    """What Django wants as a module of addresses."""

    def __init__(self, view: Any) -> None:
        self.urlpatterns = [django_path("orders", view)]


def django_view(wrap: Callable[[Any], Any], *, login: bool) -> Any:
    from django.db import connections

    def view(request: Any) -> Any:
        asked = json.loads(request.body)
        with connections[ALIAS].cursor() as cursor:
            if login:
                cursor.execute("SELECT count(*) FROM orders")
            cursor.execute(INSERT.format(asked["number"]))
            raised(asked)
            if asked.get("do") == "commit":
                cursor.execute("COMMIT")
            if asked.get("do") == "collide":
                cursor.execute(COLLIDE)
        status, body = said(asked)
        return StreamingHttpResponse(chunks()) if asked.get("do") == "stream" else JsonResponse(body, status=status)

    return wrap(view)


@contextmanager
def asked_of_django(url: str, view: Any, *middleware: str, atomic: bool = False) -> Iterator[Post]:
    from django.db import connections

    where = override_settings(ROOT_URLCONF=Urls(view), ALLOWED_HOSTS=["*"], MIDDLEWARE=list(middleware))
    with on_django(url), where:
        connections.settings[ALIAS]["ATOMIC_REQUESTS"] = atomic
        client = Client(raise_request_exception=False)

        def post(key: str | None, at: str = "/orders", **asked: Any) -> Answer:
            known = {f"HTTP_{name.upper().replace('-', '_')}": value for name, value in headers(key).items()}
            given: HttpResponse = client.post(at, json.dumps(asked), "application/json", **known)
            body = given.getvalue()
            return Answer(given.status_code, given.headers, body)

        post.application = WSGIHandler()  # type: ignore[attr-defined]
        yield post


@contextmanager
def django_decorated(url: str, login: bool = False, **policy: Any) -> Iterator[Post]:
    """Django, by a decorator."""
    with asked_of_django(url, django_view(installation(url, **policy).django(ALIAS), login=login)) as post:
        yield post


@contextmanager
def django_atomic(url: str, login: bool = False, **policy: Any) -> Iterator[Post]:
    """The same where all requests are atomic."""
    view = django_view(installation(url, **policy).django(ALIAS), login=login)
    with asked_of_django(url, view, atomic=True) as post:
        yield post


guard: Any = None


@contextmanager
def django_middleware(url: str, login: bool = False, **policy: Any) -> Iterator[Post]:
    """Django, by a middleware."""
    global guard  # noqa: PLW0603 - Django finds a middleware by its name
    guard = installation(url, **policy).django(ALIAS).middleware
    with asked_of_django(url, django_view(lambda view: view, login=login), f"{__name__}.guard", atomic=True) as post:
        yield post


class Kind(NamedTuple):
    """One framework on one database; `opened` takes the URL and gives what posts to it."""

    name: str
    database: str
    opened: Callable[..., AbstractContextManager[Post]]


APPS = (
    *(fastapi_session, fastapi_async, fastapi_psycopg),
    *(flask_session, flask_connection, django_decorated, django_atomic, django_middleware),
)
KINDS = [
    Kind(app.__name__, database, app)
    for app in APPS
    for database in ("postgresql", "sqlite")
    if not (app is fastapi_psycopg and database == "sqlite")
]


def named(kind: Kind) -> str:
    """For the names of tests."""
    return f"{kind.name}-{kind.database}".replace("_", "-")
