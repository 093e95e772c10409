"""A database that is away, tables that are not there, commits that are refused, and duplicates that are held."""

import logging
import sys
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Annotated, Any

import pytest
from fastapi import APIRouter, Depends, FastAPI
from sqlalchemy import NullPool, create_engine, text
from sqlalchemy.exc import OperationalError
from sqlalchemy.ext.asyncio import AsyncSession, create_async_engine
from sqlalchemy.orm import Session, scoped_session, sessionmaker

import oncekey.adapters
from oncekey import ConfigurationError, MissingExtra, OnceKey, Policy, by_header
from oncekey.effects.transaction.block import Block
from oncekey.engine.events import Event
from oncekey.engine.sealing import Sealer
from tests.adapters.transactional import apps
from tests.adapters.transactional.apps import INSERT, installation, served
from tests.effects.kinds import ALIAS, engine_url
from tests.effects.transaction.shop import Shop

AWAY = "postgresql://oncekey@127.0.0.1:1/none"


@pytest.mark.parametrize("opened", [apps.fastapi_session, apps.fastapi_async, apps.flask_session])
def test_a_database_that_is_away_is_503(opened: Any) -> None:
    """Nothing is run where nothing can be claimed, and the client may send the same again."""
    with opened(AWAY) as post:
        told = post("k", number="1", do="fail")
    assert (told.status, told.problem, told["retry-after"].isdigit()) == (503, "store-unavailable", True)


@pytest.mark.parametrize("opened", [apps.fastapi_session, apps.flask_session, apps.django_decorated])
def test_tables_that_are_missing_are_said_in_the_log(
    opened: Any, tmp_path: Any, caplog: pytest.LogCaptureFixture
) -> None:
    """With the command that makes them; the client is told 503, and nothing of our set-up."""
    with caplog.at_level(logging.ERROR, "oncekey"), opened(f"sqlite:///{tmp_path}/empty.db") as post:
        told = post("k", number="1")
    assert (told.status, b"migrate" in told.body) == (503, False)
    assert "oncekey migrate" in caplog.text


def test_a_session_of_the_wrong_kind_is_refused(tmp_path: Any) -> None:
    """A plain endpoint on a session for asyncio, or on something that is no connection: nothing is run."""
    engine = create_async_engine(engine_url(f"sqlite:///{tmp_path}/app.db", awaited=True), poolclass=NullPool)
    once = installation(f"sqlite:///{tmp_path}/app.db")
    sessions: list[Any] = [lambda: AsyncSession(engine), lambda: "a session"]
    app = FastAPI()
    for number, session in enumerate(sessions):
        router = APIRouter(route_class=once.fastapi(session))

        @router.post(f"/{number}")
        def order(own: Annotated[Any, Depends(session)]) -> str:
            raise AssertionError

        app.include_router(router)
    with served(app) as post:
        assert [post("k", at=f"/{number}").status for number in range(2)] == [503, 503]


