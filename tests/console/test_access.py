"""Who gets in, and which forms are believed."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from typing import Any

import pytest

from oncekey.console import Console
from oncekey.console.access import LEAST
from oncekey.errors import ConfigurationError
from oncekey.stores.memory import MemoryStore
from tests.console.kit import HOST, TOKEN, Visitor, let_in, words
from tests.operations.filled import Made

PLACES = ["", "operations", "unknown", "dead-letters", "health", f"operations/{'0' * 40}", "nowhere"]


@pytest.mark.parametrize(
    ("choices", "says"),
    [
        ({}, "token=os.environ"),
        ({"token": TOKEN, "operator": lambda scope: "a"}, "token= for a sign-in"),
        ({"token": "x" * (LEAST - 1)}, "token_urlsafe"),
        ({"token": ""}, "token_urlsafe"),
        ({"operator": "alice"}, "no function"),
    ],
)
def test_a_console_that_is_open_to_all_is_not_made(choices: dict[str, Any], says: str) -> None:
    """Without a good token or the application's own login it is refused, with what to write."""
    with pytest.raises(ConfigurationError, match=says.replace("(", r"\(")):
        Console("memory://", **choices)


@pytest.mark.parametrize("place", PLACES)
async def test_nobody_sees_anything_before_signing_in(place: str, store: MemoryStore, made: dict[str, Made]) -> None:
    """Every place, those that are not there too, shows the form and a 401; a POST does nothing."""
    visitor = Visitor(Console(store, token=TOKEN))
    page = await visitor.get(place)
    assert (page.status_code, "Sign in" in page.text) == (401, True)
    assert page.headers["www-authenticate"].startswith("Form ")
    assert not any(one.id.hex()[:12] in page.text for one in made.values())
    id_ = made["unknown"].id
    answer = await visitor.post(f"operations/{id_.hex()}/reveal")
    assert (answer.status_code, made["unknown"].key in answer.text) == (401, False)


async def test_the_token_opens_it_and_the_way_goes_on(store: MemoryStore) -> None:
    """Whoever gives token and name comes to the page that was asked for, under a cookie that no script sees."""
    visitor = Visitor(Console(store, token=TOKEN))
    answer = await visitor.sign_in(next="unknown")
    assert (answer.status_code, answer.headers["location"]) == (303, "./unknown")
    cookie = next(line for line in answer.headers.get_list("set-cookie") if "session" in line)
    assert {"HttpOnly", "SameSite=Lax", "Path=/"} <= set(cookie.split("; "))
    assert "Alice" in words(await visitor.get("unknown"))


@pytest.mark.parametrize("back", ["//evil.example", "https://evil.example", "../x", "a:b", "\\evil", "x\r\ny"])
async def test_signing_in_leads_nowhere_else(back: str, store: MemoryStore) -> None:
    """Whatever the form says, the way goes on within the console."""
    answer = await Visitor(Console(store, token=TOKEN)).sign_in(next=back)
    assert (answer.status_code, answer.headers["location"]) == (303, "./")


@pytest.mark.parametrize(
    ("fields", "status"), [({"token": "guess"}, 401), ({"token": ""}, 401), ({"name": "  "}, 422), ({"name": ""}, 422)]
)
async def test_a_wrong_token_and_no_name_are_refused(
    fields: dict[str, str], status: int, store: MemoryStore, caplog: pytest.LogCaptureFixture
) -> None:
    """Nobody gets in, and the log does not repeat what was tried."""
    visitor = Visitor(Console(store, token=TOKEN))
    answer = await visitor.sign_in(**fields)
    assert (answer.status_code, (await visitor.get()).status_code) == (status, 401)
    assert "guess" not in caplog.text


async def test_a_session_ends(alice: Visitor, monkeypatch: pytest.MonkeyPatch) -> None:
    """By signing out, and by itself when its time is over."""
    # As it is, for the browser would forget it by itself.
    cookie = {"cookie": "; ".join(f"{name}={value}" for name, value in alice.http.cookies.items())}
    visitor = Visitor(alice.console)
    assert (await visitor.http.get("/", headers=cookie)).status_code == 200
    monkeypatch.setattr(time, "time", lambda: 4e9)
    assert (await visitor.http.get("/", headers=cookie)).status_code == 401
    monkeypatch.undo()
    assert (await alice.post("logout")).headers["location"] == "login"
    assert (await alice.get()).status_code == 401


