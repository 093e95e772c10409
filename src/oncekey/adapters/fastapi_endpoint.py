"""An endpoint of FastAPI that claims the key of its request before it does anything."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Iterable
from typing import Any, get_type_hints

from fastapi import Depends, Request
from fastapi.responses import Response

from oncekey.adapters.fastapi_threads import on_thread
from oncekey.effects.connections import is_awaited
from oncekey.effects.link import drive, drive_async
from oncekey.errors import ConfigurationError
from oncekey.http.messages import Reply

# Where the endpoint finds its operation, and we the request that it is.
OPERATION, GUARDING = "oncekey", "oncekey.guarding"


def entering(endpoint: Callable[..., Any], session: Any) -> Callable[..., Any]:
    """The endpoint, which first claims the key of its request."""
    if inspect.isgeneratorfunction(endpoint) or inspect.isasyncgenfunction(endpoint):
        raise ConfigurationError(
            f"{endpoint.__name__}() is a stream, which goes on when its transaction has ended: let it return its "
            "answer, or put it on a router without once.fastapi(...)"
        )
    known = inspect.signature(endpoint)
    asked = _asked(endpoint, known, session)
    wrap = _awaited if inspect.iscoroutinefunction(endpoint) else _plain
    entered = wrap(endpoint, functools.partial(_check, endpoint.__name__, asked))
    only = functools.partial(inspect.Parameter, kind=inspect.Parameter.KEYWORD_ONLY)
    word = next(iter(asked.values()), session)
    ours = only("oncekey_request", default=Depends(_at_hand)), only("oncekey_session", default=word)
    entered.__signature__ = known.replace(parameters=[*known.parameters.values(), *ours])  # type: ignore[attr-defined]
    entered.oncekey = True  # type: ignore[attr-defined]
    return entered


def _awaited(endpoint: Callable[..., Any], check: Callable[..., None]) -> Callable[..., Any]:
    @functools.wraps(endpoint)
    async def entered(*args: Any, oncekey_request: Request, oncekey_session: Any, **kwargs: Any) -> Any:
        guarding = oncekey_request.scope.get(GUARDING)
        if guarding is not None:
            check(oncekey_session, kwargs)
            awaited = is_awaited(oncekey_session)
            flow = guarding.enter(oncekey_session, awaited=awaited)
            reply = await (drive_async(flow) if awaited else on_thread(functools.partial(drive, flow)))
            if reply is not None:
                return response_of(reply)
            oncekey_request.scope[OPERATION] = guarding.operation
        return await endpoint(*args, **kwargs)

    return entered


def _plain(endpoint: Callable[..., Any], check: Callable[..., None]) -> Callable[..., Any]:
    def work(*args: Any, oncekey_request: Request, oncekey_session: Any, **kwargs: Any) -> Any:
        guarding = oncekey_request.scope.get(GUARDING)
        if guarding is not None:
            check(oncekey_session, kwargs)
            reply = drive(guarding.enter(oncekey_session, awaited=False))
            if reply is not None:
                return response_of(reply)
            oncekey_request.scope[OPERATION] = guarding.operation
        return endpoint(*args, **kwargs)

    @functools.wraps(endpoint)
    async def entered(*args: Any, **kwargs: Any) -> Any:
        return await on_thread(functools.partial(work, *args, **kwargs))

    return entered


def _check(endpoint: str, asked: Iterable[str], found: Any, values: dict[str, Any]) -> None:
    """Refuse an endpoint that writes on another session than the one on which its key would be claimed."""
    for name in asked:
        if values.get(name) is not found:
            raise ConfigurationError(
                f"{endpoint}() is given a {name} of its own: take it by Depends(...) without use_cache=False"
            )


async def _at_hand(request: Request) -> Request:
    """The request. FastAPI gives it to one parameter of a function alone, and the endpoint may want it too."""
    return request


def _asked(endpoint: Callable[..., Any], known: inspect.Signature, session: Any) -> dict[str, Any]:
    """The parameters by which the endpoint itself asks for the session, and in which words: its scope must be ours."""
    try:
        hints = get_type_hints(endpoint, include_extras=True)
    except NameError:
        hints = {}
    said = {
        name: (one.default, *getattr(hints.get(name), "__metadata__", ())) for name, one in known.parameters.items()
    }
    return {
        name: word
        for name, words in said.items()
        for word in words
        if getattr(word, "dependency", None) == session.dependency
    }


def response_of(reply: Reply) -> Response:
    """An answer of ours as FastAPI sends it."""
    response = Response(reply.body, reply.status)
    response.raw_headers = [(name.lower(), value) for name, value in reply.headers]
    return response
