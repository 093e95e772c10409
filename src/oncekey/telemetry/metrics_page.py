"""The page that Prometheus reads, as an endpoint without a framework: adapters.endpoint serves it."""

from __future__ import annotations

from collections.abc import Callable, Generator
from typing import TYPE_CHECKING, Any

from oncekey.core.commands import Page
from oncekey.core.record import Record, State
from oncekey.engine.events import log
from oncekey.errors import OnceKeyError
from oncekey.http.messages import Reply, Request
from oncekey.http.plain import Steps, plain_problem
from oncekey.telemetry.counters import Counters
from oncekey.telemetry.metrics import DEAD_LETTERS_SEEN, STORE_UP, UNKNOWN_AGE, UNKNOWN_SEEN, Metric
from oncekey.telemetry.prometheus import CONTENT_TYPE, page

if TYPE_CHECKING:
    from oncekey.stores.contract import Store

# Looked at in each scrape, by the queue's index: so many of the longest due, and so many of the dead letters.
MOST = 100
# Later than any time that a record waits for.
EVER = 253_402_300_799_999


class MetricsPage:
    """What was counted, and what a look at the store tells. It is served on any path: mount it where you like."""

    def __init__(self, counters: Counters) -> None:
        self.counters = counters

    def __call__(self, request: Request) -> Steps:
        """The reply to one scrape. Where the store is away, the figures of the store are missing, and `up` says so."""
        if request.method not in ("GET", "HEAD"):
            return plain_problem(405, "Ask with GET.", [(b"allow", b"GET, HEAD")])
        try:
            gauges = yield from standing()
        except OnceKeyError as error:
            gauges = away(error)
        body = page(self.counters, gauges)
        head = [
            (b"content-type", CONTENT_TYPE),
            (b"content-length", b"%d" % len(body)),
            (b"cache-control", b"no-store"),
        ]
        return Reply(200, head, body)


def standing() -> Generator[Callable[[Any], Any], Any, dict[Metric, float]]:
    """What waits to be found out, for a store of either colour: how long the oldest has waited, and how many there are.

    The age is exact as long as no more than MOST are unknown; beyond that it is that of the longest due.
    """
    due: Page = yield lambda store: store.scan((State.UNKNOWN,), due_before=EVER, limit=MOST)
    dead: Page = yield lambda store: store.scan((State.UNKNOWN,), undated=True, limit=MOST)
    ages = [_age(record, page_.now) for page_ in (due, dead) for record in page_.records]
    return {
        UNKNOWN_AGE: max(ages, default=0.0),
        UNKNOWN_SEEN: len(due.records),
        DEAD_LETTERS_SEEN: len(dead.records),
        STORE_UP: 1,
    }


def look(store: Store) -> dict[Metric, float]:
    """The same from a store for threads, on the spot; if it does not answer, that alone."""
    steps = standing()
    try:
        step = next(steps)
        while True:
            step = steps.send(step(store))
    except StopIteration as end:
        return end.value  # type: ignore[no-any-return]
    except OnceKeyError as error:
        return away(error)


def away(error: OnceKeyError) -> dict[Metric, float]:
    """What is known of a store that does not answer."""
    log.warning("the store could not be looked at for the metrics: %s", error)
    return {STORE_UP: 0}


def _age(record: Record, now: int) -> float:
    return max(0, now - record.claimed_at) / 1000
