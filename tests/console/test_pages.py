"""What the pages show, what they keep to themselves, and what they say to bad input."""

from __future__ import annotations

import logging
import re
from typing import Any

import pytest

from oncekey.console import Console
from oncekey.core.commands import Page
from oncekey.core.record import State
from oncekey.engine.events import CREATED, Event
from oncekey.errors import StoreUnavailable
from oncekey.stores.memory import MemoryStore
from oncekey.telemetry.counters import Counters
from oncekey.testing.clock import ManualClock
from tests.console.kit import TOKEN, Visitor, let_in, words
from tests.operations.filled import CALLER, ENDPOINT, Made, claim, complete, settle

ALL = ["", "operations", "operations?state=all", "unknown", "dead-letters", "health"]
LINK = re.compile(r'(?:href|src|action)="([^"]*)"')


@pytest.mark.parametrize("place", [*ALL, "login", "static/console.css", "static/console.js", "nowhere"])
async def test_every_answer_forbids_what_it_does_not_need(place: str, alice: Visitor, made: dict[str, Made]) -> None:
    """Scripts and styles from our own files only, no frames, no guessing of types, nothing secret in a cache."""
    page = await alice.get(place)
    policy = page.headers["content-security-policy"]
    assert {"default-src 'none'", "script-src 'self'", "frame-ancestors 'none'"} <= set(policy.split("; "))
    assert "unsafe" not in policy
    assert page.headers["x-content-type-options"] == "nosniff"
    assert page.headers["cache-control"] == ("no-cache" if "static" in place else "no-store")
    if "html" in page.headers["content-type"]:
        assert not re.search(r"\son\w+=|\sstyle=|<style|<script(?! src)", page.text)


async def test_overview_counts_what_stands_and_what_happened(store: MemoryStore, made: dict[str, Made]) -> None:
    """States from the store, rates from the counters, and who waits for somebody."""
    counters = Counters()
    alice = await let_in(store, counts=counters)
    await alice.get()
    for _ in range(3):
        counters(Event(CREATED))
    said = words(await alice.get())
    assert "Created 3 in the last minute" in said
    assert "unknown 1 failed retryable 1 completed 2" in said
    assert f"ok_{made['unknown'].id.hex()[:12]}" in said
    assert "Warning records live in this process only" in said


async def test_overview_without_counters_says_how_to_give_some(alice: Visitor) -> None:
    """There are no rates then, and the page says so."""
    assert "oncekey console --metrics URL" in words(await alice.get())


async def test_lists_have_what_they_say(alice: Visitor, made: dict[str, Made], store: MemoryStore) -> None:
    """Each state's list, the queue and the dead letters hold exactly theirs."""
    dead = settle(store, claim(store, "dead"), State.UNKNOWN, note="given up")
    lists = {
        "operations": {"running", "lapsed", "unknown", "failed", "dead"},
        "operations?state=completed": {"completed", "old"},
        "operations?state=in_progress": {"running", "lapsed"},
        "unknown": {"unknown"},
        "dead-letters": {"dead"},
    }
    for place, keys in lists.items():
        text = (await alice.get(place)).text
        shown = {key for key, one in (made | {"dead": dead}).items() if f'operations/{one.id.hex()}"' in text}
        assert shown == keys, place


async def test_only_those_whose_time_is_over(alice: Visitor, made: dict[str, Made], clock: ManualClock) -> None:
    """The filter shows lapsed leases, and what is due."""
    clock.advance(10)
    text = (await alice.get("operations?state=open&due=1")).text
    assert {key for key, one in made.items() if one.id.hex() in text} == {"lapsed", "unknown"}


async def test_long_lists_go_on(alice: Visitor, store: MemoryStore) -> None:
    """Fifty on a page, then a link to the rest; each operation is on one page."""
    ids = {settle(store, claim(store, f"k{n}"), State.UNKNOWN, due_for=n + 1).id.hex() for n in range(120)}
    place, seen, pages = "unknown", [], 0
    while place:
        page = await alice.get(place)
        pages += 1
        seen += re.findall(r'data-key="(\w+)"', page.text)
        more = re.search(r'rel="next" href="\./([^"]+)"', page.text)
        place = more[1] if more else ""
    assert (len(seen), set(seen), pages) == (120, ids, 3)


# ---- secrets -----------------------------------------------------------------------------------------------------


