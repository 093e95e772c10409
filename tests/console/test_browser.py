"""The console in a real browser, on a demo: its story, its keyboard, its colours, a phone, and no script at all."""

from __future__ import annotations

import contextlib
import os
import signal
import sqlite3
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import httpx
import pytest
from playwright.sync_api import Browser, Page, expect

from oncekey.core.keys import key_ref
from oncekey.operations import id_of
from tests.console.driving import CHROMIUM, NAME, PHONE, Guarded, chromium, opened, sign_in
from tests.demo.server import PATIENCE, Ask, ask, fresh, until

WAIT = PATIENCE * 1000
PLACES = ["", "operations", "unknown", "dead-letters", "health"]
LOST = "probe:fail=500"

pytestmark = pytest.mark.skipif(CHROMIUM is None, reason="chromium is not installed: apt-get install chromium")


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    """One for all."""
    with chromium() as started:
        yield started


@pytest.fixture(scope="module")
def demo() -> Iterator[Guarded]:
    """Of its own, for its workers are killed."""
    with Guarded() as server:
        yield server


@pytest.fixture
def page(browser: Browser, demo: Guarded) -> Iterator[Page]:
    """Somebody who has signed in."""
    with opened(browser) as one:
        sign_in(one, demo.console)
        yield one


@contextlib.contextmanager
def provider_away(demo: Guarded) -> Iterator[None]:
    """While this lasts nobody can ask the provider anything that it would write down: its ledger is taken."""
    ledger = sqlite3.connect(demo.folder / "oncekey-demo" / "provider-ledger.db", isolation_level=None)
    with contextlib.closing(ledger):
        ledger.execute("BEGIN IMMEDIATE")
        yield
        ledger.execute("ROLLBACK")


def lost_order(demo: Guarded) -> tuple[str, str]:
    """The key of an order of which nobody knows the outcome, and its ref."""
    key = fresh()
    assert demo.send(ask("ietf", key, LOST)).status_code == 500
    return key, key_ref(id_of(key, "alice", "POST /orders"))


def cut_off(demo: Guarded, charge: Ask) -> None:
    """Send what will not be answered, for its worker is killed."""
    with pytest.raises(httpx.HTTPError):
        demo.send(charge)


def scraped(demo: Guarded, name: str) -> int:
    """A counter of all workers."""
    lines = demo.get("/metrics").text.splitlines()
    return int(next(line for line in lines if line.startswith(f"api_idempotency_{name}_count ")).split()[1])


def test_a_killed_workers_charge_is_seen_and_found_out(page: Page, demo: Guarded) -> None:
    """It turns unknown on the open page, the reconciler settles it, and trail, counters and the retry say the same."""
    key, ref = fresh(), fresh("ref")
    charge = ask("stripe", key, f"probe:ref={ref} probe:delay=600000")
    name = key_ref(id_of(key, "alice"))
    page.goto(f"{demo.console}unknown")
    page.evaluate("window.samePage = true")
    with ThreadPoolExecutor(1) as pool:
        cut = pool.submit(cut_off, demo, charge)
        run = demo.run_of(ref)
        with provider_away(demo):
            os.kill(run["worker"], signal.SIGKILL)
            cut.result(PATIENCE)
            link = page.get_by_role("link", name=name)
            expect(link).to_be_visible(timeout=WAIT)
            assert page.evaluate("window.samePage")
            link.click()
            expect(page.locator("#line .now")).to_contain_text("Unknown", timeout=WAIT)
            page.evaluate("window.sameOperation = true")
    expect(page.locator("#line .now")).to_contain_text("Completed: status 200", timeout=WAIT)
    expect(page.locator("#line")).to_contain_text("Unknown to completed, by reconciler")
    expect(page.locator("#line")).to_contain_text("of the provider, ch_")
    assert page.evaluate("window.sameOperation")
    answer = until(lambda: next((one for one in [demo.send(charge)] if one.status_code == 200), None))
    assert answer.json()["id"].startswith("ch_")
    assert demo.executions(ref) == 1
    assert scraped(demo, "reconcile_resolved") >= 1
    page.get_by_role("link", name="Overview").click()
    expect(page.locator(".totals .found dd")).not_to_have_text("0")
    expect(page.locator(".tile.created .figure b")).not_to_have_text("0", timeout=WAIT)


