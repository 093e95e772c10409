"""What the client is told: a stored answer again, or why nothing was run and what to do next."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import TYPE_CHECKING, assert_never

from oncekey.core.decision import Decision, Execute, InProgress, Mismatch, Refused, Replay, Unknown
from oncekey.core.keys import key_ref
from oncekey.core.outcome import Answer, Tombstone, Value, unpack
from oncekey.core.record import Guarantee, Record, State
from oncekey.errors import (
    BadKey,
    BodyIncomplete,
    BodyTooLarge,
    ConfigurationError,
    Declined,
    LeaseLost,
    NotExecuted,
    NotGranted,
    OnceKeyError,
    OutcomeUnknown,
    RecordForged,
    RecordUnreadable,
    RequestRefused,
    StoreError,
)
from oncekey.http.capture import BODILESS, LENGTH, one_message
from oncekey.http.grammar import Verdict
from oncekey.http.messages import Headers, Reply
from oncekey.http.problems import PROBLEMS, Fault, Retry, json_bytes

if TYPE_CHECKING:
    from oncekey.core.outcome import Outcome
    from oncekey.http.grammar import Dialect, Header

CACHE = b"cache-control"
NO_STORE = (CACHE, b"no-store")
# In every dialect, because most have no place for the type in their bodies.
PROBLEM = b"idempotency-problem"

# Seconds. A lease may be prolonged, so longer waits than this are not worth announcing.
LONGEST_WAIT = 300
UNKNOWN_WAIT = 5
STORE_WAIT = 2
SHORTEST_WAIT = 1


def replay(dialect: Dialect, outcome: Outcome, *, key: str | None = None, ref: str = "") -> Reply:
    """The stored answer with the dialect's marker, nothing re-encoded; or that it was not kept."""
    if not isinstance(outcome, Answer):
        if not isinstance(outcome, Tombstone):
            found = "a function's result" if isinstance(outcome, Value) else "the journal of an unfinished operation"
            raise RecordUnreadable(f"the record holds {found} and no answer of HTTP")
        return _not_kept(dialect, outcome, key, ref)
    status, stored, body = outcome
    names = [name.lower() for name, _ in stored]
    if not one_message(status, stored, names, len(body)):
        raise RecordForged("the stored answer is none that HTTP can carry; it was not written by OnceKey")
    return marked(dialect, outcome, key)


def marked(dialect: Dialect, kept: Answer, key: str | None) -> Reply:
    """An answer that was kept, as a replay: nothing re-encoded, the dialect's marker added."""
    status, stored, body = kept
    headers = list(stored)
    if body and status in BODILESS:
        headers, body = [header for header in stored if header[0].lower() != LENGTH], b""
    if not [name for name, _ in stored if len(name) == len(CACHE) and name.lower() == CACHE]:
        headers.append(NO_STORE)
    headers += dialect.marker
    if dialect.echo == "always" and key is not None:
        headers.append((dialect.header_name, key.encode()))
    if status >= 500:  # noqa: PLR2004 - server errors
        headers += dialect.kept_error_hints
    return Reply(dialect.replay_statuses.get(status, status), headers, body)


def declined(error: Declined) -> tuple[int, Headers, bytes]:
    """The final answer that the handler raised."""
    said, media = error.answer, b"application/json"
    if isinstance(said, bytes):
        body, media = said, b"application/octet-stream"
    elif isinstance(said, str):
        body, media = said.encode(), b"text/plain; charset=utf-8"
    else:
        body = json_bytes(said)
    headers = [(name.lower().encode("latin-1"), value.encode("latin-1")) for name, value in error.headers.items()]
    if not any(name == b"content-type" for name, _ in headers):
        headers.append((b"content-type", media))
    return error.status, [*headers, (b"content-length", b"%d" % len(body))], body


def not_granted(decision: Decision) -> NotGranted:
    """The same for code without a client: an error for every decision but Execute and Replay."""
    if isinstance(decision, Replay):
        raise TypeError("a Replay has an answer")
    slug, detail, wait, _ = _refusing(decision)
    return NotGranted(slug, detail, PROBLEMS[slug].status, wait)


_Refusing = tuple[str, str, int | None, Record | None]


