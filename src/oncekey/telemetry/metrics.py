"""Which figures each event moves. All of them exist from the start, so that a rate has a zero to begin from."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

from oncekey.engine import events
from oncekey.engine.events import Event


class Metric(NamedTuple):
    """One counter: its dotted name, and what it counts in a sentence. `labels` tell it from others of its name."""

    name: str
    help: str
    labels: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True, eq=False, slots=True)
class Histogram:
    """How long something took, or how large it was. `bounds` are the upper ends of its buckets, without infinity."""

    name: str
    help: str
    bounds: tuple[float, ...]
    unit: str
    labels: tuple[tuple[str, str], ...] = ()


_RESERVE = "api.idempotency.reserve"
_SETTLE = "api.idempotency.settle"
_INBOX = "api.idempotency.inbox"
_OUTBOX = "api.idempotency.outbox"
_SHADOW = "api.idempotency.shadow"

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
    events.LET_GO: Metric("api.idempotency.wait.let_go.count", "held duplicates that were let go, answered or not"),
    events.LAPSED: ZOMBIE,
    events.BATCH: Metric("api.idempotency.batch.count", "batches of commands that were sent to the store"),
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
    events.SHADOW_CREATED: Metric(f"{_SHADOW}.created.count", "shadow: keys seen for the first time"),
    events.SHADOW_REPLAYED: Metric(f"{_SHADOW}.replay.count", "shadow: requests that would have been answered again"),
    events.SHADOW_IN_PROGRESS: Metric(f"{_SHADOW}.in_progress.count", "shadow: duplicates of a run that lasts"),
    events.SHADOW_KEY_MISUSE: Metric(f"{_SHADOW}.key_misuse.count", "shadow: keys that came with another request"),
    events.SHADOW_UNKNOWN: Metric(f"{_SHADOW}.unknown.count", "shadow: retries of an outcome that would be unknown"),
    events.SHADOW_REFUSED: Metric(f"{_SHADOW}.refused.count", "shadow: keys that have expired or are used up"),
    events.SHADOW_RETRIED: Metric(f"{_SHADOW}.failed_retry.count", "shadow: retries that would have been run again"),
    events.SHADOW_KEY_REFUSED: Metric(f"{_SHADOW}.key_refused.count", "shadow: requests without a key that is one"),
    events.SHADOW_SKIPPED: Metric(f"{_SHADOW}.skipped.count", "shadow: requests whose body was not seen whole"),
    events.SHADOW_ERROR: Metric(f"{_SHADOW}.error.count", "shadow: requests that could not be looked up"),
}

# Whose keys are misused is told by the first digit of the scope's digest: a few series however many callers there
# are, and the digit to look for in the log.
SHARDS = "0123456789abcdef"
MISUSE = "api.idempotency.reserve.key_misuse.by_scope.count"
MISUSE_BY_SHARD: dict[str, Metric] = {
    digit: Metric(MISUSE, "requests refused as misuse, by the first digit of their scope", (("scope", digit),))
    for digit in SHARDS
}

METRICS: tuple[Metric, ...] = tuple(dict.fromkeys((*BY_EVENT.values(), *MISUSE_BY_SHARD.values())))

# ---- how long, and how large ---------------------------------------------------------------------------------------

SECONDS = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)
SIZES = (1, 2, 4, 8, 16, 32, 64, 128)

DECIDE = Histogram("api.idempotency.decide.seconds", "how long a decision took, without being held", SECONDS, "s")
HANDLER = Histogram("api.idempotency.handler.seconds", "how long the work ran, from its claim to its end", SECONDS, "s")
SETTLE = Histogram("api.idempotency.settle.seconds", "how long it took to store an outcome", SECONDS, "s")
HOLD = Histogram("api.idempotency.wait.seconds", "how long a duplicate was held", SECONDS, "s")
BATCHES: dict[str, Histogram] = {
    verb: Histogram("api.idempotency.batch.size", "commands in a batch", SIZES, "", (("verb", verb),))
    for verb in ("claim", "settle", "renew")
}
HISTOGRAMS: tuple[Histogram, ...] = (DECIDE, HANDLER, SETTLE, HOLD, *BATCHES.values())

_DECIDED = (events.CREATED, events.RETRIED, events.REPLAYED, events.IN_PROGRESS)
_TURNED_AWAY = (events.KEY_MISUSE, events.UNKNOWN, events.REFUSED)
_SETTLED = (events.COMPLETED, events.FAILED_RETRYABLE, events.TURNED_UNKNOWN)
_TOOK: dict[str, Histogram] = {
    **dict.fromkeys((*_DECIDED, *_TURNED_AWAY), DECIDE),
    **dict.fromkeys(_SETTLED, SETTLE),
    events.LET_GO: HOLD,
}

# ---- what stands in the store ----------------------------------------------------------------------------------------

UNKNOWN_AGE = Metric("api.idempotency.unknown.age.seconds", "how long ago the oldest unknown operation was begun")
UNKNOWN_SEEN = Metric("api.idempotency.unknown.seen", "unknown operations at hand, counted up to a hundred")
DEAD_LETTERS_SEEN = Metric("api.idempotency.unknown.dead_letters", "dead letters at hand, counted up to a hundred")
STORE_UP = Metric("api.idempotency.store.up", "whether the store answered just now")
GAUGES: tuple[Metric, ...] = (UNKNOWN_AGE, UNKNOWN_SEEN, DEAD_LETTERS_SEEN, STORE_UP)


def counted(event: Event) -> Iterator[Metric]:
    """The counters that an event moves."""
    metric = BY_EVENT.get(event.name)
    if metric is not None:
        yield metric
    if (misuse := misuse_of(event)) is not None:
        yield misuse


def misuse_of(event: Event) -> Metric | None:
    """The counter of misuse by scope, if the event is one."""
    return MISUSE_BY_SHARD.get(event.scope[:1]) if event.name == events.KEY_MISUSE else None


def measured(event: Event) -> Iterator[tuple[Histogram, float]]:
    """What an event says of times and sizes."""
    if event.took_for is not None and (took := _TOOK.get(event.name)) is not None:
        yield took, event.took_for
    if event.ran_for is not None:
        yield HANDLER, event.ran_for
    if event.name == events.BATCH and (batches := BATCHES.get(event.detail)) is not None:
        yield batches, event.size
