"""What an answer says about the operation, read by one table for every server.

The first rule that knows the answer decides:

    a replay             the stored answer: definite, or, where it is a stored 5xx, as definite as it will ever be
    OnceKey's header     `idempotency-problem` names the refusal in every dialect
    problem+json         the member `retry`
    the provider's words error codes of Stripe, Square, PayPal, Adyen and AWS
    hints                `stripe-should-retry`, `x-should-retry`, `transient-error`
    the status           409 is in flight, 408, 425 and 429 come back, 401, 403 and 407 were not let in, 5xx may have
                         happened, anything else is an answer

clients/vectors/decisions.json holds this table as cases, for every language that has a client.
"""

from __future__ import annotations

import json
import re
from datetime import UTC, datetime
from enum import StrEnum
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

_SUCCESS, _CLIENT_ERROR, _SERVER_ERROR = 200, 400, 500
_MOST_READ = 65_536
_LONGEST = 999_999_999.0
_DATE = re.compile(
    r"[A-Z][a-z]{2}, (?P<day>[0-9]{2}) (?P<month>[A-Z][a-z]{2}) (?P<year>[0-9]{4}) "
    r"(?P<hour>[0-9]{2}):(?P<minute>[0-9]{2}):(?P<second>[0-9]{2}) GMT"
)
_MONTHS = ("Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec")


class Verdict(StrEnum):
    """What one answer means for the operation."""

    ANSWER = "answer"  # definite, whatever its status: give it to the caller
    MISMATCH = "mismatch"  # the key belongs to another request: never again, and no new key in its place
    BUSY = "busy"  # the first attempt is running: wait, then ask again
    NOT_DONE = "not-done"  # the keeper of the key says that nothing has happened: same key, later
    LATER = "later"  # this request was turned away; of earlier ones it says nothing: same key, later
    UNKNOWN = "unknown"  # it may have happened: same key, later, never another one
    STOP = "stop"  # it may have happened, and asking again will not tell
    DENIED = "denied"  # the caller was not let in: of earlier attempts it says nothing; same key, other credentials
    STALE = "stale"  # older than answers are kept, and not on record: it may have been done and forgotten
    OVER = "over"  # it was done, and its answer is gone: neither this key again nor a new one


class Answer(NamedTuple):
    """The parts of a response that decide. Names of headers are in lower case."""

    status: int
    headers: Mapping[str, str]
    body: bytes = b""


_BY_SLUG = {
    "key-reused": Verdict.MISMATCH,
    "in-progress": Verdict.BUSY,
    "lease-lost": Verdict.BUSY,
    "outcome-unknown": Verdict.UNKNOWN,
    "retry-later": Verdict.NOT_DONE,
    "not-executed": Verdict.NOT_DONE,
    "store-unavailable": Verdict.LATER,
    "record-unreadable": Verdict.UNKNOWN,
    "body-incomplete": Verdict.LATER,
    "caller-unknown": Verdict.DENIED,
    "request-too-old": Verdict.STALE,
    "key-expired": Verdict.OVER,
    "answer-not-kept": Verdict.OVER,
}
_EXHAUSTED = "attempts-exhausted"  # its member `retry` says whether one of them may have had an effect
_BY_RETRY = {"same-key-later": Verdict.UNKNOWN, "new-key-safe": Verdict.ANSWER, "never": Verdict.ANSWER}
# Codes as the providers write them, wherever in an error body they stand.
_BY_CODE = {
    "idempotency_key_in_use": Verdict.BUSY,
    "idempotency_error": Verdict.MISMATCH,
    "IDEMPOTENCY_KEY_REUSED": Verdict.MISMATCH,
    "PREVIOUS_REQUEST_IN_PROGRESS": Verdict.BUSY,
    "DUPLICATE_REQUEST_ID": Verdict.MISMATCH,
    "704": Verdict.BUSY,
    "703": Verdict.LATER,
    "IdempotentParameterMismatch": Verdict.MISMATCH,
    "IdempotentParameterMismatchException": Verdict.MISMATCH,
    "IdempotencyParameterMismatch": Verdict.MISMATCH,
    "TransactionInProgressException": Verdict.BUSY,
    "IdempotentCallInProgressFault": Verdict.BUSY,
}
_CODE_MEMBERS = ("code", "type", "name", "issue", "errorCode", "__type", "Code")
_BY_STATUS = {
    **dict.fromkeys((401, 403, 407), Verdict.DENIED),
    **dict.fromkeys((408, 425, 429), Verdict.LATER),
    409: Verdict.BUSY,
}
# Not of this request: no retry will make the server implement it, or speak this version.
_HOPELESS = frozenset({501, 505, 510, 511})


