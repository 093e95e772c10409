from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from fastapi import APIRouter, FastAPI
from flask import Flask
from starlette.applications import Starlette
from starlette.endpoints import HTTPEndpoint
from starlette.middleware import Middleware
from starlette.responses import Response
from starlette.routing import Mount, Route
from starlette.staticfiles import StaticFiles
from werkzeug.middleware.proxy_fix import ProxyFix

from oncekey import SHARED, OnceKey, OnceKeyMiddleware, OnceKeyWSGI, Policy, by_header
from oncekey.http.gate import Gate
from oncekey.operations import AppHealth, Layer, Surface, assess, surface
from tests.cli.running import environment

BY = by_header("Authorization")


def seen(app: Any) -> dict[str, bool]:
    """The routes that change something, and whether they are guarded."""
    return {str(route): route.guarded for route in surface(app).routes}


def view(request: Any = None) -> Any:
    """A handler of any framework."""
    return Response()


class Things(HTTPEndpoint):
    """A handler as a class."""

    async def get(self, request: Any) -> Response:
        """Look."""
        return Response()

    async def post(self, request: Any) -> Response:
        """Change."""
        return Response()


def test_a_layer_guards_what_its_paths_and_methods_take() -> None:
    """Middleware of Starlette: POST and PATCH below its paths are guarded, the rest is not, looking needs nothing."""
    routes = [
        Route("/pay/{id}", view, methods=["POST", "GET", "DELETE"]),
        Route("/login", view, methods=["POST"]),
        Route("/things", Things),
        Mount("/files", StaticFiles(directory=".")),
        Mount("/pay", routes=[Route("/back", view, methods=["PATCH"])]),
    ]
    layer = Middleware(OnceKeyMiddleware, store="memory://", scope=BY, paths=["/pay"])
    found = surface(Starlette(routes=routes, middleware=[layer]))
    assert {str(route): route.guarded for route in found.routes} == {
        "POST /pay/{id}": True,
        "DELETE /pay/{id}": False,
        "POST /login": False,
        "POST /things": False,
        "PATCH /pay/back": True,
    }
    assert [layer.store for layer in found.layers] == ["memory://"]
    assert not found.opaque


def test_layers_around_an_application_and_on_single_routes_count() -> None:
    """Wrapped from outside, on one route, or on a mount: each guards what is behind it alone."""
    guarded: dict[str, Any] = {"store": "memory://", "scope": BY}
    routes = [
        Route("/one", view, methods=["POST"], middleware=[Middleware(OnceKeyMiddleware, **guarded)]),
        Mount(
            "/in", routes=[Route("/x", view, methods=["POST"])], middleware=[Middleware(OnceKeyMiddleware, **guarded)]
        ),
        Route("/two", view, methods=["POST"]),
    ]
    app = Starlette(routes=routes)
    assert seen(app) == {"POST /one": True, "POST /in/x": True, "POST /two": False}
    assert all(seen(OnceKeyMiddleware(app, **guarded)).values())


def test_the_routers_of_fastapi_are_found() -> None:
    """Included and nested routers, and mounted applications, with their whole paths."""
    app, outer, inner, other = FastAPI(), APIRouter(prefix="/v1"), APIRouter(), FastAPI()
    inner.put("/deep/{id}")(view)
    outer.post("/pay")(view)
    outer.include_router(inner, prefix="/in")
    app.include_router(outer, prefix="/api")
    other.post("/x")(view)
    app.mount("/other", other)
    app.add_middleware(OnceKeyMiddleware, store="memory://", scope=BY, dialect="square")
    assert seen(app) == {"POST /api/v1/pay": True, "PUT /api/v1/in/deep/{id}": True, "POST /other/x": True}


def test_a_flask_application_is_looked_into() -> None:
    """Its layer stands around wsgi_app, perhaps with others; without one nothing is guarded."""
    app = Flask(__name__)
    app.add_url_rule("/pay/<int:id>", "pay", view, methods=["POST", "PUT"])
    assert seen(app) == {"POST /pay/<int:id>": False, "PUT /pay/<int:id>": False}
    app.wsgi_app = OnceKeyWSGI(app.wsgi_app, "memory://", scope=BY)  # type: ignore[method-assign]
    app.wsgi_app = ProxyFix(app.wsgi_app)  # type: ignore[method-assign]
    assert seen(app) == {"POST /pay/<int:id>": True, "PUT /pay/<int:id>": False}


def test_routes_that_commit_with_their_work_are_known(tmp_path: Path) -> None:
    """FastAPI's and Flask's own guards show themselves; the guarantee that they need is no risk there."""
    once = OnceKey(f"sqlite:///{tmp_path}/shop.db", scope=BY, policy=Policy(guarantee="transactional"))
    router, app, flask = APIRouter(route_class=once.fastapi(session=view)), FastAPI(), Flask(__name__)
    router.post("/pay")(view)
    app.include_router(router, prefix="/api")
    app.post("/login")(view)
    assert seen(app) == {"POST /api/pay": True, "POST /login": False}
    flask.post("/pay")(once.flask(session=view)(view))
    assert seen(flask) == {"POST /pay": True}
    assert [risk.name for risk in assess("x", surface(flask), []).risks] == []


