"""The start page in a real browser: its buttons, its tables, the keyboard, and a phone's width."""

from __future__ import annotations

import shutil
from collections.abc import Iterator

import pytest
from playwright.sync_api import Browser, Page, expect, sync_playwright

from tests.demo.server import PATIENCE, DemoServer

CHROMIUM = shutil.which("chromium")
QUIET = ["--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking"]
QUIET += ["--disable-component-update", "--disable-sync"]

pytestmark = pytest.mark.skipif(CHROMIUM is None, reason="chromium is not installed: apt-get install chromium")


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    """Debian's own; none is downloaded."""
    with sync_playwright() as playwright:
        started = playwright.chromium.launch(executable_path=CHROMIUM, args=QUIET)
        yield started
        started.close()


@pytest.fixture
def page(browser: Browser, demo: DemoServer) -> Iterator[Page]:
    """The start page on a phone; a fault of its script fails the test."""
    faults: list[str] = []
    opened = browser.new_page(viewport={"width": 360, "height": 740})
    opened.set_default_timeout(PATIENCE * 1000)
    opened.on("pageerror", lambda error: faults.append(str(error)))
    opened.on("console", lambda told: faults.append(told.text) if "Content Security Policy" in told.text else None)
    opened.goto(demo.url)
    yield opened
    opened.close()
    assert faults == []


@pytest.mark.parametrize("api", ["ietf", "stripe", "square", "adyen", "paypal"])
def test_a_button_sends_many_and_shows_one_charge(page: Page, api: str) -> None:
    """Each dialect's button, pressed by keyboard, sends five requests at once; the provider charged once."""
    page.select_option("#times", "5")
    card = page.locator(f".card[data-api={api}]")
    card.locator("button.send").press("Enter")
    expect(card.locator(".sum")).to_have_text("5 requests, 1 charge", timeout=PATIENCE * 1000)
    assert card.locator(".chip").count() == 5
    expect(page.locator("#runs")).to_contain_text(f"{api} ", timeout=PATIENCE * 1000)


def test_the_lines_are_ready_to_copy(page: Page, demo: DemoServer) -> None:
    """This server's address and a fresh key stand in every line, and nothing sticks out of a phone's screen."""
    lines = page.locator("pre code").all_text_contents()
    assert all("{" + name + "}" not in line for line in lines for name in ("base", "key"))
    assert sum(demo.url in line for line in lines) >= 7
    assert page.locator("pre button").count() == len(lines)
    assert page.evaluate("document.documentElement.scrollWidth") == 360