@pytest.mark.parametrize("spoil", [lambda v: v[:-2] + "AA", lambda v: v.split(".")[0], lambda v: "x", lambda v: "é.é"])
async def test_a_forged_session_is_none(spoil: Callable[[str], str], alice: Visitor) -> None:
    """A session is believed only with our own seal, and a broken one is no error."""
    [(name, value)] = [pair for pair in alice.http.cookies.items() if "session" in pair[0]]
    forged = Visitor(alice.console)
    answer = await forged.http.get("/", headers=[(b"cookie", f"{name}={spoil(value)}".encode())])
    assert answer.status_code == 401


async def test_another_token_ends_all_sessions(store: MemoryStore, alice: Visitor) -> None:
    """A session of one token does not open a console with another."""
    other = Visitor(Console(store, token=TOKEN + "2"))
    other.http.cookies = alice.http.cookies
    assert (await other.get()).status_code == 401


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({"sec-fetch-site": "same-origin"}, 200),
        ({"origin": HOST}, 200),
        ({"sec-fetch-site": "cross-site", "origin": HOST}, 403),
        ({"sec-fetch-site": "same-site"}, 403),
        ({"sec-fetch-site": "none"}, 403),
        ({"origin": "http://evil.example"}, 403),
        ({"origin": "null"}, 403),
        ({}, 403),
    ],
)
async def test_only_forms_of_this_origin_are_taken(
    headers: dict[str, str], status: int, alice: Visitor, made: dict[str, Made]
) -> None:
    """The browser must say that a form came from here, or nothing is done."""
    answer = await alice.post(f"operations/{made['unknown'].id.hex()}/reveal", headers)
    assert answer.status_code == status


@pytest.mark.parametrize("pair", ["", "x", "another value of the right length"])
async def test_a_form_without_its_pair_is_not_taken(pair: str, alice: Visitor, made: dict[str, Made]) -> None:
    """A form must carry what only a page of ours could know: the value of the browser's own cookie."""
    answer = await alice.post(f"operations/{made['unknown'].id.hex()}/reveal", form=pair)
    assert (answer.status_code, "Nothing was done" in answer.text) == (403, True)


async def test_nothing_is_no_pair(alice: Visitor, made: dict[str, Made]) -> None:
    """A browser without the cookie sends nothing, and a form with nothing in it does not match that."""
    session = "; ".join(f"{name}={value}" for name, value in alice.http.cookies.items() if "session" in name)
    said = {"sec-fetch-site": "same-origin", "cookie": session}
    place = f"/operations/{made['unknown'].id.hex()}/reveal"
    for form in ({"form": ""}, {"other": ""}):
        assert (await Visitor(alice.console).http.post(place, data=form, headers=said)).status_code == 403


async def test_signing_in_needs_the_pair_too(store: MemoryStore) -> None:
    """Nobody can be signed in under a name of somebody else's choice."""
    visitor = Visitor(Console(store, token=TOKEN))
    answer = await visitor.sign_in(form="another value of the right length")
    assert (answer.status_code, (await visitor.get()).status_code) == (403, 401)


async def test_the_applications_own_login_decides(store: MemoryStore) -> None:
    """A function of the scope names the operator; None, nothing and other things are refused; it may be awaited."""
    who: dict[str, Any] = {"name": "Bob"}

    async def operator(scope: Any) -> Any:
        return who["name"]

    for function in (operator, lambda scope: who["name"]):
        who["name"] = "Bob"
        visitor = Visitor(Console(store, operator=function))
        assert "Bob" in words(await visitor.get())
        assert "Sign out" not in words(await visitor.get())
        assert (await visitor.get("login")).status_code == 404
        for none in (None, "", "  ", 7, True):
            who["name"] = none
            assert (await visitor.get()).status_code == 403


async def test_a_login_that_fails_lets_nobody_in(store: MemoryStore, caplog: pytest.LogCaptureFixture) -> None:
    """An exception of the application's function is logged and told as trouble, without its text."""

    def operator(scope: Any) -> str:
        raise KeyError("a secret thing")

    page = await Visitor(Console(store, operator=operator)).get()
    assert (page.status_code, "secret" in page.text) == (500, False)
    assert "a secret thing" in caplog.text


async def test_who_comes_and_goes_is_logged(store: MemoryStore, caplog: pytest.LogCaptureFixture) -> None:
    """The audit log has each sign-in."""
    caplog.set_level(logging.INFO, "oncekey.audit")
    await let_in(store)
    assert "Alice has signed in" in caplog.text