async def test_keys_and_bodies_are_masked_until_asked_for(
    alice: Visitor, store: MemoryStore, caplog: pytest.LogCaptureFixture
) -> None:
    """No page has a key, or a header or a body of an answer; a form shows them, and that is logged."""
    one = complete(store, "a-secret-key")
    for place in [*ALL, f"operations/{one.id.hex()}"]:
        text = (await alice.get(place)).text
        assert not any(secret in text for secret in ("a-secret-key", "/orders/1", "&#34;id&#34;", "é 1")), place
    caplog.set_level(logging.INFO, "oncekey.audit")
    shown = words(await alice.post(f"operations/{one.id.hex()}/reveal"))
    assert all(secret in shown for secret in ("a-secret-key", "location: /orders/1", '{"id": "é 1"}'))
    assert f"ok_{one.id.hex()[:12]}: shown in full to Alice" in caplog.text


async def test_no_key_is_ever_in_an_address(alice: Visitor, store: MemoryStore) -> None:
    """Links and redirects name operations by their ids."""
    one = settle(store, claim(store, "a-secret-key"), State.UNKNOWN, due_for=1)
    found = await alice.post("operations", text="a-secret-key", state="open")
    assert found.headers["location"].endswith(f"operations/{one.id.hex()}")
    for place in [*ALL, f"operations/{one.id.hex()}"]:
        assert "a-secret-key" not in (await alice.get(place)).text
    assert (await alice.get(f"operations/{one.id.hex()}/reveal")).status_code == 404


async def test_text_of_strangers_is_text(alice: Visitor, store: MemoryStore) -> None:
    """Markup, control characters and marks of direction in notes and keys are shown, never obeyed."""
    note = "<script>alert(1)</script> \x1b[2J \u202e {{ 7 * 7 }}"
    one = settle(store, claim(store, "k"), State.UNKNOWN, due_for=1, note=note)
    for place in ("", "operations", "unknown", f"operations/{one.id.hex()}"):
        text = (await alice.get(place)).text
        assert "&lt;script&gt;alert(1)" in text
        assert r"\x1b[2J \u202e {{ 7 * 7 }}" in text
        assert "<script>alert" not in text


# ---- search ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("shape", ["{id}", "ok_{id:.12}", "{id:.8}", "unknown"])
async def test_an_operation_is_found_by_its_names(shape: str, alice: Visitor, made: dict[str, Made]) -> None:
    """Its id, the ref of a log, a beginning of it, and its key lead to it."""
    one = made["unknown"]
    answer = await alice.post("operations", text=shape.format(id=one.id.hex()), state="open")
    if shape == "unknown":
        assert one.id.hex() in answer.text + answer.headers.get("location", "")
    else:
        assert answer.headers["location"] == f"./operations/{one.id.hex()}"


async def test_operations_are_found_by_a_part_of_their_note(alice: Visitor, made: dict[str, Made]) -> None:
    """Endpoint and note are looked through, in small letters or large ones; what is not there is not found."""
    both = await alice.post("operations", text="post /ORDERS", state="open")
    assert {key for key, one in made.items() if one.id.hex() in both.text} == {"running", "lapsed", "unknown", "failed"}
    one = await alice.post("operations", text="timeoutERROR", state="open")
    assert made["unknown"].id.hex() in one.headers["location"]
    none = await alice.post("operations", text="nothing like it", state="all")
    assert "0 found" in words(none)


async def test_an_operation_is_found_by_key_and_caller(alice: Visitor, made: dict[str, Made]) -> None:
    """Exactly, finished ones too; another caller's is not found."""
    asked = {"by": "key", "key": "completed", "endpoint": ENDPOINT}
    found = await alice.post("operations", caller=CALLER, **asked)
    assert found.headers["location"] == f"./operations/{made['completed'].id.hex()}"
    missed = await alice.post("operations", caller="Bearer mallory", **asked)
    assert (missed.status_code, "no operation under this key" in missed.text) == (200, True)


# ---- bad input ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("place", "status"),
    [
        ("operations?state=odd", 400),
        ("operations?after=odd", 400),
        ("unknown?after=odd", 400),
        ("dead-letters?after=1:zz", 400),
        ("operations/abc", 404),
        (f"operations/{'0' * 40}", 404),
        (f"operations/{'0' * 40}/complete", 404),
        ("static/../app.py", 404),
        ("nowhere", 404),
        ("operations?" + "&".join(f"a{n}=1" for n in range(80)), 400),
        ("dead-letters?asked=\u0663", 200),
    ],
)
async def test_bad_addresses_are_told_so(place: str, status: int, alice: Visitor) -> None:
    """A page says what is wrong, and no trace comes out."""
    page = await alice.get(place)
    assert (page.status_code, "Traceback" in page.text) == (status, False)