def test_a_no_that_cannot_be_kept_is_503(tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """A database that is away when a Declined is to be written down: the retry is told in the end, and nobody a 500."""
    shop = Shop(f"sqlite:///{tmp_path}/app.db")
    shop.empty()
    enter, entered = Block.enter, [True]

    def once(self: Block, *wait_for: Any) -> Any:
        if not entered:
            raise OperationalError("COMMIT", None, Exception("the server is away"))
        entered.clear()
        return enter(self, *wait_for)

    monkeypatch.setattr(Block, "enter", once)
    with apps.flask_session(shop.url) as post:
        told = post("k", number="1", do="declined")
        monkeypatch.undo()
        assert (told.status, told.problem, shop.record("k")) == (503, "store-unavailable", None)
        assert post("k", number="1", do="declined").status == 402


def test_a_commit_that_the_database_refuses_is_the_applications(shop: Shop) -> None:
    """A constraint that is checked at the commit: the framework answers 500, and nothing is kept."""
    engine = create_engine(engine_url(shop.url), poolclass=NullPool)
    with engine.begin() as connection:
        connection.execute(text("DROP TABLE IF EXISTS seats"))
        connection.execute(text("CREATE TABLE seats (number int UNIQUE DEFERRABLE INITIALLY DEFERRED)"))

    def get_session() -> Iterator[Session]:
        with Session(engine) as session:
            yield session

    router, app = APIRouter(route_class=shop.once.fastapi(get_session)), FastAPI()

    @router.post("/seats")
    def seat(session: Annotated[Session, Depends(get_session)]) -> str:
        session.execute(text("INSERT INTO seats VALUES (7)"))
        return "yours"

    app.include_router(router)
    with served(app) as post:
        assert [post(key, at="/seats").status for key in ("a", "b", "b", "a")] == [200, 500, 500, 200]
    engine.dispose()
    assert (shop.record("a") is not None, shop.record("b")) == (True, None)


def test_a_held_duplicate_is_given_the_answer(shop: Shop) -> None:
    """With `wait_for` it comes back by itself; while it waits it has no connection of the pool."""
    engine = create_engine(engine_url(shop.url), pool_size=2, max_overflow=0, pool_timeout=20)
    began, come = threading.Event(), threading.Semaphore(0)

    def get_session() -> Iterator[Session]:
        with Session(engine) as session:
            come.release()
            yield session

    once = installation(shop.url, wait_for=30.0)
    router, app = APIRouter(route_class=once.fastapi(get_session)), FastAPI()

    @router.post("/orders")
    def order(session: Annotated[Session, Depends(get_session)]) -> str:
        session.execute(text(INSERT.format(1)))
        began.set()
        for _ in range(6):  # the duplicates are there
            assert come.acquire(timeout=20)
        return "done"

    app.include_router(router)
    with served(app) as post, ThreadPoolExecutor(7) as threads:
        owner = threads.submit(post, "k")
        assert began.wait(20)
        held = list(threads.map(lambda _: post("k"), range(6)))
        assert owner.result().body == b'"done"'
    engine.dispose()
    assert [(one.status, one.body, one.replayed) for one in held] == [(200, b'"done"', True)] * 6
    assert shop.orders() == ["1"]


def test_sinks_are_told_how_it_ended(tmp_path: Any) -> None:
    """One event when the key is taken, and one for its end, whatever that is."""
    shop = Shop(f"sqlite:///{tmp_path}/app.db")
    shop.empty()
    told: list[Event] = []
    once = OnceKey(
        shop.url, scope=by_header("Authorization"), policy=Policy(guarantee="transactional"), sinks=(told.append,)
    )
    session = scoped_session(sessionmaker(create_engine(shop.url, poolclass=NullPool)))
    post = apps.asking(apps.flask_app(once, session, lambda: session))
    for key, do in (
        ("a", ""),
        ("a", ""),
        ("b", "503"),
        ("c", "fail"),
        ("d", "declined"),
        ("e", "unknown"),
        ("f", "commit"),
    ):
        post(key, number="1", do=do)
        session.remove()
    names = [event.name for event in told]
    assert names[:3] == ["created", "completed", "replayed"]
    ends = ["failed_retryable", "failed_retryable", "completed", "turned_unknown", "turned_unknown"]
    assert names[3:] == [name for end in ends for name in ("created", end)]
    assert all(event.ran_for is not None for event in told if event.name in {"completed", *ends})


@pytest.mark.parametrize("name", ["fastapi", "flask", "django"])
def test_without_the_framework_it_says_what_to_install(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The extra has the framework's own name."""
    for module in [module for module in sys.modules if module.startswith(f"oncekey.adapters.{name}")]:
        monkeypatch.delitem(sys.modules, module)
    for module in (name, "django.db"):
        monkeypatch.setitem(sys.modules, module, None)
    monkeypatch.setattr(oncekey.adapters, name, None, raising=False)
    once: Any = installation("sqlite:///a.db")
    with pytest.raises(MissingExtra, match=rf"oncekey\[{name}\]"):
        getattr(once, name)(*(() if name == "django" else (lambda: None,)))


def test_an_older_fastapi_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """One whose sessions would end before the commit."""
    monkeypatch.setattr("oncekey.adapters.fastapi.__version__", "0.117.1")
    with pytest.raises(ConfigurationError, match="before the answer is known"):
        installation("sqlite:///a.db").fastapi(lambda: None)


class Broken(Sealer):
    """Cannot write anything down."""

    def seal(self, id_: bytes, outcome: bytes) -> bytes:
        raise RuntimeError("the key ring is gone")


def test_an_answer_that_cannot_be_sealed_leaves_nothing_open(tmp_path: Any) -> None:
    """The framework answers 500, the work is undone, and the thread's connection is as good as before."""
    from django.db import connections

    shop = Shop(f"sqlite:///{tmp_path}/app.db")
    shop.empty()
    once = OnceKey(
        shop.url, scope=by_header("Authorization"), policy=Policy(guarantee="transactional"), sealer=Broken()
    )
    with apps.asked_of_django(shop.url, apps.django_view(once.django(ALIAS), login=False)) as post:
        assert [post("k", number="1").status for _ in range(2)] == [500, 500]
        assert not connections[ALIAS].in_atomic_block
    assert shop.orders() == []


def test_a_whole_application_may_be_of_such_routes(shop: Shop) -> None:
    """Without a router of its own: the application's router has a class for its routes too."""
    engine = create_engine(engine_url(shop.url), poolclass=NullPool)

    def get_session() -> Iterator[Session]:
        with Session(engine) as session:
            yield session

    app = FastAPI()
    app.router.route_class = installation(shop.url).fastapi(get_session)

    @app.post("/orders")
    def order(session: Annotated[Session, Depends(get_session)]) -> str:
        session.execute(text(INSERT.format(1)))
        return "done"

    with served(app) as post:
        assert [post("k").replayed for _ in range(2)] == [False, True]
    engine.dispose()
    assert shop.orders() == ["1"]
