"""Endpoints of our own as ASGI and WSGI applications: mount them where you like."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from oncekey.adapters.asgi_answer import send_reply
from oncekey.adapters.asgi_upload import path_of
from oncekey.adapters.wsgi_answer import told
from oncekey.adapters.wsgi_upload import PIECE, request_of
from oncekey.engine.events import log
from oncekey.errors import OnceKeyError
from oncekey.http.messages import Reply, Request
from oncekey.http.plain import Endpoint, plain_problem

if TYPE_CHECKING:
    from wsgiref.types import StartResponse, WSGIEnvironment

    from oncekey.adapters.asgi import Message, Receive, Scope, Send
    from oncekey.stores.contract import AsyncStore, Store

LARGEST = 1 << 20
DIGITS = 19  # longer numbers are larger, and Python does not read them
TOO_LARGE = plain_problem(413, f"The body is over the limit of {LARGEST} bytes.")
AWAY = "The records cannot be reached. Ask again later."


class AsgiEndpoint:
    """An ASGI application that serves one endpoint."""

    def __init__(self, endpoint: Endpoint, store: Callable[[], AsyncStore]) -> None:
        self.endpoint = endpoint
        self._store = store

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one connection scope."""
        if scope["type"] == "lifespan":
            await _live(receive, send)
            return
        headers = [(name.lower(), value) for name, value in scope["headers"]]
        request = Request(scope["method"], path_of(scope), scope.get("query_string", b""), headers, b"")
        reply = await _read(request, receive) or await self.reply(request)
        await send_reply(send, _without_body(reply) if request.method == "HEAD" else reply)

    async def reply(self, request: Request) -> Reply:
        """The reply to a request that has been read."""
        steps = self.endpoint(request)
        try:
            store, step = self._store(), next(steps)
            while True:
                try:
                    answer = await step(store)
                except OnceKeyError as error:
                    step = steps.throw(error)  # an endpoint may know what to do without the store
                else:
                    step = steps.send(answer)
        except StopIteration as end:
            return end.value  # type: ignore[no-any-return]
        except OnceKeyError as error:
            return _trouble(error)


class WsgiEndpoint:
    """A WSGI application that serves one endpoint."""

    def __init__(self, endpoint: Endpoint, store: Callable[[], Store]) -> None:
        self.endpoint = endpoint
        self._store = store

    def __call__(self, environ: WSGIEnvironment, start_response: StartResponse) -> list[bytes]:
        """Serve one request."""
        request = request_of(environ)
        length = (environ.get("CONTENT_LENGTH") or "").lstrip("0") or "0"
        if not (length.isascii() and length.isdigit()) or len(length) > DIGITS or int(length) > LARGEST:
            return told(TOO_LARGE, start_response)
        request.body = _whole(environ["wsgi.input"], int(length))
        reply = self.reply(request)
        return told(_without_body(reply) if request.method == "HEAD" else reply, start_response)

    def reply(self, request: Request) -> Reply:
        """The reply to a request that has been read."""
        steps = self.endpoint(request)
        try:
            store, step = self._store(), next(steps)
            while True:
                try:
                    answer = step(store)
                except OnceKeyError as error:
                    step = steps.throw(error)  # as above
                else:
                    step = steps.send(answer)
        except StopIteration as end:
            return end.value  # type: ignore[no-any-return]
        except OnceKeyError as error:
            return _trouble(error)


async def _read(request: Request, receive: Receive) -> Reply | None:
    """Read the body into the request; or why not."""
    pieces, size = [], 0
    while True:
        message = await receive()
        if message["type"] != "http.request":
            return plain_problem(400, "The upload ended before the body did.")
        pieces.append(message.get("body", b""))
        size += len(pieces[-1])
        if size > LARGEST:
            return TOO_LARGE
        if not message.get("more_body", False):
            request.body = b"".join(pieces)
            return None


def _whole(stream: Any, left: int) -> bytes:
    pieces = []
    while left and (piece := stream.read(min(left, PIECE))):
        pieces.append(piece)
        left -= len(piece)
    return b"".join(pieces)


def _without_body(reply: Reply) -> Reply:
    return Reply(reply.status, reply.headers, b"")


def _trouble(error: OnceKeyError) -> Reply:
    """Nothing of a store's own message is shown to the client."""
    log.warning("an endpoint could not answer: %s", error)
    return plain_problem(503, AWAY, [(b"retry-after", b"2")])


async def _live(receive: Receive, send: Send) -> None:
    while True:
        message: Message = await receive()
        await send({"type": f"{message['type']}.complete"})
        if message["type"] == "lifespan.shutdown":
            return
