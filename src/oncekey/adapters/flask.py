"""OnceKey for views of Flask, in the transaction of the session that they have: `@once.flask(session=db.session)`.

The session is a scoped session, such as Flask-SQLAlchemy's, or a function that gives the connection of the request at
hand, such as `lambda: g.connection`. Put the decorator below `@app.post(...)` and below whatever checks logins.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar

from flask import Response, current_app, request

from oncekey.adapters.views import Answer, Framework, exchange_of, refused, run
from oncekey.adapters.wsgi_upload import OPERATION, LengthRequired, request_of
from oncekey.effects import connections
from oncekey.effects.transaction.guarding import Guarding, TransactionOperation
from oncekey.errors import ConfigurationError, OnceKeyError
from oncekey.http.messages import Headers, Reply

if TYPE_CHECKING:
    from oncekey.effects.transaction.context import House

View = TypeVar("View", bound=Callable[..., Any])


def guarding(house: House, session: Any) -> Callable[[View], View]:
    """A decorator for views."""
    if connections.found(session) is None and not callable(session):
        raise ConfigurationError(
            f"session={session!r} is no session: write once.flask(session=db.session), or a function that gives the "
            "connection of the request at hand, such as once.flask(session=lambda: g.connection)"
        )

    def guard(view: View) -> View:
        if inspect.iscoroutinefunction(view):
            raise ConfigurationError(
                f"{view.__name__}() is async, and Flask runs it on another thread than its session: write it with def"
            )

        @functools.wraps(view)
        def guarded(*args: Any, **kwargs: Any) -> Any:
            # A layer in front that guards the request already is the one that counts.
            if OPERATION in request.environ or not house.gate.covers(request.method, request.path):
                return view(*args, **kwargs)
            return _guarded(house, session, functools.partial(view, *args, **kwargs))

        guarded.oncekey_gate = house.gate  # type: ignore[attr-defined] # by this `oncekey doctor --app` knows it
        return guarded  # type: ignore[return-value] # the same, wrapped

    return guard


def _guarded(house: House, session: Any, view: Callable[[], Any]) -> Any:
    try:
        exchange = exchange_of(house, request_of(request.environ), _body)
    except OnceKeyError as error:
        exchange = refused(house, error)
    if exchange is None:
        return view()
    if isinstance(exchange, Reply):
        return _response(exchange)

    def called(operation: TransactionOperation) -> Response:
        request.environ[OPERATION] = operation
        return current_app.make_response(view())

    connection = session if connections.found(session) is not None else session()
    return run(Guarding(house, exchange), connection, called, Framework(_answer, _response, _mark))


def _body() -> bytes:
    """The whole body. Werkzeug itself refuses one that ends early."""
    if request.headers.get("Transfer-Encoding") and not request.environ.get("wsgi.input_terminated"):
        raise LengthRequired("this server cannot tell where the body ends: send it with a Content-Length")
    body = request.get_data(cache=True)
    if not body and request.content_length and "form" in vars(request._get_current_object()):  # type: ignore[attr-defined] # noqa: SLF001 - a proxy
        raise ConfigurationError(
            "something has read this form before its view: call request.get_data() first, so that the upload is kept"
        )
    return body


def _answer(response: Response) -> Answer:
    headers = [(name.encode("latin-1"), value.encode("latin-1")) for name, value in response.headers]
    streamed = response.is_streamed or response.direct_passthrough
    return Answer(response.status_code, headers, None if streamed else response.get_data())


def _response(reply: Reply) -> Response:
    headers = [(name.decode("latin-1"), value.decode("latin-1")) for name, value in reply.headers]
    return Response(reply.body, reply.status, headers)


def _mark(response: Response, marks: Headers) -> None:
    for name, value in marks:
        response.headers.add(name.decode("latin-1"), value.decode("latin-1"))