def _refusing(decision: Execute | InProgress | Unknown | Mismatch | Refused) -> _Refusing:
    """The problem, its detail, how long to wait, and the record that it is about."""
    match decision:
        case InProgress(record, left_for):
            return *_waiting(record), _seconds(left_for), record
        case Unknown(record, left_for):
            return "outcome-unknown", UNKNOWN_DETAIL, max(_seconds(left_for), UNKNOWN_WAIT), record
        case Mismatch(record):
            return "key-reused", MISMATCH_DETAIL, None, record
        case Refused(refused, reason):
            return *REFUSALS[reason], None, refused
        case Execute():
            raise TypeError("Execute is no answer: run the work")
        case _:
            assert_never(decision)


def answer(dialect: Dialect, decision: Decision, *, key: str | None = None, spread: float | None = None) -> Reply:
    """The reply to every decision but Execute. The outcome of a Replay must be opened already (engine.sealing)."""
    if isinstance(decision, Replay):
        return replay(dialect, unpack(decision.record.outcome), key=key, ref=key_ref(decision.record.id))
    slug, detail, wait, record = _refusing(decision)
    fault = _fault(dialect, slug, detail, wait=wait, spread=spread)
    if record is None:
        return write(dialect, fault, key)
    fault = fault._replace(operation=key_ref(record.id))
    if slug == "attempts-exhausted" and record.guarantee is Guarantee.DEDUPLICATED_DOWNSTREAM:
        # Its attempts may have had effects, which only the keys derived from this one deduplicate.
        fault = fault._replace(retry=Retry.NEVER)
    return write(dialect, fault, key)


MISMATCH_DETAIL = (
    "This idempotency key was first used with another request. Send that request again unchanged to get its answer; "
    "for a different operation make a new key."
)
UNKNOWN_DETAIL = (
    "An earlier attempt ended without a known outcome, and it is being found out whether it took effect. Send the same "
    "request with the same key later; a new key could double the effect."
)
EXPIRED_DETAIL = (
    "The operation with this key was carried out and its answer is no longer kept. Look up its result; send a new key "
    "only for a new operation."
)
EXHAUSTED_DETAIL = "Every attempt that this key allows has failed. Find out why before you use a new key."
LATE_DETAIL = (
    "This request was made longer ago than answers are kept, so nobody can tell whether it was carried out. Look up "
    "its result; send a new key only for a new operation."
)
REFUSALS = {
    "expired": ("key-expired", EXPIRED_DETAIL),
    "exhausted": ("attempts-exhausted", EXHAUSTED_DETAIL),
    "late": ("request-too-old", LATE_DETAIL),
}
UNREADABLE_DETAIL = "The record of this operation cannot be read, so nothing was run."
STORE_DETAIL = "It cannot be checked whether this operation was run before, so nothing was run."


def refuse(
    dialect: Dialect, error: OnceKeyError, *, key: str | None = None, ref: str = "", spread: float | None = None
) -> Reply:
    """The reply to an error. Nothing of a store's own message is shown to the client."""
    slug, detail, wait = _named(error)
    fault = _fault(dialect, slug, detail, wait=wait, spread=spread)._replace(operation=ref)
    if isinstance(error, BadKey):
        fault = fault._replace(rule=error.rule)
    if slug == "request-refused":
        fault = fault._replace(status=error.status)
    return write(dialect, fault, key)


# The first line that fits names the problem; no detail means that the error's own sentence is written for clients.
TOLD: tuple[tuple[type[OnceKeyError], str, str | None, int | None], ...] = (
    (BadKey, "key-invalid", None, None),
    (BodyTooLarge, "body-too-large", None, None),
    (BodyIncomplete, "body-incomplete", None, None),
    (RequestRefused, "request-refused", None, None),
    (LeaseLost, "lease-lost", "Another attempt has taken over this operation; its answer counts.", SHORTEST_WAIT),
    (NotExecuted, "not-executed", "Nothing was done. Send the same request with the same key again.", SHORTEST_WAIT),
    (OutcomeUnknown, "outcome-unknown", UNKNOWN_DETAIL, UNKNOWN_WAIT),
    (RecordUnreadable, "record-unreadable", UNREADABLE_DETAIL, STORE_WAIT),
    (RecordForged, "record-unreadable", UNREADABLE_DETAIL, STORE_WAIT),
    (StoreError, "store-unavailable", STORE_DETAIL, STORE_WAIT),
    (ConfigurationError, "store-unavailable", STORE_DETAIL, STORE_WAIT),
)
RULES = {"missing": "key-missing", "repeated": "key-repeated"}


