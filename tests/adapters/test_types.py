"""What a type checker sees of the public names. This file is checked by mypy together with everything else."""

from __future__ import annotations

import inspect

import pytest
from starlette.applications import Starlette
from starlette.middleware import Middleware

from oncekey import OnceKey, OnceKeyMiddleware, OnceKeyWSGI, Policy, by_header
from oncekey.http.gate import Choices, Gate


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
