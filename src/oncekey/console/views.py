"""The pages: each asks oncekey.operations and fills its template. They block, so they run on the console's threads."""

from __future__ import annotations

import re
import time
from collections.abc import Callable
from typing import Any, Generic, NamedTuple, TypeVar

from oncekey import operations
from oncekey.console import charts, desk, timeline
from oncekey.console.rates import Rates
from oncekey.console.render import render
from oncekey.console.web import Answered, Ask, Refused, see_other
from oncekey.core.outcome import Answer, Value
from oncekey.core.record import Record, Seen, State
from oncekey.engine.sealing import Sealer
from oncekey.errors import ConfigurationError
from oncekey.operations import CHOICES, ID_DIGITS, Health, Kept, Listing
from oncekey.stores.contract import Store

PAGE = 50
SHORT = 5
OK = 200
# Of a body, what a page shows.
SHOWN = 64 << 10
# How long a count of all records, and a check-up, are good for; or longer, if they took long: see Remembered.
COUNTED_FOR, CHECKED_FOR, SHARE = 2.0, 30.0, 20
_ID = re.compile(rf"[0-9a-f]{{{ID_DIGITS}}}")
STATES = [
    state.word for state in (State.CLAIMED, State.UNKNOWN, State.FAILED_RETRYABLE, State.COMPLETED, State.EXPIRED)
]
# What a page says when it was come to from a form that is done.
DONE = {
    desk.COMPLETE: "Done: it is completed, and every retry gets this answer.",
    desk.RETRYABLE: "Done: the next retry may run.",
    desk.ASK: "Done: the reconciler asks about it again.",
}
T = TypeVar("T")


class Remembered(Generic[T]):
    """A figure that is costly to get, asked for anew after a while: the longer it took, the longer it is good for."""

    def __init__(self, get: Callable[[], T], good_for: float) -> None:
        self._get = get
        self._good_for = good_for
        self._value: T | None = None
        self._until = 0.0

    def __call__(self) -> T:
        """The figure; two threads may get it at once, which does no harm."""
        began = time.monotonic()
        if self._value is None or began >= self._until:
            self._value = self._get()
            ended = time.monotonic()
            self._until = ended + max(self._good_for, SHARE * (ended - began))
        return self._value


class Guest(NamedTuple):
    """Who is looking, and what the forms on the page carry."""

    name: str
    form: str
    signs_out: bool


