"""Which counter each event moves. All counters exist from the start, so that a rate has a zero to begin from."""

from __future__ import annotations

from typing import NamedTuple

from oncekey.engine import events


class Metric(NamedTuple):
    """One counter: its dotted name, and what it counts in a sentence."""

    name: str
    help: str


_RESERVE = "api.idempotency.reserve"
_SETTLE = "api.idempotency.settle"
_INBOX = "api.idempotency.inbox"
_OUTBOX = "api.idempotency.outbox"

# What no event of the engine tells: the work of sweepers, purges and reconcilers.
ZOMBIE = Metric("api.idempotency.zombie_key.count", "leases that ended while their work was running")
PRUNED = Metric("api.idempotency.ttl_pruned.count", "records deleted because they had expired")
RESOLVED = Metric("api.idempotency.reconcile.resolved.count", "unknown outcomes that were found out")
FAILED = Metric("api.idempotency.reconcile.failed.count", "attempts to find out an unknown outcome that failed")
DEAD_LETTER = Metric("api.idempotency.reconcile.dead_letter.count", "unknown outcomes given up: somebody must look")
SCHEDULED = Metric("api.idempotency.reconcile.scheduled.count", "outcomes that became unknown and wait to be found out")

BY_EVENT: dict[str, Metric] = {
    events.CREATED: Metric(f"{_RESERVE}.created.count", "keys seen for the first time, whose work was run"),
    events.REPLAYED: Metric(f"{_RESERVE}.replay.count", "requests answered with the stored answer"),
    events.IN_PROGRESS: Metric(f"{_RESERVE}.in_progress.count", "requests refused while their first run lasts"),
    events.KEY_MISUSE: Metric(f"{_RESERVE}.key_misuse.count", "requests refused: their key names another"),
    events.RETRIED: Metric(f"{_RESERVE}.failed_retry.count", "work that was run again after a failure without effect"),
    events.UNKNOWN: Metric(f"{_RESERVE}.unknown.count", "requests refused because an earlier outcome is unknown"),
    events.REFUSED: Metric(f"{_RESERVE}.refused.count", "requests refused because their key has expired or is used up"),
    events.STORE_ERROR: Metric("api.idempotency.store.error.count", "calls that the store did not answer"),
    events.COMPLETED: Metric(f"{_SETTLE}.completed.count", "outcomes stored"),
    events.FAILED_RETRYABLE: Metric(f"{_SETTLE}.failed_retryable.count", "attempts that ended without effect"),
    events.TURNED_UNKNOWN: SCHEDULED,
    events.LEASE_LOST: Metric("api.idempotency.lease.lost.count", "leases that were lost while their work was running"),
    events.SETTLE_REFUSED: Metric(f"{_SETTLE}.refused.count", "outcomes refused: the lease was another's"),
    events.SETTLE_OWED: Metric(f"{_SETTLE}.owed.count", "outcomes that the store could not take at once"),
    events.HELD: Metric("api.idempotency.wait.held.count", "duplicates that were held for the first answer"),
    events.PURGED: PRUNED,
    events.RESOLVED: RESOLVED,
    events.UNCLEAR: FAILED,
    events.DEAD_LETTER: DEAD_LETTER,
    events.MESSAGE_DONE: Metric(f"{_INBOX}.done.count", "messages handled"),
    events.MESSAGE_DUPLICATE: Metric(f"{_INBOX}.duplicate.count", "messages that had been handled before"),
    events.MESSAGE_LATER: Metric(f"{_INBOX}.later.count", "messages left to come again, most after a failure"),
    events.MESSAGE_PARKED: Metric(f"{_INBOX}.parked.count", "messages given up and parked: somebody must look"),
    events.OUTBOX_SENT: Metric(f"{_OUTBOX}.sent.count", "messages that a broker has confirmed"),
    events.OUTBOX_LATER: Metric(f"{_OUTBOX}.later.count", "messages that a broker refused, to be tried again"),
    events.OUTBOX_PARKED: Metric(f"{_OUTBOX}.parked.count", "messages given up as dead letters: somebody must look"),
    events.BROKER_DOWN: Metric(f"{_OUTBOX}.broker_down.count", "batches that found no broker, or no confirmation"),
    events.BROKER_LOST: Metric(f"{_INBOX}.broker_lost.count", "brokers that a consumer could not use for a moment"),
}

METRICS: tuple[Metric, ...] = tuple(dict.fromkeys((*BY_EVENT.values(), ZOMBIE)))
