"""What happened, said once. Sinks (counters, logs, traces) listen; keys appear only as references."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import NamedTuple

from oncekey.core.keys import key_ref

log = logging.getLogger("oncekey")


class Event(NamedTuple):
    """Something that happened to one operation. `ref` is a digest, never the key."""

    name: str
    ref: str = ""
    detail: str = ""


Sink = Callable[[Event], None]

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
)


class Events:
    """The sinks of one engine. A failing sink is logged and never disturbs the request."""

    def __init__(self, sinks: tuple[Sink, ...] = ()) -> None:
        self.sinks = sinks

    def say(self, name: str, id_: bytes = b"", detail: str = "") -> None:
        """Tell every sink. Costs next to nothing where nobody listens."""
        if not self.sinks:
            return
        event = Event(name, key_ref(id_) if id_ else "", detail)
        for sink in self.sinks:
            try:
                sink(event)
            except Exception:  # a broken sink must not fail a payment
                log.exception("an event sink failed on %s", name)
