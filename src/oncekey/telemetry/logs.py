"""Events as log lines with fields. Keys and credentials are in none of them, only digests.

`Logs` hands the fields over as `extra`, under names that begin with `oncekey_`, for whatever formatter there is;
`JsonFormatter` writes one object a line.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Iterable
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from oncekey.engine import events
from oncekey.engine.current import TRACE

if TYPE_CHECKING:
    from oncekey.engine.events import Event

PREFIX = "oncekey_"
# What somebody should look at, one day or at once; everything else is the ordinary run of things.
WARNINGS = frozenset(
    {events.KEY_MISUSE, events.UNKNOWN, events.LEASE_LOST, events.LAPSED, events.SETTLE_REFUSED, events.SETTLE_OWED}
    | {events.STORE_ERROR, events.TURNED_UNKNOWN, events.UNCLEAR, events.MESSAGE_PARKED, events.OUTBOX_PARKED}
    | {events.BROKER_DOWN, events.BROKER_LOST, events.SHADOW_ERROR}
)
ERRORS = frozenset({events.DEAD_LETTER})
# As often as a request or more, and of interest to few.
DEBUG = frozenset({events.BATCH})


class Logs:
    """A sink that logs: give it to an engine. `quiet` names events that are not logged."""

    def __init__(self, logger: logging.Logger | None = None, quiet: Iterable[str] = ()) -> None:
        self.logger = logger or logging.getLogger("oncekey.events")
        self.quiet = frozenset(quiet)

    def __call__(self, event: Event) -> None:
        """Log one event."""
        level = level_of(event.name)
        if event.name not in self.quiet and self.logger.isEnabledFor(level):
            fields = {PREFIX + name: value for name, value in fields_of(event).items()}
            self.logger.log(level, "%s %s", event.name, event.ref or event.detail, extra=fields)


def level_of(name: str) -> int:
    """How loudly an event is told."""
    if name in ERRORS:
        return logging.ERROR
    if name in WARNINGS:
        return logging.WARNING
    return logging.DEBUG if name in DEBUG else logging.INFO


def fields_of(event: Event) -> dict[str, Any]:
    """What an event says, without what it does not say, and which request it belongs to, if that one is traced."""
    fields: dict[str, Any] = {"event": event.name}
    fields |= {name: value for name, value in event._asdict().items() if name not in ("name", "size") and value}
    if event.size != 1:
        fields["size"] = event.size
    request = TRACE.get()
    if request is not None:
        here = request.here
        fields |= {"trace_id": here[:16].hex(), "span_id": here[16:24].hex()}
    return fields


class JsonFormatter(logging.Formatter):
    """One JSON object a line: when, how loud, who says it, what, and the fields of an event."""

    def format(self, record: logging.LogRecord) -> str:
        """Write one record."""
        at = datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds")
        line: dict[str, Any] = {"at": at, "level": record.levelname.lower(), "logger": record.name}
        line["message"] = record.getMessage()
        line |= {name[len(PREFIX) :]: value for name, value in record.__dict__.items() if name.startswith(PREFIX)}
        if record.exc_info:
            line["exception"] = self.formatException(record.exc_info)
        return json.dumps(line, default=str)
