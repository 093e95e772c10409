"""OnceKey for views of Django, in one `transaction.atomic` with what they write: `@once.django()`.

    guard = once.django()

    @guard
    def order(request): ...

    MIDDLEWARE = [..., "shop.idempotency"]       # with `idempotency = guard.middleware`, the last line of the list

A view that is guarded is taken out of ATOMIC_REQUESTS, for it has a transaction of its own.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar

from django.db import connections, transaction
from django.http import HttpRequest
from django.http.response import HttpResponseBase

from oncekey.adapters.django_messages import answer_of, body_of, mark, response_of
from oncekey.adapters.views import Framework, exchange_of, refused, run
from oncekey.adapters.wsgi_upload import OPERATION, request_of
from oncekey.effects.transaction.guarding import Guarding, TransactionOperation
from oncekey.errors import ConfigurationError, OnceKeyError
from oncekey.http.messages import Reply

if TYPE_CHECKING:
    from oncekey.effects.transaction.context import House

View = Callable[..., Any]
V = TypeVar("V", bound=View)


class DjangoGuard:
    """A decorator for views, and a middleware for all of them."""

    def __init__(self, house: House, using: str) -> None:
        self._house = house
        self._using = using
        self.oncekey_gate = house.gate  # by this `oncekey doctor --app` knows what is guarded

    def __call__(self, view: V) -> V:
        """The view, guarded."""
        if inspect.iscoroutinefunction(view):
            raise ConfigurationError(
                f"{view.__name__}() is async, and Django's transactions are for plain views: write it with def"
            )
        exempt: set[str] = getattr(view, "_non_atomic_requests", set())

        @functools.wraps(view)
        def guarded(request: HttpRequest, *args: Any, **kwargs: Any) -> Any:
            plain = functools.partial(_atomic(view, {self._using} - exempt), request, *args, **kwargs)
            if not self._covers(request):
                return plain()
            return self._guarded(request, functools.partial(view, request, *args, **kwargs), plain)

        guarded.oncekey_gate = self.oncekey_gate  # type: ignore[attr-defined] # as above
        guarded._non_atomic_requests = exempt | {self._using}  # type: ignore[attr-defined] # noqa: SLF001 - Django's own mark
        return guarded  # type: ignore[return-value] # the same, wrapped

    def middleware(self, get_response: Callable[[HttpRequest], HttpResponseBase]) -> Middleware:
        """A middleware that guards every view; it comes last in MIDDLEWARE, for it calls the view."""
        return Middleware(self, get_response)

    def view(self, request: HttpRequest, view: View, args: Any, kwargs: Any) -> Any:
        """What the middleware does with a view. None: Django calls it."""
        if not self._covers(request):
            return None
        elsewhere = _atomic(view, set(connections) - getattr(view, "_non_atomic_requests", set()) - {self._using})
        return self(elsewhere)(request, *args, **kwargs)

    def _covers(self, request: HttpRequest) -> bool:
        # A layer in front that guards the request already is the one that counts.
        return OPERATION not in request.META and self._house.gate.covers(request.method or "", request.path)

    def _guarded(self, request: HttpRequest, view: View, plain: View) -> Any:
        asked = request_of(request.META)
        asked.path = request.path
        try:
            exchange = exchange_of(self._house, asked, lambda: body_of(request))
        except OnceKeyError as error:
            exchange = refused(self._house, error)
        if exchange is None:
            return plain()
        if isinstance(exchange, Reply):
            return response_of(exchange)

        def called(operation: TransactionOperation) -> HttpResponseBase:
            request.META[OPERATION] = operation
            response: Any = view()
            if not isinstance(response, HttpResponseBase):
                raise TypeError(f"the view returned {type(response).__name__} and no HttpResponse")
            # A template is rendered as part of the work: what it reads belongs to the same transaction.
            return response.render() if hasattr(response, "render") else response

        connection = connections[self._using]
        framework = Framework(answer_of, response_of, mark, lambda: bool(connection.needs_rollback))
        return run(Guarding(self._house, exchange), connection, called, framework)


class Middleware:
    """As Django wants it."""

    def __init__(self, guard: DjangoGuard, get_response: Callable[[HttpRequest], HttpResponseBase]) -> None:
        self._get_response = get_response
        self.process_view = guard.view

    def __call__(self, request: HttpRequest) -> HttpResponseBase:
        """Everything is done once it is known which view it is."""
        return self._get_response(request)


def _atomic(view: View, aliases: set[str]) -> View:
    """What Django does to views under ATOMIC_REQUESTS."""
    for alias in aliases:
        if connections.settings[alias]["ATOMIC_REQUESTS"]:
            view = transaction.atomic(using=alias)(view)
    return view
