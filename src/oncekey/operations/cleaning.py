"""To clean up: sweep lapsed leases to what they mean, purge what has expired. Any number may do it at once."""

from __future__ import annotations

import time
from collections.abc import Callable, Generator
from dataclasses import dataclass
from typing import Any

from oncekey.core.commands import DONE, Done, Page, Swap, Written
from oncekey.core.flows import Terms, lapse
from oncekey.core.policy import Policy, ms
from oncekey.core.record import FINAL, IN_PROGRESS, Record, Seen, State
from oncekey.core.transitions import TABLE, Facts, refusal
from oncekey.engine.common import tell_lapsed
from oncekey.engine.events import PURGED, Events, Sink
from oncekey.operations.looking import NOW, PAGE
from oncekey.stores.contract import Store

# Small enough that requests do not feel a batch, large enough that a million rows are two thousand round trips.
BATCH = 500
# After a batch the store is left alone for as long as the batch took, up to this: requests come first.
LONGEST_REST = 0.25


@dataclass(slots=True)
class SweepReport:
    """What became of lapsed leases; `moved_on` were settled or renewed by somebody else before we could."""

    unknown: int = 0
    failed_retryable: int = 0
    moved_on: int = 0


@dataclass(frozen=True, slots=True)
class PurgeReport:
    """What a purge did. It is not `finished` if it was stopped, or reached its limit, while more may have expired."""

    swept: SweepReport
    deleted: int
    finished: bool
    stopped: bool
    rehearsed: bool = False


def usual_terms() -> Terms:
    """The retention and waiting times of the usual policy, for records that a sweep moves."""
    policy = Policy()
    return Terms(ms(policy.keep_for), ms(policy.reconcile_after_for))


def silent(record: Record) -> None:
    """Tell nobody."""


def sweep(
    store: Store,
    terms: Terms | None = None,
    *,
    stop: Callable[[], bool] = lambda: False,
    told: Callable[[Record], None] = silent,
) -> SweepReport:
    """Turn every record whose lease is over into what the table says; alive ones are not touched."""
    steps = sweeping(terms or usual_terms(), stop, told)
    answer: Any = None
    try:
        while True:
            answer = steps.send(answer)(store)
    except StopIteration as end:
        report: SweepReport = end.value
        return report


def sweeping(
    terms: Terms, stop: Callable[[], bool], told: Callable[[Record], None]
) -> Generator[Callable[[Any], Any], Any, SweepReport]:
    """The same for either colour: it yields what to ask of the store, as functions of it."""
    report = SweepReport()
    after: str | None = None
    while not stop():
        page: Page = yield _lapsed_behind(after)
        for record in page.records:
            lapsed = lapse(Seen(record, page.now), terms)
            if lapsed is not None:
                swap = Swap(record, lapsed)
                written = yield _swapping(swap)
                _count(report, lapsed, written, told)
        after = page.after
        if after is None:
            break
    return report


def _lapsed_behind(after: str | None) -> Callable[[Any], Any]:
    return lambda store: store.scan(IN_PROGRESS, due_before=NOW, after=after, limit=PAGE)


def _swapping(swap: Swap) -> Callable[[Any], Any]:
    return lambda store: store.swap(swap)


def _count(report: SweepReport, lapsed: Record, written: Written, told: Callable[[Record], None]) -> None:
    if not isinstance(written, Done):
        report.moved_on += 1
        return
    if lapsed.state is State.UNKNOWN:
        report.unknown += 1
    else:
        report.failed_retryable += 1
    told(lapsed)


def would_purge(
    store: Store,
    *,
    stop: Callable[[], bool] = lambda: False,
    progress: Callable[[int], None] = lambda deleted: None,
) -> PurgeReport:
    """What a purge would do now: every finished record is looked at, and nothing is changed."""
    swept, deleted, after = SweepReport(), 0, None
    terms = usual_terms()
    while True:
        page = store.scan((*IN_PROGRESS, *FINAL), after=after, limit=PAGE)
        for record in page.records:
            lapsed = lapse(Seen(record, page.now), terms)
            if lapsed is not None:
                _count(swept, lapsed, DONE, silent)
            facts = Facts(page.now)
            deleted += any(refusal(TABLE[row], record, facts) is None for row in ("expire", "expire_softly"))
        progress(deleted)
        after = page.after
        if after is None or stop():
            return PurgeReport(swept, deleted, finished=after is None, stopped=after is not None, rehearsed=True)


def purge(
    store: Store,
    *,
    limit: int | None = None,
    batch: int = BATCH,
    stop: Callable[[], bool] = lambda: False,
    progress: Callable[[int], None] = lambda deleted: None,
    rest: Callable[[float], None] = time.sleep,
    sinks: tuple[Sink, ...] = (),
) -> PurgeReport:
    """Sweep lapsed leases, then delete what has expired, batch by batch, with a rest after each.

    `stop` is asked between batches, and `progress` told how many are gone so far: each batch is whole or not at all.
    `sinks` are told events.
    """
    said = Events(sinks)
    swept = sweep(store, stop=stop, told=lambda record: tell_lapsed(said, record))
    deleted, more = 0, True
    while more and (limit is None or deleted < limit) and not stop():
        began = time.monotonic()
        gone = store.purge(batch if limit is None else min(batch, limit - deleted))
        deleted, more = deleted + gone.deleted, gone.more
        if gone.deleted:
            said.say(PURGED, size=gone.deleted)
        progress(deleted)
        if more:
            rest(min(time.monotonic() - began, LONGEST_REST))
    return PurgeReport(swept, deleted, finished=not more, stopped=more and stop())
