from __future__ import annotations

from pathlib import Path

import pytest

from tests.cli.running import oncekey

SHOP = """
from starlette.applications import Starlette
from starlette.responses import Response
from starlette.routing import Route
from oncekey import OnceKey, OnceKeyMiddleware, by_header

async def answer(request):
    return Response()

def routes(*paths):
    return [Route(path, answer, methods=["POST"]) for path in paths]

once = OnceKey("sqlite:///shop.db", scope=by_header("Authorization"))
bare = Starlette(routes=routes("/login", "/pay"))
app = OnceKeyMiddleware(bare, store="sqlite:///shop.db", scope=by_header("Authorization"), paths=["/pay"])

def create():
    return OnceKeyMiddleware(bare, store="sqlite:///shop.db", scope=by_header("Authorization"))
"""


@pytest.fixture
def shop(tmp_path: Path) -> Path:
    """A folder with an application and its store."""
    (tmp_path / "shop.py").write_text(SHOP)
    assert oncekey("migrate", "--store", "sqlite:///shop.db", folder=tmp_path).code == 0
    return tmp_path


def test_an_open_route_fails_a_deployment_until_it_is_accepted(shop: Path) -> None:
    """Code 1 and what to do; accepted by name it passes; JSON lists every route and the store's health."""
    ran = oncekey("doctor", "--app", "shop:app", folder=shop)
    assert ran.code == 1
    assert "shop:app: 2 routes that change something, 1 guarded" in ran.out
    assert "POST /login (shop.answer) is not guarded: the layer's paths= leave it out" in " ".join(ran.out.split())
    assert "journal mode WAL" in ran.out
    passed = oncekey("doctor", "--app", "shop:app", "--allow", "POST /login", "--json", folder=shop)
    assert passed.code == 0, passed.err
    [said] = passed.objects
    assert (said["exposed"], said["accepted"], said["findings"]) == (False, ["POST /login"], [])
    assert {(one["path"], one["guarded"]) for one in said["routes"]} == {("/login", False), ("/pay", True)}
    assert [store["reachable"] for store in said["stores"]] == [True]


@pytest.mark.parametrize(
    ("words", "code"),
    [
        (("--app", "shop:create()"), 0),
        (("--app", "shop:once"), 0),
        (("--app", "shop:once", "--strict", "--no-store"), 0),
        (("--app", "shop:bare", "--no-store"), 1),
        (("--app", "shop:app", "--allow", "POST /gone", "--allow", "POST /login"), 0),
        (("--app", "shop:app", "--allow", "POST /gone", "--allow", "POST /login", "--strict"), 1),
        (("--app", "shop:absent"), 2),
        (("--app", "nowhere:app"), 2),
        (("--app", "shop"), 2),
    ],
)
def test_the_code_says_how_it_is(shop: Path, words: tuple[str, ...], code: int) -> None:
    """Guarded 0, exposed 1, warnings 1 where that is asked for, not to be loaded 2: never a trace."""
    ran = oncekey("doctor", *words, folder=shop)
    assert ran.code == code, ran.out + ran.err
    assert "Traceback" not in ran.err
    if "nowhere:app" in words:
        assert "there is no module nowhere here: run this in the folder that has it" in ran.err


def test_the_applications_own_store_is_checked(shop: Path) -> None:
    """A file that is not there is a refusal, whatever the routes are."""
    (shop / "shop.db").unlink()
    ran = oncekey("doctor", "--app", "shop:create()", folder=shop)
    assert ran.code == 3
    assert "refusal there is no file" in " ".join(ran.out.split())