class Views:
    """The pages of one console."""

    def __init__(self, store: Store, sealer: Sealer, rates: Rates) -> None:
        self.store = store
        self.sealer = sealer
        self.rates = rates
        self.name = operations.masked(store.url)
        self.plain = {
            "": self.overview,
            "operations": self.listing,
            "unknown": self.queue,
            "dead-letters": self.dead_letters,
            "health": self.health,
        }
        self._counted: Remembered[dict[str, int | str]] = Remembered(lambda: operations.stats(store), COUNTED_FOR)
        self._checked: Remembered[Health] = Remembered(lambda: operations.doctor(store), CHECKED_FOR)

    def page(self, name: str, ask: Ask, guest: Guest, *, status: int = 200, **values: Any) -> Answered:
        """One page, with what all of them need."""
        here = {
            "up": ask.up,
            "guest": guest,
            "store": self.name,
            "live": status == OK,
            "tab": name.removesuffix(".html"),
        }
        return Answered(status, render(name, **(here | values)))

    def overview(self, ask: Ask, guest: Guest) -> Answered:
        """What happens, what stands, and who waits for somebody."""
        samples = self.rates.samples()
        counted = self._counted()
        states = [(word, int(counted.get(word, 0))) for word in STATES]
        return self.page(
            "overview.html",
            ask,
            guest,
            charts=charts.charts(samples),
            totals=charts.totals(samples),
            rates=self.rates,
            states=states,
            whole=max(1, sum(count for _, count in states)),
            queue=operations.queue(self.store, limit=SHORT),
            dead=operations.dead_letters(self.store, limit=SHORT),
            health=self._checked(),
        )

    def listing(self, ask: Ask, guest: Guest) -> Answered:
        """Operations by state, page by page."""
        state = ask.query.get("state", "open")
        due = bool(ask.query.get("due"))
        found = operations.listing(self.store, state, due=due, after=ask.query.get("after"), limit=PAGE)
        return self._listed(ask, guest, found, state=state, due=due)

    def search(self, ask: Ask, guest: Guest) -> Answered:
        """Operations by a text, or one by its key. What was looked for stays out of the address."""
        if ask.form.get("by") == "key":
            return self._by_key(ask, guest)
        text, state = ask.form.get("text", "").strip(), ask.form.get("state", "open")
        whole = text.lower()
        if _ID.fullmatch(whole) and self.store.get(bytes.fromhex(whole)) is not None:
            return see_other(f"{ask.up}operations/{whole}")
        found = operations.search(self.store, text, state, after=ask.form.get("after") or None, limit=PAGE)
        if len(found.records) == 1 and found.after is None and not ask.form.get("after"):
            return see_other(f"{ask.up}operations/{found.records[0].id.hex()}")
        return self._listed(ask, guest, found, state=state, text=text)

    def _by_key(self, ask: Ask, guest: Guest) -> Answered:
        key, caller, endpoint = (ask.form.get(name, "").strip() for name in ("key", "caller", "endpoint"))
        if not key or not caller:
            raise ConfigurationError(
                "a key alone names nothing: write the key, and whose it is, as the scope returns it"
            )
        id_ = operations.id_of(key, caller, endpoint)
        if self.store.get(id_) is not None:
            return see_other(f"{ask.up}operations/{id_.hex()}")
        return self._listed(ask, guest, Listing([], None, 0), state="open", missed=True)

    def _listed(self, ask: Ask, guest: Guest, found: Listing, **values: Any) -> Answered:
        given: dict[str, Any] = {"due": False, "text": "", "missed": False, "choices": list(CHOICES)} | values
        given["live"] = not given["text"] and not given["missed"]
        return self.page("operations.html", ask, guest, found=found, **given)

    def queue(self, ask: Ask, guest: Guest) -> Answered:
        """Unknown outcomes, the longest due first."""
        found = operations.queue(self.store, after=ask.query.get("after"), limit=PAGE)
        return self.page("unknown.html", ask, guest, found=found)

    def dead_letters(self, ask: Ask, guest: Guest) -> Answered:
        """Unknown outcomes that nobody asks about."""
        asked = ask.query.get("asked", "")
        done = f"Done: the reconciler asks about {asked} of them again." if asked.isdecimal() else ""
        return self.dead(ask, guest, ask.query.get("after"), done=done)

    def dead(self, ask: Ask, guest: Guest, after: str | None, *, status: int = 200, **values: Any) -> Answered:
        """The page of dead letters; `values` say what was done, or what was wrong."""
        found = operations.dead_letters(self.store, after=after, limit=PAGE)
        given: dict[str, Any] = {"done": "", "wrong": "", "why": "", "live": status == OK} | values
        return self.page("dead-letters.html", ask, guest, status=status, found=found, after=after, **given)

    def health(self, ask: Ask, guest: Guest) -> Answered:
        """What doctor says."""
        return self.page("health.html", ask, guest, health=self._checked())

    # ---- one operation -------------------------------------------------------------------------------------------

    def seen(self, id_: str) -> Seen:
        """The operation that an address names."""
        seen = self.store.get(bytes.fromhex(id_)) if _ID.fullmatch(id_) else None
        if seen is None:
            raise Refused(
                404, "There is no such operation", "It may have expired and been purged. Look for it in the list."
            )
        return seen

    def operation(self, ask: Ask, guest: Guest, id_: str) -> Answered:
        """All that is known of one, with what is secret left out."""
        return self.told(ask, guest, self.seen(id_), done=DONE.get(ask.query.get("done", ""), ""))

    def told(self, ask: Ask, guest: Guest, seen: Seen, *, status: int = 200, **values: Any) -> Answered:
        """The page of an operation; `values` say what was done, what was wrong, or that all is to be shown."""
        found = operations.kept(seen.record, self.sealer)
        trail = operations.history(seen.record, self.sealer)
        given: dict[str, Any] = {"open": False, "done": "", "wrong": "", "kind": "", "filled": desk.BLANK} | values
        return self.page(
            "operation.html",
            ask,
            guest,
            status=status,
            **given | {"live": status == OK and not given["open"], "tab": "operations"},
            seen=seen,
            record=seen.record,
            now=seen.now,
            lines=timeline.timeline(seen, found, trail),
            kept=kept_of(found, seen.record),
            offered=desk.offered(seen),
            mark=desk.mark(seen.record, trail),
        )


class Held(NamedTuple):
    """What is kept of an outcome, as a page shows it: `text` and `headers` only when they were asked for."""

    summary: str
    headers: list[tuple[str, str]]
    text: str
    cut: bool


def kept_of(found: Kept | None, record: Record) -> Held | None:
    """What is kept of the outcome; None: there is none yet."""
    if record.state not in (State.COMPLETED, State.EXPIRED):
        return None
    outcome = found.outcome if found is not None else None
    headers, body = [], b""
    if isinstance(outcome, Answer):
        body = outcome.body
        headers = [(name.decode("latin-1"), value.decode("latin-1")) for name, value in outcome.headers]
    elif isinstance(outcome, Value):
        body = outcome.data
    text = body[:SHOWN].decode(errors="backslashreplace")
    return Held(timeline.summary(found), headers, text, len(body) > SHOWN)
