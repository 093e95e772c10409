"""What a type checker sees of the public names. This file is checked by mypy together with everything else."""

from __future__ import annotations

import inspect
import sqlite3
from collections.abc import Coroutine
from typing import TYPE_CHECKING, TypeVar, assert_type

import pytest
from fastapi.routing import APIRoute
from starlette.applications import Starlette
from starlette.middleware import Middleware

import oncekey
from oncekey import OnceKey, OnceKeyMiddleware, OnceKeyWSGI, Policy, by_header
from oncekey.http.gate import Choices, Gate

T = TypeVar("T")


def test_the_choices_of_a_gate_have_types() -> None:
    """The words that adapters pass on are those that a gate takes."""
    assert set(inspect.signature(Gate).parameters) == set(Choices.__annotations__)


def test_frameworks_take_the_layers() -> None:
    """The lines of the README pass a strict type checker, and a wrong word does not."""
    app = Starlette(middleware=[Middleware(OnceKeyMiddleware, store="memory://", scope=by_header("Authorization"))])
    app.add_middleware(
        OnceKeyMiddleware, store="memory://", scope=by_header("X-User"), policy=Policy(), dialect="stripe"
    )
    OnceKeyWSGI(lambda environ, start: [], "memory://", scope=by_header("X-User"), required=False)
    OnceKey("memory://", scope=by_header("X-User"), dialect="square")
    app.add_middleware(OnceKeyMiddleware, store="memory://", scop=by_header("X-User"))  # type: ignore[call-arg]
    with pytest.raises(TypeError, match="scop"):
        app.build_middleware_stack()


def test_a_mistyped_name_is_found() -> None:
    """Names load when they are first used, and still a checker knows those that are not there."""
    with pytest.raises(AttributeError, match="by_haeder"):
        oncekey.by_haeder  # type: ignore[attr-defined]  # noqa: B018


def test_a_decorated_function_keeps_its_types() -> None:
    """Without the connection, which the transaction gives, and with all else."""
    once = OnceKey("sqlite:///shop.db", scope=by_header("X-User"), policy=Policy(guarantee="transactional"))

    def key(number: str) -> str:
        return number

    @once.transaction(lambda: sqlite3.connect("shop.db"), key=key, operation="order", caller="alice")
    def place(connection: sqlite3.Connection, number: str) -> dict[str, str]:
        return {"number": number}

    @once.transaction(lambda: sqlite3.connect("shop.db"), key=key, operation="order", caller="alice")
    async def place_async(connection: sqlite3.Connection, number: str) -> int:
        return len(number)

    if TYPE_CHECKING:
        assert_type(place("A-1"), dict[str, str])
        assert_type(await_me(place_async("A-1")), int)
        place(1)  # type: ignore[arg-type]
        place()  # type: ignore[call-arg]
        assert_type(once.fastapi(session=key), type[APIRoute])
    assert place.__name__ == "place"
    assert inspect.iscoroutinefunction(place_async)


def await_me(given: Coroutine[object, object, T]) -> T:
    """What would be awaited; for the checker only."""
    raise NotImplementedError