def test_an_unknown_order_is_settled_by_hand(page: Page, demo: Guarded) -> None:
    """Found by its key, checked, confirmed: the client's retry gets what was typed, and the trail has who."""
    key, name = lost_order(demo)
    page.goto(f"{demo.console}operations")
    page.get_by_label("Look for").fill(key)
    page.keyboard.press("Enter")
    expect(page.get_by_role("heading", name=name)).to_be_visible(timeout=WAIT)
    assert key not in page.url + page.content()
    page.locator("summary", has_text="It happened").press("Enter")
    page.get_by_label("Status").fill("201")
    page.get_by_label("Body, as").fill('{"id": "by hand"}')
    page.locator("details[open] input[name=why]").fill("seen at the bank")
    page.locator("details[open]").get_by_role("button", name="Check").press("Enter")
    expect(page.get_by_text("This was a rehearsal")).to_be_visible(timeout=WAIT)
    page.get_by_role("button", name="Yes, complete it").press("Enter")
    expect(page.get_by_role("status").filter(has_text="every retry gets this answer")).to_be_visible(timeout=WAIT)
    expect(page.locator("#line")).to_contain_text(f"Unknown to completed, by {NAME}")
    expect(page.locator("#line")).to_contain_text("seen at the bank")
    retry = demo.send(ask("ietf", key, LOST))
    assert (retry.status_code, retry.json(), retry.headers["idempotency-replayed"]) == (201, {"id": "by hand"}, "true")
    page.get_by_role("button", name="Show what is masked").click()
    expect(page.locator("#kept pre")).to_contain_text('{"id": "by hand"}', timeout=WAIT)
    expect(page.locator("#facts")).to_contain_text(key)


def test_it_works_without_a_script(browser: Browser, demo: Guarded) -> None:
    """Everything is links and forms; what needs the script is not shown."""
    key, name = lost_order(demo)
    with opened(browser, java_script_enabled=False) as page:
        sign_in(page, f"{demo.console}unknown")
        assert not page.locator("#live").is_visible()
        page.get_by_role("link", name=name).click()
        page.locator("summary", has_text="It did not happen").click()
        page.get_by_label("I have made sure").check()
        page.locator("details[open] input[name=why]").fill("cancelled at the bank")
        page.locator("details[open]").get_by_role("button", name="Check").click()
        page.get_by_role("button", name="Yes, let a retry run").click()
        expect(page.locator(".notice.good")).to_contain_text("the next retry may run")
    assert demo.send(ask("ietf", key, LOST)).status_code == 500  # it ran again, and was lost again


def test_being_live_can_be_paused_and_survives_a_gap(page: Page, demo: Guarded) -> None:
    """Pause stops it, Go on goes on; without an answer it says so and tries again; a session's end is told."""
    page.goto(f"{demo.console}unknown")
    status, rows = page.locator("#live [role=status]"), page.locator("#list")
    page.get_by_role("button", name="Pause").click()
    expect(status).to_have_text("paused")
    _, name = lost_order(demo)
    page.wait_for_timeout(2500)  # longer than a look takes: nothing may come of it
    expect(rows).not_to_contain_text(name)
    page.get_by_role("button", name="Go on").click()
    expect(rows).to_contain_text(name, timeout=WAIT)
    page.route("**/unknown", lambda route: route.abort())
    expect(status).to_contain_text("trying again", timeout=WAIT)
    page.unroute("**/unknown")
    expect(status).to_have_text("live", timeout=WAIT)
    page.context.clear_cookies()
    expect(page.locator("#live")).to_contain_text("your session has ended", timeout=WAIT)
    expect(page.locator("#live").get_by_role("link", name="Sign in")).to_be_visible()


