"""The rules, as generators: each yields a command, is sent the store's answer, and returns what to do.

The same flow runs under threads and under asyncio (engine.drivers). No branch in here starts work without a claim:
what cannot be decided ends in an error, never in Execute.
"""

from __future__ import annotations

from collections.abc import Generator
from dataclasses import dataclass
from typing import NamedTuple, Protocol

from oncekey.core.commands import Claim, Claimed, Done, Look, Renewal, Settlement, Stale, Swap, Won, Written
from oncekey.core.decision import Decision, Execute, InProgress, Mismatch, Refused, Replay, Unknown
from oncekey.core.record import FINAL, IN_PROGRESS, Record, Seen, State
from oncekey.core.transitions import HOLDS, TABLE, Aftermath, Facts, Guard, claimed, lapse_row, moved, refusal
from oncekey.errors import StoreUnavailable

# A conflict means that somebody else moved on; after this many in a row the caller is told to come back.
TRIES = 8


class Asked(Protocol):
    """Who can say whether a stored fingerprint is that of the request at hand."""

    def same_request(self, stored: bytes) -> bool:
        """Whether the stored fingerprint stands for the same request."""
        ...


@dataclass(frozen=True, slots=True)
class Terms:
    """The part of a policy that decides, in milliseconds."""

    keep_for: int
    reconcile_after_for: int
    attempts: int | None = None


Command = Claim | Look | Swap | Settlement | Renewal
Answer = Claimed | Written | None
Flow = Generator[Command, Answer, Decision]


class Step(NamedTuple):
    """A transition that the request itself may make before it decides again."""

    new: Record
    takes_key: bool


def granted(claim: Claim, won: Won) -> Execute:
    """A claim that was the first: the commonest end by far, for which nobody needs a flow."""
    return Execute(claim.id, claim.token, 1, won.left_for)


def enter(claim: Claim, asked: Asked, terms: Terms, *, late: bool = False, met: Claimed | None = None) -> Flow:
    """What this request may do now. A late one may find its answer, and is never run as new.

    `met` is what the claim has met, where it was made already.
    """
    found: Answer = met
    if met is None:
        found = yield (Look(claim.id) if late else claim)
    for _ in range(TRIES):
        if isinstance(found, Won):
            return granted(claim, found)
        if found is None:
            return Refused(None, "late")
        if not isinstance(found, Seen):
            raise TypeError(found)
        verdict = weigh(found, claim, asked, terms)
        if not isinstance(verdict, Step):
            return verdict
        if late and found.record.state in FINAL and verdict.new.attempts == 1:
            return Refused(found.record, "late")
        written = yield Swap(found.record, verdict.new)
        if isinstance(written, Done):
            if verdict.takes_key:
                new = verdict.new
                return Execute(claim.id, claim.token, new.attempts, claim.lease_for, journal=new.outcome)
            found = Seen(verdict.new, found.now)
        elif not isinstance(written, Stale):
            raise TypeError(written)
        else:
            found = written.found if written.found is not None else (yield (Look(claim.id) if late else claim))
    raise StoreUnavailable("the record kept changing while it was being decided on; nothing was run, try again")


def weigh(found: Seen, claim: Claim, asked: Asked, terms: Terms) -> Decision | Step:
    """Decide by what stands in the store, or name the transition to make first. Pure."""
    record, now = found
    if record.state is State.COMPLETED and (record.expires_at is None or record.expires_at > now):
        if not asked.same_request(record.fingerprint):
            return Mismatch(record)
        # In a completed record due_at is the end of the answer; the key itself is kept until expires_at.
        return Replay(record) if record.due_at is None or record.due_at > now else Refused(record, "expired")
    left = _left(record.lease_until, now)
    if record.state in IN_PROGRESS and record.token == claim.token and left:
        # Our first try's reply was lost. A lease that ended meanwhile is treated like anybody's: it lapses.
        return Execute(claim.id, claim.token, record.attempts, left, journal=record.outcome)
    if record.state in FINAL and refusal(TABLE["claim_expired"], record, Facts(now)) is None:
        return Step(claimed(record, claim, now), takes_key=True)
    if not asked.same_request(record.fingerprint):
        return Mismatch(record)
    if record.state is State.UNKNOWN:
        return Unknown(record, _left(record.due_at, now))
    if record.state is State.EXPIRED:
        return Refused(record, "expired")
    facts = Facts(now, same_request=True, attempts_limit=terms.attempts)
    if record.state is State.FAILED_RETRYABLE:
        return _failed(record, claim, facts)
    return _in_progress(record, claim, facts, terms)


def _failed(record: Record, claim: Claim, facts: Facts) -> Decision | Step:
    if facts.attempts_limit is not None and record.attempts >= facts.attempts_limit:
        return Refused(record, "exhausted")
    if refusal(TABLE["retry"], record, facts) is not None:
        return InProgress(record, _left(record.due_at, facts.now))
    return Step(claimed(record, claim, facts.now, another_attempt=True), takes_key=True)


def _in_progress(record: Record, claim: Claim, facts: Facts, terms: Terms) -> Decision | Step:
    # An attempt that crashed counts like one that failed: when all are used up it lapses, and the next look says so.
    if refusal(TABLE["take_over"], record, facts) is None and HOLDS[Guard.ATTEMPTS_LEFT](record, facts):
        return Step(claimed(record, claim, facts.now, another_attempt=True), takes_key=True)
    lapsed = lapse(Seen(record, facts.now), terms)
    if lapsed is None:
        return InProgress(record, _left(record.lease_until, facts.now))
    return Step(lapsed, takes_key=False)


def lapse(found: Seen, terms: Terms) -> Record | None:
    """What a record whose lease is over turns into; None while it is alive (or has no deadline)."""
    record, now = found
    if record.state not in IN_PROGRESS:
        return None
    name = lapse_row(record)
    if name == "lapse_executing":
        after = Aftermath(due_for=terms.reconcile_after_for, note="the lease ended while the work was running")
    else:
        after = Aftermath(keep_for=terms.keep_for, note="the lease ended before an effect could begin")
    return moved(name, record, Facts(now), after)


def _left(until: int | None, now: int) -> int:
    return max(0, until - now) if until is not None else 0