def _named(error: OnceKeyError) -> tuple[str, str, int | None]:
    """The problem, its detail and how long to wait."""
    if isinstance(error, BadKey) and error.rule in RULES:
        return RULES[error.rule], str(error), None
    for kind, slug, detail, wait in TOLD:
        if isinstance(error, kind):
            return slug, detail if detail is not None else _sentence(error), wait
    if error.status == PROBLEMS["caller-unknown"].status:
        return "caller-unknown", _sentence(error), None
    return "store-unavailable", STORE_DETAIL, STORE_WAIT


def _sentence(error: OnceKeyError) -> str:
    """An error's own words as a client gets them."""
    said = str(error)
    return said[:1].upper() + said[1:] + ("" if said.endswith((".", "?")) else ".")


def first_marks(
    dialect: Dialect, status: int, headers: Sequence[Header], verdict: Verdict, *, key: str | None = None
) -> Headers:
    """What is added to the application's own answer on its way out; never what it has set itself."""
    added: Headers = []
    if dialect.echo == "always" and key is not None:
        added.append((dialect.header_name, key.encode()))
    if verdict is Verdict.KEPT:
        if status >= 500:  # noqa: PLR2004 - server errors
            added += dialect.kept_error_hints
    elif verdict is not Verdict.FORGOTTEN:
        added += dialect.hints.get(Retry.SAME_KEY_LATER, ())
    if not added:
        return added
    present = {name.lower() for name, _ in headers}
    return [header for header in added if header[0] not in present]


def write(dialect: Dialect, fault: Fault, key: str | None) -> Reply:
    """A refusal in the dialect's shape, with the headers that all refusals carry."""
    extra, body = dialect.shape(fault)
    headers: Headers = [(b"content-type", dialect.media), (b"content-length", b"%d" % len(body)), NO_STORE]
    headers.append((PROBLEM, fault.slug.encode()))
    if fault.retry_after is not None:
        headers.append((b"retry-after", b"%d" % fault.retry_after))
    headers += extra
    headers += dialect.hints.get(fault.retry, ())
    if dialect.echo == "always" and key is not None:
        headers.append((dialect.header_name, key.encode()))
    return Reply(fault.status, headers, body)


def retry_after(seconds: int, spread: float | None = None) -> int:
    """Whole seconds, at least 1, up to a quarter longer so that clients do not all return together.

    `spread` places a request in that quarter, from 0 to below 1; by default the system's randomness does.
    """
    if spread is None:
        spread = os.urandom(1)[0] / 256
    seconds = max(SHORTEST_WAIT, min(seconds, LONGEST_WAIT))
    return seconds + int(spread * (seconds // 4 + 2))


def _fault(dialect: Dialect, slug: str, detail: str, *, wait: int | None, spread: float | None) -> Fault:
    problem = PROBLEMS[slug]
    return Fault(
        problem=problem,
        status=dialect.status_of(problem),
        detail=detail,
        retry=problem.retry,
        retry_after=retry_after(wait, spread) if wait is not None else None,
        place=dialect.header or dialect.members[0],
        docs=dialect.docs,
    )


def _not_kept(dialect: Dialect, stone: Tombstone, key: str | None, ref: str) -> Reply:
    detail = (
        f"The operation was carried out and answered with status {stone.status}; that answer was not kept "
        f"({stone.reason}). Look up its result; do not send it again."
    )
    fault = _fault(dialect, "answer-not-kept", detail, wait=None, spread=None)
    return write(dialect, fault._replace(operation=ref), key)


def _waiting(record: Record) -> tuple[str, str]:
    if record.state is State.FAILED_RETRYABLE:
        return "retry-later", "An attempt failed without effect. Send the same request with the same key later."
    return "in-progress", "A request with this idempotency key is being carried out. Send the same request again later."


def _seconds(milliseconds: int) -> int:
    return -(-milliseconds // 1000)