def judge(answer: Answer) -> Verdict:
    """What this answer means."""
    if _SUCCESS <= answer.status < _CLIENT_ERROR:
        return Verdict.ANSWER
    if _replayed(answer):
        return Verdict.STOP if answer.status >= _SERVER_ERROR else Verdict.ANSWER
    slug = answer.headers.get("idempotency-problem")
    body = error_of(answer)
    if slug is not None:
        return _by_name(slug, body) or Verdict.ANSWER
    return _by_body(body) or _by_hint(answer) or _by_status(answer.status)


def _replayed(answer: Answer) -> bool:
    markers = ("idempotency-replayed", "idempotent-replayed")
    return any(answer.headers.get(name, "").lower() == "true" for name in markers)


def _by_name(slug: str, body: Any) -> Verdict | None:
    """What a problem means: by its name, or, where that is new to us, by its next step."""
    retry = body.get("retry") if isinstance(body, dict) else None
    if slug == _EXHAUSTED:
        return Verdict.ANSWER if retry == "new-key-safe" else Verdict.STOP
    return _BY_SLUG.get(slug) or (_BY_RETRY.get(retry) if isinstance(retry, str) else None)


def _by_body(body: Any) -> Verdict | None:
    if not isinstance(body, dict):
        return None
    if isinstance(body.get("retry"), str) and body["retry"] in _BY_RETRY:
        return _by_name(str(body.get("type", "")).rpartition("/")[2], body)
    return next((_BY_CODE[code] for code in _codes(body) if code in _BY_CODE), None)


def error_of(answer: Answer) -> Any:
    """The JSON of an error's body, or None."""
    if not answer.body or len(answer.body) > _MOST_READ:
        return None
    try:
        return json.loads(answer.body)
    except (ValueError, RecursionError):
        return None


def _codes(body: dict[str, Any]) -> Iterator[str]:
    """The error codes in the few places where providers put them."""
    places: list[Any] = [body, body.get("error"), body.get("Error")]
    for name in ("errors", "details"):
        inner = body.get(name)
        places += inner if isinstance(inner, list) else []
    for place in places:
        if isinstance(place, dict):
            # AWS writes `namespace#Name`.
            found = (place.get(name) for name in _CODE_MEMBERS)
            yield from (str(code).rpartition("#")[2] for code in found if isinstance(code, str | int))


def _by_hint(answer: Answer) -> Verdict | None:
    if answer.headers.get("transient-error", "").lower() == "true":
        return Verdict.LATER
    for name in ("stripe-should-retry", "x-should-retry"):
        hint = answer.headers.get(name, "").lower()
        found = _by_status(answer.status)
        if hint == "true":
            return Verdict.UNKNOWN if found in {Verdict.ANSWER, Verdict.DENIED} else found
        if hint == "false":
            definite = Verdict.DENIED if found is Verdict.DENIED else Verdict.ANSWER
            return Verdict.STOP if answer.status >= _SERVER_ERROR else definite
    return None


def _by_status(status: int) -> Verdict:
    if status >= _SERVER_ERROR and status not in _HOPELESS:
        return Verdict.UNKNOWN
    return _BY_STATUS.get(status, Verdict.ANSWER)


def operation_of(answer: Answer) -> str:
    """The short name that the server's logs have for the operation, or an empty text."""
    body = error_of(answer)
    named = body.get("operation") if isinstance(body, dict) else None
    return named if isinstance(named, str) else ""


def retry_after(answer: Answer, now: float) -> float | None:
    """How many seconds the server asks to wait. `now` is a clock's time, for servers that name a date."""
    text = answer.headers.get("retry-after", "").strip()
    if text.isascii() and text.isdigit():
        return min(float(text), _LONGEST)
    until = _instant(text)
    if until is None:
        return None
    # The server's own clock where it tells: two wrong clocks make no difference then.
    moment = _instant(answer.headers.get("date", ""))
    return max(0.0, until - (now if moment is None else moment))


def _instant(text: str) -> float | None:
    """An HTTP date in the form that is written today (IMF-fixdate), as seconds since the epoch."""
    found = _DATE.fullmatch(text.strip())
    if found is None or found["month"] not in _MONTHS:
        return None
    day, year, hour, minute, second = (int(found[name]) for name in ("day", "year", "hour", "minute", "second"))
    try:
        made = datetime(year, _MONTHS.index(found["month"]) + 1, day, hour, minute, min(second, 59), tzinfo=UTC)
    except ValueError:
        return None
    return made.timestamp()