@pytest.mark.parametrize(
    ("place", "fields", "status"),
    [
        ("operations", {"text": "", "state": "open"}, 400),
        ("operations", {"text": "x", "state": "odd"}, 400),
        ("operations", {"text": "x", "state": "open", "after": "odd"}, 400),
        ("operations", {"by": "key", "key": "k", "caller": ""}, 400),
        ("operations", {"by": "key", "key": "k", "caller": "c", "endpoint": "odd"}, 400),
        (f"operations/{'0' * 40}/reveal", {}, 404),
        ("unknown", {}, 404),
        ("dead-letters", {"why": ""}, 422),
        ("dead-letters", {"why": "x", "after": "odd"}, 400),
    ],
)
async def test_bad_forms_are_told_so(place: str, fields: dict[str, str], status: int, alice: Visitor) -> None:
    """As bad addresses are."""
    assert (await alice.post(place, **fields)).status_code == status


async def test_what_is_no_form_is_refused(alice: Visitor) -> None:
    """Other types and bodies without end are refused; other methods too, with those that are taken."""
    given = {"sec-fetch-site": "same-origin", "content-type": "application/json"}
    assert (await alice.http.post("/operations", content=b"{}", headers=given)).status_code == 415
    assert (await alice.post("operations", text="x" * (5 << 20))).status_code == 413
    answer = await alice.http.put("/operations")
    assert (answer.status_code, answer.headers["allow"]) == (405, "GET, HEAD, POST")


async def test_head_is_get_without_a_body(alice: Visitor) -> None:
    """The same status and length."""
    head, page = await alice.http.head("/login"), await alice.get("login")
    assert (head.status_code, head.content) == (200, b"")
    assert abs(int(head.headers["content-length"]) - len(page.content)) < 50


async def test_a_client_that_leaves_is_no_fault(store: MemoryStore) -> None:
    """A form that breaks off is not answered, and nothing is raised."""
    sent: list[Any] = []

    async def receive() -> Any:
        return {"type": "http.disconnect"}

    async def send(message: Any) -> None:
        sent.append(message)

    scope = {"type": "http", "method": "POST", "path": "/login", "headers": [], "query_string": b""}
    await Console(store, token=TOKEN)(scope, receive, send)
    assert sent == []


async def test_a_store_that_is_away_is_told(caplog: pytest.LogCaptureFixture) -> None:
    """503 and a sentence, in which the password of the address does not stand."""

    class Away(MemoryStore):
        url = "postgresql://shop:pa55word@db.example/shop"

        def scan(self, *states: Any, **more: Any) -> Page:
            raise StoreUnavailable(f"{self.url} cannot be reached (pa55word)")

    page = await (await let_in(Away())).get("unknown")
    assert (page.status_code, "cannot be reached" in page.text) == (503, True)
    assert "pa55word" not in page.text + caplog.text


async def test_a_missing_file_is_told_and_not_made(tmp_path: Any) -> None:
    """A typo in the address makes no store."""
    page = await (await let_in(f"sqlite:///{tmp_path}/typo.db")).get("unknown")
    assert (page.status_code, "oncekey migrate" in page.text) == (503, True)
    assert list(tmp_path.iterdir()) == []


# ---- mounted -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("root", ["", "/console", "/ops/console"])
async def test_links_lead_to_pages_wherever_it_is_mounted(root: str, store: MemoryStore, made: dict[str, Made]) -> None:
    """Every link, form and file of every page is within the console, relative, and is served."""
    visitor = Visitor(Console(store, token=TOKEN), root)
    await visitor.sign_in()
    for place in [*ALL, f"operations/{made['unknown'].id.hex()}", "login", "nowhere"]:
        page = await visitor.get(place)
        for link in set(LINK.findall(page.text)) - {"#main"}:
            target = str(page.url.join(link.replace("&amp;", "&")))
            assert target.startswith(f"http://shop.example{root}/"), link
            if (
                "/complete" not in link
                and "/logout" not in link
                and not link.endswith(("/retryable", "/ask", "/reveal"))
            ):
                assert (await visitor.http.get(target)).status_code == 200, link


async def test_the_slash_is_added(store: MemoryStore) -> None:
    """The mount's own path leads to the overview, by a relative way."""
    sent: list[Any] = []

    async def send(message: Any) -> None:
        sent.append(message)

    scope = {"type": "http", "method": "GET", "path": "/a/console", "root_path": "/a/console", "headers": []}
    await Console(store, token=TOKEN)(scope, send, send)  # type: ignore[arg-type]
    assert (sent[0]["status"], dict(sent[0]["headers"])[b"location"]) == (308, b"console/")


async def test_cookies_are_for_this_console_alone(store: MemoryStore) -> None:
    """Their path is the mount's, and over TLS they are marked so."""
    visitor = Visitor(Console(store, token=TOKEN), "/console")
    visitor.http.base_url = "https://shop.example"
    cookie = (await visitor.get("login")).headers["set-cookie"]
    assert {"Path=/console/", "Secure"} <= set(cookie.split("; "))
