"""THE TABLE. Everything that may change a record is a row here, and this file knows no store.

A row says from which states to which, who may do it, under which guards, and what it changes. Stores do each row as one
atomic operation; the in-memory store calls `apply` directly, the others are compared with it. What is not in the table
is forbidden: leaving COMPLETED early, purging an open record, any write without token or version.

Repeating a row with the token that did it is a success without change (`repeats`): replies get lost, drivers retry.
The diagram in docs/concepts.md is made from TABLE.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from enum import StrEnum
from typing import NamedTuple

from oncekey.core.commands import Claim, Renewal, Settlement
from oncekey.core.record import FINAL, IN_PROGRESS, Guarantee, Record, State, replace


class Guard(StrEnum):
    """A condition that must hold at the instant of the write, in the words of the docs."""

    TOKEN = "the writer holds the record's token"  # noqa: S105 - a sentence for readers
    LEASE_ALIVE = "the lease is alive"
    LEASE_OVER = "the lease is over"
    BELOW_CAP = "the attempt is younger than its cap"
    NO_EFFECT_DECLARED = "the code declares that nothing was done"
    SAME_REQUEST = "the fingerprint is the same"
    NOT_BEFORE_PAST = "the waiting time after the failure is past"
    ATTEMPTS_LEFT = "attempts are left"
    AT_MOST_ONCE = "the guarantee is at_most_once"
    MAY_TAKE_OVER = "the guarantee is transactional or deduplicated_downstream"
    EFFECT_SEEN = "the effect was seen at its receiver"
    CANNOT_LAND = "the attempt was cancelled at its receiver or provably cannot land, and its effect was not seen"
    DUE = "its time to be asked about has come"
    UNCLEAR = "its receiver could not tell yet"
    REASON_GIVEN = "an operator gave a reason"
    PAST_EXPIRY = "expires_at is past"
    ANSWER_OVER = "the answer's own time, due_at, is past"


class Facts(NamedTuple):
    """What the writer of a row knows or declares. `now` is the store's time."""

    now: int
    token: bytes = b""
    same_request: bool = False
    attempts_limit: int | None = None
    no_effect: bool = False
    effect_seen: bool = False
    cannot_land: bool = False
    unclear: bool = False
    reason: str = ""
    cap_for: int | None = None


class Row(NamedTuple):
    """One line of the table. `who` and `change` are for readers; `None` among states is absence."""

    name: str
    sources: tuple[State | None, ...]
    target: State | None
    who: str
    guards: tuple[Guard, ...]
    change: str


G, S = Guard, State

