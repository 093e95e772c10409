"""The pictures of docs/howto/console.md: `python -m tests.console.pictures [SECONDS]` makes them from a demo at work.

The longer its clients have been at it, the more the charts have to show.
"""

from __future__ import annotations

import math
import os
import random
import sys
import time
from concurrent.futures import ThreadPoolExecutor

from playwright.sync_api import Browser

from oncekey.core.commands import Swap
from oncekey.core.journal import Asked, Call, CallState, Journal, Step, pack_journal
from oncekey.core.record import State, replace
from oncekey.engine.sealing import Sealer
from oncekey.stores.open import open_store
from tests.console.driving import DESK, PHONE, Guarded, chromium, opened, sign_in
from tests.demo.server import KINDS, Ask, ask, fresh
from tests.docs.pages import DOCS
from tests.operations.filled import claim, settle

SECONDS = 300.0
IMAGES = DOCS / "img"
LIGHT, DARK = {"color_scheme": "light"}, {"color_scheme": "dark"}
SMALL = {"color_scheme": "light", "viewport": PHONE, "device_scale_factor": 2}


def traffic(demo: Guarded, seconds: float) -> None:
    """Clients that retry, some of them wrongly, now more and now less."""
    draw = random.Random(7)
    began = time.monotonic()
    sent: list[Ask] = []
    while (gone := time.monotonic() - began) < seconds:
        request = ask(draw.choice(list(KINDS)), fresh())
        for _ in range(draw.choice((1, 1, 1, 2, 2, 3))):
            demo.send(request)
        sent.append(request)
        if draw.random() < 0.04:
            demo.send(request._replace(body=request.body.replace(b"a test", b"another")))
        if draw.random() < 0.05:
            demo.send(draw.choice(sent))
        time.sleep(0.25 + 0.2 * math.sin(gone / 25) + draw.random() / 4)


def open_ends(demo: Guarded, pool: ThreadPoolExecutor) -> None:
    """Charges at work with duplicates, unknown outcomes, and one that was given up."""
    for _ in range(3):
        slow = ask("ietf", fresh(), "probe:delay=60000")
        pool.submit(demo.send, slow)
        time.sleep(0.3)
        demo.send(slow)
    for _ in range(3):
        lost = ask("ietf", fresh(), "probe:fail=500")
        for _ in range(3):
            demo.send(lost)
    ref = fresh("ref")
    pool.submit(demo.send, ask("stripe", fresh(), f"probe:ref={ref} probe:delay=60000"))
    os.kill(demo.run_of(ref)["worker"], 9)
    time.sleep(8)


def given_up(demo: Guarded) -> str:
    """An operation whose journal has steps and calls; its id."""
    store = open_store(f"sqlite:///{demo.folder}/oncekey-demo/oncekey.db")
    made = claim(store, fresh("booking"))
    calls = Call(
        "card.charge", "5f6bd4c0-9c1e", "POST https://psp.example/v1/charges", CallState.BEGUN, 1, "", "stripe"
    )
    room = Call("room.hold", "c1a7", "POST https://rooms.example/holds", CallState.RETURNED, 1, "", "", "hold-4711")
    asked = Asked(20, store.scan((State.CLAIMED,)).now - 3_000_000, "503 from psp.example")
    journal = pack_journal(Journal((Step("price", b'{"total": 320}'), room, calls, asked)))
    note = "reconciler: given up after 20 tries: 503 from psp.example"
    settle(store, made, State.UNKNOWN, outcome=Sealer().seal(made.id, journal), note=note)
    seen = store.get(made.id)
    if seen is not None:  # as old as what it has been through
        store.swap(Swap(seen.record, replace(seen.record, claimed_at=asked.since - 40_000, version=24)))
    store.close()
    return made.id.hex()


def take(browser: Browser, demo: Guarded, id_: str) -> None:
    """All pictures."""
    for name, look in (("console", LIGHT), ("console-dark", DARK), ("console-phone", SMALL)):
        with opened(browser, **look) as page:
            sign_in(page, demo.console)
            page.wait_for_timeout(2500)
            page.screenshot(path=IMAGES / f"{name}.png", full_page=name != "console-phone")
    with opened(browser, **DARK, viewport=DESK | {"height": 760}) as page:
        sign_in(page, f"{demo.console}operations/{id_}")
        page.screenshot(path=IMAGES / "console-operation-dark.png", full_page=True)
    with opened(browser, **SMALL) as page:
        sign_in(page, f"{demo.console}operations/{id_}")
        page.screenshot(path=IMAGES / "console-operation-phone.png")
    with opened(browser, **LIGHT) as page:
        sign_in(page, f"{demo.console}operations/{id_}")
        page.locator("summary", has_text="It happened").click()
        page.get_by_label("Status").fill("201")
        page.get_by_label("Body, as").fill('{"id": "booking_17", "total": 320}')
        page.locator("details[open] input[name=why]").fill("psp.example's dashboard has charge ch_8Kq2, 320 EUR")
        page.screenshot(path=IMAGES / "console-resolve.png", full_page=True)
        page.locator("details[open] button").click()
        page.get_by_role("heading", name="Complete it").wait_for()
        page.screenshot(path=IMAGES / "console-confirm.png")


def main() -> None:
    """Start a demo, have it used, and take the pictures."""
    seconds = float(sys.argv[1]) if len(sys.argv) > 1 else SECONDS
    pool = ThreadPoolExecutor(8)
    with Guarded() as demo:
        traffic(demo, seconds)
        id_ = given_up(demo)
        open_ends(demo, pool)
        with chromium() as browser:
            take(browser, demo, id_)
    pool.shutdown(wait=False, cancel_futures=True)


if __name__ == "__main__":
    main()
