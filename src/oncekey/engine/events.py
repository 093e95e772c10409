"""What happened, said once. Sinks (counters, logs, traces) listen; keys appear only as references."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager
from typing import NamedTuple, Protocol, TypedDict, Unpack, cast

from oncekey.core.keys import key_ref
from oncekey.core.record import State

log = logging.getLogger("oncekey")


class Event(NamedTuple):
    """Something that happened to one operation. `ref` and `scope` are digests, never a key nor a credential.

    `took_for` is how long it took, in seconds: a decision, a settlement, a wait; `ran_for` how long the work before a
    settlement ran; `size` how many there were, where one event tells of several.
    """

    name: str
    ref: str = ""
    detail: str = ""
    scope: str = ""
    endpoint: str = ""
    took_for: float | None = None
    ran_for: float | None = None
    size: int = 1


Sink = Callable[[Event], None]


class More(TypedDict, total=False):
    """What an event may say beside its name, whom it is about, and a detail."""

    scope: str
    endpoint: str
    took_for: float | None
    ran_for: float | None
    size: int


CREATED = "created"
REPLAYED = "replayed"
IN_PROGRESS = "in_progress"
KEY_MISUSE = "key_misuse"
UNKNOWN = "unknown"
REFUSED = "refused"
RETRIED = "retried"
COMPLETED = "completed"
FAILED_RETRYABLE = "failed_retryable"
TURNED_UNKNOWN = "turned_unknown"
LEASE_LOST = "lease_lost"
SETTLE_REFUSED = "settle_refused"
SETTLE_OWED = "settle_owed"
STORE_ERROR = "store_error"
HELD = "held"
LET_GO = "let_go"
LAPSED = "lapsed"
BATCH = "batch"
PURGED = "purged"
RESOLVED = "resolved"
UNCLEAR = "unclear"
DEAD_LETTER = "dead_letter"
MESSAGE_DONE = "message_done"
MESSAGE_DUPLICATE = "message_duplicate"
MESSAGE_LATER = "message_later"
MESSAGE_PARKED = "message_parked"
OUTBOX_SENT = "outbox_sent"
OUTBOX_LATER = "outbox_later"
OUTBOX_PARKED = "outbox_parked"
BROKER_DOWN = "broker_down"
BROKER_LOST = "broker_lost"
SHADOW_CREATED = "shadow_created"
SHADOW_REPLAYED = "shadow_replayed"
SHADOW_IN_PROGRESS = "shadow_in_progress"
SHADOW_KEY_MISUSE = "shadow_key_misuse"
SHADOW_UNKNOWN = "shadow_unknown"
SHADOW_REFUSED = "shadow_refused"
SHADOW_RETRIED = "shadow_retried"
SHADOW_KEY_REFUSED = "shadow_key_refused"
SHADOW_SKIPPED = "shadow_skipped"
SHADOW_ERROR = "shadow_error"

NAMES = (
    CREATED,
    REPLAYED,
    IN_PROGRESS,
    KEY_MISUSE,
    UNKNOWN,
    REFUSED,
    RETRIED,
    COMPLETED,
    FAILED_RETRYABLE,
    TURNED_UNKNOWN,
    LEASE_LOST,
    SETTLE_REFUSED,
    SETTLE_OWED,
    STORE_ERROR,
    HELD,
    LET_GO,
    LAPSED,
    BATCH,
    PURGED,
    RESOLVED,
    UNCLEAR,
    DEAD_LETTER,
    MESSAGE_DONE,
    MESSAGE_DUPLICATE,
    MESSAGE_LATER,
    MESSAGE_PARKED,
    OUTBOX_SENT,
    OUTBOX_LATER,
    OUTBOX_PARKED,
    BROKER_DOWN,
    BROKER_LOST,
    SHADOW_CREATED,
    SHADOW_REPLAYED,
    SHADOW_IN_PROGRESS,
    SHADOW_KEY_MISUSE,
    SHADOW_UNKNOWN,
    SHADOW_REFUSED,
    SHADOW_RETRIED,
    SHADOW_KEY_REFUSED,
    SHADOW_SKIPPED,
    SHADOW_ERROR,
)


# How an attempt ended.
ENDED = {
    State.COMPLETED: COMPLETED,
    State.FAILED_RETRYABLE: FAILED_RETRYABLE,
    State.UNKNOWN: TURNED_UNKNOWN,
}


class Tracer(Protocol):
    """A sink that follows requests: what happens inside of `during` is joined to the caller's trace."""

    def during(self, headers: Iterable[tuple[bytes, bytes]]) -> AbstractContextManager[object]:
        """While the request with these headers is served."""
        ...


class Events:
    """The sinks of one engine. A failing sink is logged and never disturbs the request."""

    def __init__(self, sinks: tuple[Sink, ...] = ()) -> None:
        self.sinks = sinks
        # The first sink that follows requests; one is enough, because it is given all of them.
        self.tracer: Tracer | None = next((cast("Tracer", sink) for sink in sinks if hasattr(sink, "during")), None)

    def say(self, name: str, id_: bytes = b"", detail: str = "", **more: Unpack[More]) -> None:
        """Tell every sink. Costs next to nothing where nobody listens."""
        if not self.sinks:
            return
        event = Event(name, key_ref(id_) if id_ else "", detail, **more)
        for sink in self.sinks:
            try:
                sink(event)
            except Exception:  # a broken sink must not fail a payment
                log.exception("an event sink failed on %s", name)

    def counting(self, verb: str) -> Callable[[int], None] | None:
        """Who is told how many commands each batch has; nobody where nobody listens."""
        return (lambda size: self.say(BATCH, detail=verb, size=size)) if self.sinks else None
