"""To clean up: sweep lapsed leases to what they mean, purge what has expired. Any number may do it at once."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from oncekey.core.commands import Done, Swap
from oncekey.core.flows import Terms, lapse
from oncekey.core.policy import Policy, ms
from oncekey.core.record import IN_PROGRESS, Seen, State
from oncekey.operations.looking import NOW, PAGE
from oncekey.stores.contract import Store

# Small enough that requests do not feel a batch, large enough that a million rows are two thousand round trips.
BATCH = 500


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


def usual_terms() -> Terms:
    """The retention and waiting times of the usual policy, for records that a sweep moves."""
    policy = Policy()
    return Terms(ms(policy.keep_for), ms(policy.reconcile_after_for))


def sweep(store: Store, terms: Terms | None = None, *, stop: Callable[[], bool] = lambda: False) -> SweepReport:
    """Turn every record whose lease is over into what the table says; alive ones are not touched."""
    terms = terms or usual_terms()
    report = SweepReport()
    after = None
    while not stop():
        page = store.scan(IN_PROGRESS, due_before=NOW, after=after, limit=PAGE)
        for record in page.records:
            lapsed = lapse(Seen(record, page.now), terms)
            if lapsed is None:
                continue
            if not isinstance(store.swap(Swap(record, lapsed)), Done):
                report.moved_on += 1
            elif lapsed.state is State.UNKNOWN:
                report.unknown += 1
            else:
                report.failed_retryable += 1
        after = page.after
        if after is None:
            break
    return report


def purge(
    store: Store,
    *,
    limit: int | None = None,
    batch: int = BATCH,
    stop: Callable[[], bool] = lambda: False,
    progress: Callable[[int], None] = lambda deleted: None,
) -> PurgeReport:
    """Sweep lapsed leases, then delete what has expired, batch by batch.

    `stop` is asked between batches, and `progress` told how many are gone so far: each batch is whole or not at all.
    """
    swept = sweep(store, stop=stop)
    deleted, more = 0, True
    while more and (limit is None or deleted < limit) and not stop():
        gone = store.purge(batch if limit is None else min(batch, limit - deleted))
        deleted, more = deleted + gone.deleted, gone.more
        progress(deleted)
    return PurgeReport(swept, deleted, finished=not more, stopped=more and stop())