def test_a_form_that_is_being_filled_in_stays(page: Page, demo: Guarded) -> None:
    """The page goes on living around it: what was typed is not replaced, and the keyboard stays where it was."""
    _, name = lost_order(demo)
    page.goto(f"{demo.console}unknown")
    page.get_by_role("link", name=name).click()
    page.locator("summary", has_text="Ask again").click()
    why = page.locator("details[open] input[name=why]")
    why.fill("half a sent")
    line = page.locator("#line").inner_html()
    page.wait_for_function("html => document.getElementById('line').innerHTML !== html", arg=line, timeout=WAIT)
    assert (why.input_value(), why.evaluate("one => one === document.activeElement")) == ("half a sent", True)


def test_the_keyboard_keeps_its_place_in_a_live_list(page: Page, demo: Guarded) -> None:
    """A link that has the focus has it still after the list was replaced, and the first Tab skips to the content."""
    _, name = lost_order(demo)
    page.goto(f"{demo.console}unknown")
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.textContent") == "Skip to the content"
    link = page.get_by_role("link", name=name)
    link.focus()
    page.evaluate("document.querySelector('#list table').dataset.old = 'yes'")
    page.wait_for_function("() => !document.querySelector('#list table').dataset.old", timeout=WAIT)
    assert page.evaluate("document.activeElement.textContent") == name


# What a screen reader needs, and what stands on the page in colours that are too faint.
FAULTS = """() => {
  const faults = [];
  for (const one of document.querySelectorAll('input:not([type=hidden]), select, textarea'))
    if (!one.labels.length || !one.labels[0].textContent.trim()) faults.push('no label: ' + one.outerHTML);
  for (const one of document.querySelectorAll('a, button'))
    if (!one.textContent.trim()) faults.push('no name: ' + one.outerHTML);
  if (document.querySelectorAll('h1').length !== 1) faults.push('not one h1');
  if (document.querySelectorAll('main').length !== 1) faults.push('not one main');
  const ids = [...document.querySelectorAll('[id]')].map(one => one.id);
  if (new Set(ids).size !== ids.length) faults.push('an id stands there twice');
  const parts = text => (text.match(/[\\d.]+/g) || []).map(Number);
  const light = ([r, g, b]) => [r, g, b].map(v => (v /= 255) <= 0.03928 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4)
    .reduce((sum, v, at) => sum + v * [0.2126, 0.7152, 0.0722][at], 0);
  const said = one => [...one.childNodes].some(node => node.nodeType === 3 && node.textContent.trim());
  for (const one of document.querySelectorAll('main *, footer *')) {
    if (!said(one) || !one.checkVisibility()) continue;
    let at = one, ground = [];
    while (at && (ground = parts(getComputedStyle(at).backgroundColor), ground[3] === 0)) at = at.parentElement;
    const [a, b] = [light(parts(getComputedStyle(one).color)), light(ground)].sort((x, y) => y - x);
    const ratio = (a + 0.05) / (b + 0.05);
    if (ratio < 4.5) faults.push(ratio.toFixed(2) + ': ' + one.outerHTML.slice(0, 120));
  }
  return faults;
}"""


@pytest.mark.parametrize("look", ["light", "dark"])
def test_everything_can_be_read_and_named(look: str, browser: Browser, demo: Guarded) -> None:
    """Contrast of 4.5 in both colours, a label for each field, one main heading; nothing sticks out of a phone."""
    _, name = lost_order(demo)
    with opened(browser, color_scheme=look, viewport=PHONE) as page:
        page.goto(demo.console)
        assert page.evaluate(FAULTS) == []
        sign_in(page, demo.console)
        for place in PLACES:
            page.goto(demo.console + place)
            assert (page.evaluate(FAULTS), page.evaluate("document.documentElement.scrollWidth")) == ([], 360), place
        page.goto(f"{demo.console}unknown")
        page.get_by_role("link", name=name).click()
        page.locator("summary", has_text="It happened").click()
        assert (page.evaluate(FAULTS), page.evaluate("document.documentElement.scrollWidth")) == ([], 360)
