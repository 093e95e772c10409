"""To find the routes of an application that change something, and which layers of OnceKey stand before each of them.

An application is looked at as it is: Starlette and FastAPI, Flask, Django, and whatever wraps them. No framework is
imported, for the application has done that. What cannot be looked into is said, never taken for guarded.

A layer shows itself by its `gate`; a view, a route or a middleware that is guarded in a transaction by `oncekey_gate`.
"""

from __future__ import annotations

import importlib
import inspect
import re
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from oncekey.http.gate import Gate

MUTATING = ("POST", "PUT", "PATCH", "DELETE")
# HTTP itself says of these that a repetition has no further effect: their handlers must see to that.
REPEATABLE = ("PUT", "DELETE")
UNREPEATABLE = tuple(method for method in MUTATING if method not in REPEATABLE)
ANY = ("ANY",)
MARK = "oncekey_gate"
# Where wrappers keep what they wrap.
INNER = ("app", "application", "wsgi_app", "asgi_app", "inner")
DEEPEST = 50
OURS = ("oncekey.adapters.", "oncekey.console.", "oncekey.telemetry.")
_PLACE = re.compile(r"\{[^}]*\}|<[^>]*>|\(\?P<[^)]*\)")


class Layer(NamedTuple):
    """One OnceKey before a route; `store` is its address, if it says so. `within`: it commits with the work."""

    gate: Gate
    store: str = ""
    within: bool = False


class Route(NamedTuple):
    """One method at one path that may change something, and the layers before it."""

    method: str
    path: str
    name: str
    layers: tuple[Layer, ...] = ()

    @property
    def guarded(self) -> bool:
        """Whether one of the layers takes such a request."""
        sample = _PLACE.sub("1", self.path)
        methods = UNREPEATABLE if (self.method,) == ANY else (self.method,)
        return any(all(layer.gate.covers(method, sample) for method in methods) for layer in self.layers)

    @property
    def repeatable(self) -> bool:
        """Whether HTTP says that repeating it does no harm."""
        return self.method in REPEATABLE

    def __str__(self) -> str:
        return f"{self.method} {self.path}"


@dataclass(slots=True)
class Surface:
    """What an application shows: routes that may change something, layers, and what nobody can look into."""

    routes: list[Route] = field(default_factory=list)
    layers: list[Layer] = field(default_factory=list)
    opaque: list[str] = field(default_factory=list)


def surface(app: object) -> Surface:
    """Walk through an application."""
    found = Surface()
    _Walk(found).into(app, "", ())
    found.layers = list({id(layer.gate): layer for layer in found.layers}.values())
    return found


class _Walk:
    def __init__(self, found: Surface) -> None:
        self.found = found
        self.depth = 0

    def into(self, app: Any, prefix: str, layers: tuple[Layer, ...]) -> None:
        """Whatever this is: unwrap it to what has routes."""
        self.depth += 1
        if self.depth > DEEPEST:
            self.found.opaque.append(f"{_named(app)} at {prefix or '/'}: it is nested too deeply")
        elif not _ours(app) and not _static(app):
            inside, layers = self.unwrapped(app, layers)
            self.routes_of(inside, prefix, layers)
        self.depth -= 1

    def unwrapped(self, app: Any, layers: tuple[Layer, ...]) -> tuple[Any, tuple[Layer, ...]]:
        """What is inside all wrappers, and the layers among them."""
        for _ in range(DEEPEST):
            layers = self.with_layer(app, layers)
            stack = _stack(app)
            if stack is not None and stack is not app:
                app = stack
                continue
            if _has_routes(app):
                break
            inner = next((getattr(app, name) for name in INNER if callable(getattr(app, name, None))), None)
            if inner is None or inner is app:
                break
            app = inner
        return app, layers

    def with_layer(self, app: Any, layers: tuple[Layer, ...]) -> tuple[Layer, ...]:
        """These layers, and the one that this thing is, if it is one."""
        layer = _layer(app)
        if layer is None:
            return layers
        self.found.layers.append(layer)
        return (*layers, layer)

    def routes_of(self, app: Any, prefix: str, layers: tuple[Layer, ...]) -> None:
        """The routes of what is inside."""
        owner = getattr(app, "__self__", app)
        if hasattr(owner, "url_map") and hasattr(owner, "view_functions"):
            self.flask(owner, prefix, layers)
        elif hasattr(app, "routes"):
            self.starlette(_contexts(app.routes), prefix, layers)
        elif type(owner).__module__.startswith("django.core.handlers"):
            self.django(prefix, layers)
        else:
            self.found.opaque.append(f"{_named(app)} at {prefix or '/'}")

    def add(self, methods: Iterable[str], path: str, view: Any, layers: tuple[Layer, ...]) -> None:
        """Remember what may change something."""
        layers = self.with_layer(view, layers)
        for method in sorted(methods):
            if method in MUTATING or (method,) == ANY:
                self.found.routes.append(Route(method, path or "/", _named(view), layers))

    # ---- Starlette, FastAPI --------------------------------------------------------------------------------------

    def starlette(self, routes: Iterable[Any], prefix: str, layers: tuple[Layer, ...]) -> None:
        for route in routes:
            path = f"{prefix}{getattr(route, 'path', '')}"
            original = getattr(route, "route", route)
            endpoint = getattr(route, "endpoint", None)
            if endpoint is None:
                inside = getattr(original, "app", None)
                if inside is not None:
                    self.into(inside, path, layers)
                continue
            if "WebSocket" in type(original).__name__:
                continue
            _, before = self.unwrapped(getattr(original, "app", None), self.with_layer(original, layers))
            if not _ours(endpoint):
                self.add(_methods(route, endpoint), path, endpoint, before)

    # ---- Flask ---------------------------------------------------------------------------------------------------

    def flask(self, app: Any, prefix: str, layers: tuple[Layer, ...]) -> None:
        for rule in app.url_map.iter_rules():
            view = app.view_functions.get(rule.endpoint)
            if view is not None:
                self.add(rule.methods or ANY, prefix + rule.rule, view, layers)

    # ---- Django --------------------------------------------------------------------------------------------------

    def django(self, prefix: str, layers: tuple[Layer, ...]) -> None:
        urls, conf = sys.modules.get("django.urls"), sys.modules.get("django.conf")
        if urls is None or conf is None:
            self.found.opaque.append("Django without its URLs: name the application that get_wsgi_application() makes")
            return
        for dotted in conf.settings.MIDDLEWARE:
            layers = self.with_layer(_imported(dotted), layers)
        self.patterns(urls.get_resolver().url_patterns, f"{prefix}/", layers)

    def patterns(self, patterns: Iterable[Any], prefix: str, layers: tuple[Layer, ...]) -> None:
        for one in patterns:
            path = prefix + str(one.pattern).lstrip("^").rstrip("$").removesuffix("\\Z")
            if hasattr(one, "url_patterns"):
                self.patterns(one.url_patterns, path, layers)
            elif not (getattr(one.callback, "__module__", "") or "").startswith("django."):
                self.add(_django_methods(one.callback), path, one.callback, layers)


