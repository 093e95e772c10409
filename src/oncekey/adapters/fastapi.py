"""OnceKey for FastAPI's routes, in the transaction of the session that they have: `once.fastapi(session=get_session)`.

    router = APIRouter(route_class=once.fastapi(session=get_session))

The key is claimed right before the endpoint is called: after logins, validation and all dependencies, on the session
that FastAPI gives to the endpoint too. The answer is kept and committed as soon as FastAPI has made it, before a
byte of it is sent and before a dependency ends. Background tasks run after both.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from typing import TYPE_CHECKING, Any

from fastapi import Depends, Request, __version__
from fastapi.responses import Response
from fastapi.routing import APIRoute

from oncekey.adapters.asgi_upload import Upload, path_of
from oncekey.adapters.fastapi_endpoint import GUARDING, OPERATION, entering, response_of
from oncekey.adapters.fastapi_threads import ended
from oncekey.effects.transaction.guarding import Guarding
from oncekey.errors import BodyIncomplete, ConfigurationError
from oncekey.http import messages
from oncekey.http.answer import refuse
from oncekey.http.documented import documented
from oncekey.http.messages import Reply

if TYPE_CHECKING:
    from oncekey.effects.transaction.context import House
    from oncekey.http.exchange import Exchange
    from oncekey.http.gate import Gate

OLDEST = 0, 118
RouteClass = type[APIRoute]
Handler = Callable[[Request], Coroutine[Any, Any, Response]]


def route_class(house: House, session: Any) -> RouteClass:
    """The class of routes whose writes are guarded; other methods are as they were."""
    if tuple(map(int, __version__.split(".")[:2])) < OLDEST:
        raise ConfigurationError(
            f"FastAPI {__version__} ends dependencies before the answer is known, and with them the session: "
            "pip install 'oncekey[fastapi]' brings one that does not"
        )
    word = session if hasattr(session, "dependency") else Depends(session)
    if not callable(word.dependency):
        raise ConfigurationError(f"session={session!r} is no dependency: write once.fastapi(session=get_session)")

    class OnceKeyRoute(APIRoute):
        oncekey_gate = house.gate  # by this `oncekey doctor --app` knows that the route is guarded

        def __init__(self, path: str, endpoint: Callable[..., Any], **choices: Any) -> None:
            # An included router makes its routes again, from endpoints that know already.
            if house.gate.methods.intersection(choices.get("methods") or ()) and not hasattr(endpoint, "oncekey"):
                choices["openapi_extra"] = documented(house.gate, choices.get("openapi_extra"))
                endpoint = entering(endpoint, word)
            super().__init__(path, endpoint, **choices)

        def get_route_handler(self) -> Handler:
            return _guarded(house, super().get_route_handler())

    return OnceKeyRoute


def _guarded(house: House, handler: Handler) -> Handler:
    """FastAPI's own handler of a route, in which the endpoint claims and after which we commit."""

    async def guarded(request: Request) -> Response:
        scope, gate = request.scope, house.gate
        # A layer in front that guards the request already is the one that counts.
        if OPERATION in scope or not gate.covers(scope["method"], scope["path"]):
            return await handler(request)
        asked = messages.Request(scope["method"], path_of(scope), scope["query_string"], list(scope["headers"]), b"")
        upload = Upload(request.receive, asked, gate)
        exchange = await _exchange(gate, asked, upload)
        if isinstance(exchange, Reply):
            return response_of(exchange)
        own = Request(scope, upload.again)
        if exchange is None:
            return await handler(own)
        scope[GUARDING] = guarding = Guarding(house, exchange)
        try:
            response = await handler(own)
        except BaseException as error:
            reply = await ended(guarding.failed(error), awaited=guarding.awaited) if guarding.running else None
            if reply is None:
                raise
            return response_of(reply)
        return await _kept(guarding, response)

    return guarded


async def _exchange(gate: Gate, asked: messages.Request, upload: Upload) -> Exchange | Reply | None:
    # A key in a header is looked at before the body is read; a key in the body cannot be.
    found = gate.key(asked) if gate.dialect.header is not None else ""
    if isinstance(found, str):
        refusal = await upload.read()
        if upload.gone:
            return refuse(gate.dialect, BodyIncomplete("the client left before the body's end; nothing was done"))
        found = refusal or found or gate.key(asked)
    return gate.prepare(asked, found) if isinstance(found, str) else found


async def _kept(guarding: Guarding, response: Response) -> Response:
    if not guarding.running:
        return response
    body = getattr(response, "body", None)  # a stream has none
    headers = response.raw_headers
    given = await ended(guarding.answered(response.status_code, headers, body), awaited=guarding.awaited)
    if isinstance(given, Reply):
        return response_of(given)
    headers.extend(given)
    return response