TABLE: dict[str, Row] = {
    row.name: row
    for row in (
        Row("claim", (None,), S.CLAIMED, "request", (), "new token, version, lease, fingerprint"),
        Row("claim_expired", FINAL, S.CLAIMED, "request", (G.PAST_EXPIRY,), "new token, version+1, lease, fingerprint"),
        Row("begin", (S.CLAIMED,), S.EXECUTING, "owner", (G.TOKEN, G.LEASE_ALIVE), "the latch, journal"),
        Row("renew", IN_PROGRESS, None, "owner", (G.TOKEN, G.LEASE_ALIVE, G.BELOW_CAP), "lease, journal"),
        Row("complete", IN_PROGRESS, S.COMPLETED, "owner", (G.TOKEN,), "outcome, expires_at"),
        Row("late_truth", (S.UNKNOWN,), S.COMPLETED, "last owner", (G.TOKEN,), "outcome, expires_at"),
        Row("not_begun", (S.CLAIMED,), S.FAILED_RETRYABLE, "owner", (G.TOKEN,), "not before, expires_at"),
        Row(
            "no_effect",
            (S.EXECUTING,),
            S.FAILED_RETRYABLE,
            "owner",
            (G.TOKEN, G.NO_EFFECT_DECLARED),
            "not before, expires_at",
        ),
        Row(
            "retry",
            (S.FAILED_RETRYABLE,),
            S.CLAIMED,
            "request",
            (G.SAME_REQUEST, G.NOT_BEFORE_PAST, G.ATTEMPTS_LEFT),
            "new token, version+1, lease",
        ),
        Row("ambiguous", (S.EXECUTING,), S.UNKNOWN, "owner", (G.TOKEN,), "reason, reconcile after; token kept"),
        Row("lapse_claimed", (S.CLAIMED,), S.FAILED_RETRYABLE, "anyone", (G.LEASE_OVER,), "token cleared"),
        Row(
            "lapse_executing",
            (S.EXECUTING,),
            S.UNKNOWN,
            "anyone",
            (G.LEASE_OVER, G.AT_MOST_ONCE),
            "token kept, reconcile after",
        ),
        Row(
            "lapse_repeatable",
            (S.EXECUTING,),
            S.FAILED_RETRYABLE,
            "anyone",
            (G.LEASE_OVER, G.MAY_TAKE_OVER),
            "token cleared",
        ),
        Row(
            "take_over",
            (S.EXECUTING,),
            S.CLAIMED,
            "request",
            (G.LEASE_OVER, G.MAY_TAKE_OVER, G.SAME_REQUEST),
            "new token, version+1, lease",
        ),
        Row("reconcile_done", (S.UNKNOWN,), S.COMPLETED, "reconciler", (G.EFFECT_SEEN,), "outcome, token cleared"),
        Row(
            "reconcile_not_done",
            (S.UNKNOWN,),
            S.FAILED_RETRYABLE,
            "reconciler",
            (G.CANNOT_LAND,),
            "token cleared",
        ),
        # Who asks first moves the next asking away, so that nobody asks the same at the same time.
        Row("ask", (S.UNKNOWN,), S.UNKNOWN, "reconciler", (G.DUE,), "due later, one more try; token kept"),
        Row(
            "unclear",
            (S.UNKNOWN,),
            S.UNKNOWN,
            "reconciler",
            (G.UNCLEAR,),
            "due later, or never: a dead letter; token kept",
        ),
        Row("ask_again", (S.UNKNOWN,), S.UNKNOWN, "operator", (G.REASON_GIVEN,), "due now, audit; token kept"),
        Row(
            "override_completed", tuple(S), S.COMPLETED, "operator", (G.REASON_GIVEN,), "outcome, token cleared, audit"
        ),
        Row("override_retryable", tuple(S), S.FAILED_RETRYABLE, "operator", (G.REASON_GIVEN,), "token cleared, audit"),
        Row("expire", FINAL, None, "purge", (G.PAST_EXPIRY,), "the record is gone"),
        Row(
            "expire_softly", (S.COMPLETED,), S.EXPIRED, "purge", (G.ANSWER_OVER,), "the outcome is gone, the key stays"
        ),
    )
}

# The row that a settlement takes, by where the record stands and where it shall go.
SETTLING: dict[tuple[State, State], Row] = {
    (source, target): TABLE[name]
    for name, target in (
        ("complete", S.COMPLETED),
        ("late_truth", S.COMPLETED),
        ("not_begun", S.FAILED_RETRYABLE),
        ("no_effect", S.FAILED_RETRYABLE),
        ("ambiguous", S.UNKNOWN),
    )
    for source in TABLE[name].sources
    if source is not None
}


def _lease_over(record: Record, facts: Facts) -> bool:
    # No deadline is not "over": such a record is held until an operator or its retention says otherwise.
    return record.lease_until is not None and record.lease_until <= facts.now


def _lease_alive(record: Record, facts: Facts) -> bool:
    return record.lease_until is not None and record.lease_until > facts.now


HOLDS: dict[Guard, Callable[[Record, Facts], bool]] = {
    G.TOKEN: lambda record, facts: bool(record.token) and record.token == facts.token,
    G.LEASE_ALIVE: _lease_alive,
    G.LEASE_OVER: _lease_over,
    G.BELOW_CAP: lambda record, facts: facts.cap_for is None or facts.now - record.claimed_at < facts.cap_for,
    G.NO_EFFECT_DECLARED: lambda _, facts: facts.no_effect,
    G.SAME_REQUEST: lambda _, facts: facts.same_request,
    G.NOT_BEFORE_PAST: lambda record, facts: record.due_at is None or record.due_at <= facts.now,
    G.ATTEMPTS_LEFT: lambda record, facts: facts.attempts_limit is None or record.attempts < facts.attempts_limit,
    G.AT_MOST_ONCE: lambda record, _: record.guarantee is Guarantee.AT_MOST_ONCE,
    G.MAY_TAKE_OVER: lambda record, _: record.guarantee.may_take_over,
    G.EFFECT_SEEN: lambda _, facts: facts.effect_seen,
    G.CANNOT_LAND: lambda _, facts: facts.cannot_land and not facts.effect_seen,
    G.DUE: lambda record, facts: record.due_at is not None and record.due_at <= facts.now,
    G.UNCLEAR: lambda _, facts: facts.unclear and not facts.effect_seen,
    G.REASON_GIVEN: lambda _, facts: bool(facts.reason.strip()),
    G.PAST_EXPIRY: lambda record, facts: record.expires_at is not None and record.expires_at <= facts.now,
    G.ANSWER_OVER: lambda record, facts: record.due_at is not None and record.due_at <= facts.now,
}