DJANGO = """
import sys
from django.conf import settings
settings.configure(ROOT_URLCONF="__main__", SECRET_KEY="x", ALLOWED_HOSTS=["*"])
import django
django.setup()
from django.core.wsgi import get_wsgi_application
from django.http import HttpResponse
from django.urls import include, path, re_path
from django.views import View
from django.views.decorators.http import require_POST, require_safe
from oncekey import OnceKey, OnceKeyWSGI, Policy, by_header
from oncekey.operations import surface

class Orders(View):
    def get(self, request): ...
    def post(self, request): ...

def anything(request): ...
@require_safe
def look(request): ...
@require_POST
def pay(request): ...
def marked(request): ...

app = OnceKeyWSGI(get_wsgi_application(), "memory://", scope=by_header("Authorization"), paths=["/shop"])
once = OnceKey("sqlite:///shop.db", scope=by_header("Authorization"), policy=Policy(guarantee="transactional"))
marked = once.django()(marked)
inner = [path("pay/<int:id>", pay), path("look", look), path("orders", Orders.as_view())]
urlpatterns = [path("shop/", include(inner)), re_path(r"^any/(?P<id>[0-9]+)$", anything), path("other/marked", marked)]
for route in surface(app).routes:
    print(route, route.guarded)
"""


def test_a_django_application_is_looked_into(tmp_path: Path) -> None:
    """Included patterns, class views and decorators; what takes any method must be guarded for all that count."""
    script = tmp_path / "site.py"
    script.write_text(DJANGO)
    ran = subprocess.run(
        [sys.executable, str(script)], capture_output=True, text=True, check=False, timeout=60, env=environment()
    )
    assert ran.stderr == ""
    assert ran.stdout.splitlines() == [
        "POST /shop/pay/<int:id> True",
        "POST /shop/orders True",
        "ANY /any/(?P<id>[0-9]+) False",
        "ANY /other/marked True",
    ]


def test_what_cannot_be_looked_into_is_said() -> None:
    """An application of an unknown kind is never taken for guarded."""

    async def bare(scope: Any, receive: Any, send: Any) -> None: ...

    found = surface(bare)
    assert len(found.opaque) == 1
    assert [(risk.name, risk.level) for risk in assess("x", found, []).risks] == [("opaque", "warning")]


def risks(gate: Gate, store: str = "") -> set[str]:
    """The names of what is found about a layer."""
    return {risk.name for risk in assess("x", Surface(layers=[Layer(gate, store)]), []).risks}


@pytest.mark.parametrize(
    ("choices", "name"),
    [
        ({"policy": Policy(guarantee="transactional")}, "guarantee"),
        ({"policy": Policy(guarantee="deduplicated_downstream")}, "guarantee"),
        ({"policy": Policy(handler_for=25, lease_for=31)}, "lease"),
        ({"policy": Policy(keep_for=3600)}, "retention"),
        ({"scope": SHARED}, "scope"),
        ({"required": False}, "optional"),
    ],
)
def test_a_risky_choice_is_named(choices: dict[str, Any], name: str) -> None:
    """Each risk has a name of its own, and a careful choice has none."""
    assert risks(Gate(**{"scope": BY} | choices)) == {name}
    assert risks(Gate(scope=BY)) == set()
    assert risks(Gate(scope=BY, policy=Policy(guarantee="transactional", take_over=False))) == set()
    assert risks(Gate(scope=BY, dialect="paypal", required=True)) == set()


def test_memory_with_several_workers_is_exposed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Workers that do not see each other's records run a retry again."""
    monkeypatch.setenv("WEB_CONCURRENCY", "4")
    assert risks(Gate(scope=BY), "memory://") == {"workers"}
    assert risks(Gate(scope=BY), "memory://?workers=separate") == set()
    monkeypatch.setenv("WEB_CONCURRENCY", "1")
    assert risks(Gate(scope=BY), "memory://") == set()


def judged(*allowed: str) -> AppHealth:
    """An application with an open route, one that HTTP lets be repeated, and a shared scope."""
    app = Starlette(routes=[Route("/login", view, methods=["POST"]), Route("/a", view, methods=["PUT"])])
    app.add_middleware(OnceKeyMiddleware, store="memory://", scope=SHARED, paths=["/pay"])
    return assess("shop:app", surface(app), [], allowed)


def test_what_is_accepted_is_not_held_against_it() -> None:
    """An open POST is exposed until it is accepted by name; a name that fits nothing is said, so that none is stale."""
    first = judged()
    assert (first.exposed, first.warned) == (True, True)
    levels = {risk.name: risk.level for risk in first.risks}
    assert levels == {"POST /login": "exposed", "PUT /a": "ok", "scope": "warning"}
    second = judged("POST /login", "scope")
    assert (second.exposed, second.warned, second.accepted) == (False, False, ["POST /login", "scope"])
    assert judged("POST /login", "scope", "POST /gone").warned


def test_our_own_endpoints_are_left_out() -> None:
    """Webhooks and the status page take no keys."""
    once = OnceKey("memory://", scope=BY)
    app = Starlette(routes=[Mount("/once", once.status()), Route("/x", view, methods=["POST"])])
    assert seen(app) == {"POST /x": False}
    assert not surface(app).opaque