def _layer(thing: Any) -> Layer | None:
    gate = getattr(thing, MARK, None) or getattr(getattr(thing, "__self__", None), MARK, None)
    if isinstance(gate, Gate):
        return Layer(gate, within=True)
    gate = getattr(thing, "gate", None)
    if not isinstance(gate, Gate):
        return None
    store = getattr(getattr(thing, "engine", None), "store", None)
    return Layer(gate, getattr(store, "url", ""))


def _stack(app: Any) -> Any:
    """The middleware of Starlette around its router, as it is built for the first request; or Flask's own."""
    build = getattr(app, "build_middleware_stack", None)
    if build is not None and hasattr(app, "user_middleware"):
        return app.middleware_stack or build()
    wsgi = getattr(app, "wsgi_app", None)
    return wsgi if hasattr(app, "url_map") and getattr(wsgi, "__self__", None) is not app else None


def _has_routes(app: Any) -> bool:
    owner = getattr(app, "__self__", app)
    return hasattr(app, "routes") or hasattr(owner, "url_map") or type(owner).__module__.startswith("django.core")


def _contexts(routes: Sequence[Any]) -> Iterable[Any]:
    """Newer versions of FastAPI keep included routers apart, and say themselves what they come to."""
    fastapi = sys.modules.get("fastapi.routing")
    each: Callable[[Sequence[Any]], Iterator[Any]] | None = getattr(fastapi, "iter_route_contexts", None)
    return each(routes) if each is not None else routes


def _ours(thing: Any) -> bool:
    """Endpoints of OnceKey itself: status, webhooks, the console. They have no use for keys."""
    kind = thing if inspect.isfunction(thing) or inspect.isclass(thing) else type(thing)
    return (kind.__module__ or "").startswith(OURS) and not hasattr(thing, "gate")


def _static(app: Any) -> bool:
    return type(app).__name__ == "StaticFiles"


def _methods(route: Any, endpoint: Any) -> Iterable[str]:
    said: Iterable[str] | None = getattr(route, "methods", None)
    if said is not None:
        return said
    if inspect.isclass(endpoint):
        own = [method for method in MUTATING if hasattr(endpoint, method.lower())]
        return own if own or hasattr(endpoint, "get") else ANY
    return ANY


def _django_methods(view: Any) -> Iterable[str]:
    """What a view takes: by its class, by the actions of a view set, by a decorator; else anything."""
    actions = getattr(view, "actions", None)
    if isinstance(actions, dict):
        return [method.upper() for method in actions]
    kind = getattr(view, "view_class", None) or getattr(view, "cls", None)
    if kind is not None:
        return [name.upper() for name in kind.http_method_names if hasattr(kind, name)]
    while view is not None:
        names = getattr(getattr(view, "__code__", None), "co_freevars", ())
        if "request_method_list" in names:
            said: Iterable[str] = view.__closure__[names.index("request_method_list")].cell_contents
            return said
        view = getattr(view, "__wrapped__", None)
    return ANY


def _imported(dotted: str) -> Any:
    module, _, name = dotted.rpartition(".")
    try:
        return getattr(importlib.import_module(module), name, None)
    except ImportError:
        return None


def _named(thing: Any) -> str:
    named = thing if hasattr(thing, "__qualname__") else type(thing)
    return f"{named.__module__}.{named.__qualname__}"
