"""Forms that change an operation: read, checked, rehearsed, and done only when the rehearsal was confirmed.

What is confirmed is what was shown: a mark of it travels with the form. That a reconciler has asked once more meanwhile
changes nothing of it; each write is compared with the record's version all the same.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from oncekey import operations
from oncekey.core.journal import Audit
from oncekey.core.outcome import Answer, Header, Tombstone
from oncekey.core.record import IN_PROGRESS, Record, Seen, State
from oncekey.errors import ConfigurationError
from oncekey.http.capture import legal
from oncekey.operations import KEEP_FOR, Change, Desk, Signature

HOUR = 3600
# The longest time for which a settled operation is remembered, in hours: ten years.
MOST_HOURS = 87_600
STATUSES = range(200, 600)
COMPLETE, RETRYABLE, ASK = "complete", "retryable", "ask"
KINDS = (COMPLETE, RETRYABLE, ASK)
GONE = "settled by hand, its answer is not known"
# What a form has before anybody has written into it.
BLANK = {
    "why": "",
    "status": "200",
    "type": "application/json",
    "headers": "",
    "body": "",
    "hours": f"{KEEP_FOR / HOUR:g}",
    "gone": "",
    "sure": "",
}


class Wish(NamedTuple):
    """What somebody wants done to an operation."""

    kind: str
    signature: Signature
    outcome: Answer | Tombstone | None
    keep_for: float


def offered(seen: Seen) -> tuple[str, ...]:
    """What may be done by hand here. Finished and living operations are left to the command line's --force."""
    record, now = seen
    if record.state is State.UNKNOWN:
        return KINDS
    lapsed = record.state in IN_PROGRESS and record.lease_until is not None and record.lease_until <= now
    return (COMPLETE, RETRYABLE) if lapsed else (COMPLETE,) if record.state is State.FAILED_RETRYABLE else ()


def mark(record: Record, trail: Sequence[Audit]) -> str:
    """For which state of which attempt a form was made, and after how many decisions by others."""
    return f"{record.claimed_at}.{record.attempts}.{record.state.word}.{len(trail)}"


def wished(kind: str, form: Mapping[str, str], by: str) -> Wish:
    """What a form says. ConfigurationError: what is wrong with it."""
    if not form.get("why", "").strip():
        raise ConfigurationError("the reason is missing: write how you know, it stays in the record")
    signature = Signature(by, " ".join(form["why"].split())).checked()
    if kind == RETRYABLE and not form.get("sure"):
        raise ConfigurationError("make sure first that the attempt can no longer arrive, and tick the box that says so")
    outcome = _outcome(form) if kind == COMPLETE else None
    return Wish(kind, signature, outcome, _keep_for(form.get("hours", "")))


def carried_out(desk: Desk, seen: Seen, wish: Wish) -> Change:
    """Do it, or rehearse it: as the desk is."""
    if wish.kind == ASK:
        return desk.ask_again(seen, wish.signature)
    if wish.outcome is not None:
        return desk.complete(seen, wish.outcome, wish.signature, keep_for=wish.keep_for)
    return desk.retryable(seen, wish.signature, keep_for=wish.keep_for)


def _keep_for(text: str) -> float:
    try:
        hours = float(text or KEEP_FOR / HOUR)
    except ValueError:
        hours = 0
    if not 0 < hours <= MOST_HOURS:
        raise ConfigurationError(f"{text!r} is no time to be remembered: write a number of hours above 0")
    return hours * HOUR


def _outcome(form: Mapping[str, str]) -> Answer | Tombstone:
    status = form.get("status", "").strip()
    if not (status.isascii() and status.isdigit()) or int(status[:4]) not in STATUSES:
        raise ConfigurationError(f"the status is {status!r}: write the final status of the answer, such as 201")
    if form.get("gone"):
        return Tombstone(int(status), GONE)
    # Forms end lines as mail does; nobody's handler does.
    body = form.get("body", "").replace("\r\n", "\n").encode("utf-8", "replace")
    headers = _headers(form)
    if any(name == b"content-type" and b"json" in value.lower() for name, value in headers):
        try:
            json.loads(body)
        except (ValueError, RecursionError) as wrong:
            raise ConfigurationError(f"the body is not JSON ({wrong}): correct it, or choose another type") from wrong
    return operations.answer(int(status), [*headers, (b"content-length", b"%d" % len(body))], body)


def _headers(form: Mapping[str, str]) -> list[Header]:
    lines = [f"content-type: {form['type'].strip()}"] if form.get("type", "").strip() else []
    lines += [line for line in form.get("headers", "").splitlines() if line.strip()]
    headers: list[Header] = []
    for line in lines:
        name, colon, value = line.partition(":")
        try:
            header = (name.strip().lower().encode("ascii"), value.strip().encode("latin-1"))
        except UnicodeEncodeError as wrong:
            raise ConfigurationError(f"the header {line!r} has letters that HTTP does not carry") from wrong
        if not colon or not legal(*header):
            raise ConfigurationError(f"{line!r} is no header: write name: value, one on each line")
        if header[0] != b"content-length":
            headers.append(header)
    return headers
