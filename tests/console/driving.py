"""A console in a real browser, and a demo behind it."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, ClassVar

from playwright.sync_api import Browser, Page, sync_playwright

from tests.demo.server import PATIENCE, DemoServer

CHROMIUM = shutil.which("chromium")
QUIET = ["--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking"]
QUIET += ["--disable-component-update", "--disable-sync"]
TOKEN = "a token for the tests of the console"
NAME = "Alice Example"
PHONE, DESK = {"width": 360, "height": 740}, {"width": 1280, "height": 860}


class Guarded(DemoServer):
    """A demo whose console's token is known."""

    name: ClassVar[str] = "oncekey demo with a console"

    def command(self) -> list[str]:
        return ["env", f"ONCEKEY_CONSOLE_TOKEN={TOKEN}", *super().command()]

    @property
    def console(self) -> str:
        """Where it is."""
        return f"{self.url}/console/"


@contextmanager
def chromium() -> Iterator[Browser]:
    """Debian's own; none is downloaded."""
    with sync_playwright() as playwright:
        started = playwright.chromium.launch(executable_path=CHROMIUM, args=QUIET)
        yield started
        started.close()


@contextmanager
def opened(browser: Browser, **look: Any) -> Iterator[Page]:
    """A page of a browser of its own; a fault of the script, or a thing that the policy forbids, fails the test."""
    faults: list[str] = []
    context = browser.new_context(**({"viewport": DESK} | look))
    page = context.new_page()
    page.set_default_timeout(PATIENCE * 1000)
    page.on("pageerror", lambda error: faults.append(str(error)))
    page.on("console", lambda told: faults.append(told.text) if "Content Security Policy" in told.text else None)
    yield page
    context.close()
    assert faults == []


def sign_in(page: Page, url: str) -> None:
    """Through the form."""
    page.goto(url)
    page.get_by_label("Your name").fill(NAME)
    page.get_by_label("Token").fill(TOKEN)
    page.get_by_role("button", name="Sign in").click()
    page.get_by_role("button", name="Sign out").wait_for()