def refusal(row: Row, record: Record | None, facts: Facts, ignoring: Collection[Guard] = ()) -> str | None:
    """Why this row may not be taken now, or None if it may. `ignoring` is for the model search alone."""
    state = record.state if record is not None else None
    if state not in row.sources:
        return f"{row.name} does not start from {state.word if state else 'absence'}"
    if record is not None:
        for guard in row.guards:
            if guard not in ignoring and not HOLDS[guard](record, facts):
                return guard.value
    return None


def claimed(old: Record | None, claim: Claim, now: int, *, another_attempt: bool = False) -> Record:
    """The record after claim and claim_expired, or, as `another_attempt`, after retry and take_over."""
    return Record(
        claim.id,
        claim.state,
        old.version + 1 if old else 1,
        claim.token,
        claim.fingerprint,
        claim.guarantee,
        old.attempts + 1 if old and another_attempt else 1,
        now,
        now + claim.lease_for,
        label=claim.label,
        outcome=old.outcome if old and another_attempt else b"",
    )


def settled(record: Record, settlement: Settlement, now: int) -> Record | None:
    """The record after its owner settled it; None if the table refuses. The same record if it repeats itself."""
    _, token, target, outcome, keep_for, due_for, note = settlement
    if target is record.state and record.token == token:
        return record
    row = SETTLING.get((record.state, target))
    # A settlement to FAILED_RETRYABLE is the declaration that nothing was done.
    if row is None or refusal(row, record, Facts(now, token, no_effect=True)) is not None:
        return None
    # Written out: every operation comes this way, and `replace` takes four times as long.
    return Record(
        record.id,
        target,
        record.version + 1,
        record.token,
        record.fingerprint,
        record.guarantee,
        record.attempts,
        record.claimed_at,
        None,
        now + due_for if due_for is not None else None,
        now + keep_for if keep_for is not None else None,
        record.waited,
        record.label,
        note,
        outcome or _journal(record, target),
    )


def _journal(record: Record, target: State) -> bytes:
    """What stays in the place of the outcome: the journal, as long as there is no outcome."""
    return record.outcome if target is not S.COMPLETED and record.state not in (S.COMPLETED, S.EXPIRED) else b""


def renewed(record: Record, renewal: Renewal, now: int) -> Record | None:
    """The record after its owner renewed or began; None if the table refuses."""
    facts = Facts(now, renewal.token, cap_for=renewal.cap_for)
    if refusal(TABLE["renew"], record, facts) is not None:
        return None
    state = S.EXECUTING if renewal.begin else record.state
    outcome = record.outcome if renewal.outcome is None else renewal.outcome
    until = now + renewal.lease_for
    return replace(record, state=state, version=record.version + 1, lease_until=until, outcome=outcome)


class Aftermath(NamedTuple):
    """What a lapse, a reconciler or an operator leaves behind: due time, retention, reason and outcome.

    Without an outcome the journal stays, unless the record is completed by it.
    """

    due_for: int | None = None
    keep_for: int | None = None
    note: str = ""
    outcome: bytes = b""


def moved(name: str, record: Record, facts: Facts, after: Aftermath) -> Record | None:
    """The record after a lapse, or a row of reconcilers and operators; None if the table refuses."""
    row = TABLE[name]
    if row.target is None or refusal(row, record, facts) is not None:
        return None
    # Whoever held an unknown record last may still tell the truth.
    keeps_token = row.target is S.UNKNOWN
    return replace(
        record,
        state=row.target,
        version=record.version + 1,
        token=record.token if keeps_token else b"",
        lease_until=None,
        due_at=facts.now + after.due_for if after.due_for is not None else None,
        expires_at=facts.now + after.keep_for if after.keep_for is not None else None,
        note=after.note,
        outcome=after.outcome or _journal(record, row.target),
    )


def lapse_row(record: Record) -> str:
    """Which lapse row is meant for this record."""
    if record.state is S.CLAIMED:
        return "lapse_claimed"
    return "lapse_repeatable" if record.guarantee.may_take_over else "lapse_executing"
