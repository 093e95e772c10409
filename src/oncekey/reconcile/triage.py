"""What becomes of one unknown record, as a generator: it yields what to ask of the store or the resolver. No I/O.

    ask        the next asking is moved away first, by the version that was seen: of several workers one asks
    inquire    the resolver answers
    settle     completed, failed_retryable or unclear, by the version that asking made

Whoever else wrote in between, a late owner, an operator or another worker, has the last word.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, NamedTuple

from oncekey.core.commands import Done, Swap
from oncekey.core.journal import Asked, Audit
from oncekey.core.outcome import sign
from oncekey.core.policy import Policy, ms
from oncekey.core.record import Record, Seen, State
from oncekey.core.transitions import Aftermath, Facts, moved
from oncekey.engine.journals import journal_of, sealed
from oncekey.engine.sealing import Sealer
from oncekey.errors import OnceKeyError
from oncekey.operations.changing import packed, told
from oncekey.reconcile.findings import Finding, Inquiry, Landed, NotDone, Unclear
from oncekey.reconcile.pace import Pace
from oncekey.reconcile.resolvers import Found, Resolvers

NAME = "reconciler"


class Ending(StrEnum):
    """What an inquiry came to."""

    LANDED = "landed"
    NOT_DONE = "not_done"
    UNCLEAR = "unclear"
    DEAD_LETTER = "dead_letter"
    MOVED_ON = "moved_on"


class Inquire(NamedTuple):
    """Ask the resolver. It is answered with the finding, and the milliseconds that it took."""

    found: Found
    inquiry: Inquiry


# A step is asked of the store, as a function of it, or of the resolver.
Ask = Callable[[Any], Any]
Asks = Generator[Ask, Any, Ending]
Steps = Generator[Ask | Inquire, Any, Ending]


@dataclass(frozen=True, slots=True)
class Rules:
    """What a reconciler goes by."""

    resolvers: Resolvers
    sealer: Sealer
    pace: Pace = field(default_factory=Pace)
    policy: Policy = field(default_factory=Policy)
    name: str = NAME


def triage(seen: Seen, rules: Rules, draw: float) -> Steps:
    """Find out about one due record. `draw`, a number from 0 to below 1, spreads the next try."""
    try:
        case = Case(seen, rules)
    except OnceKeyError as trouble:
        return (yield from _put_off(seen, rules, trouble))
    if not (yield from case.ask()):
        return Ending.MOVED_ON
    found = rules.resolvers.find(case.record.label.endpoint)
    if found is None:
        finding: Finding = Unclear(f"no resolver is registered for {case.record.label.endpoint or 'it'}")
    else:
        finding, took = yield Inquire(found, case.inquiry(found.place))
        case.now += took
    return (yield from case.settle(finding, draw))


class Case:
    """One unknown record on its way through. What is kept of it must be readable, or RecordUnreadable is raised."""

    def __init__(self, seen: Seen, rules: Rules) -> None:
        self.record, self.now = seen
        self.rules = rules
        self.journal = journal_of(self.record, rules.sealer)
        self.asked = self.journal.asked or Asked(0, seen.now)

    def inquiry(self, place: Mapping[str, str]) -> Inquiry:
        """What a resolver is given."""
        record, label = self.record, self.record.label
        unclear_for = (self.now - self.asked.since) / 1000
        words = label.endpoint, label.scope, label.key, record.note
        return Inquiry(record.id, *words, self.journal, record.attempts, self.asked.tries, unclear_for, place)

    def ask(self) -> Generator[Ask, Any, bool]:
        """Move the next asking away; whether that was left to us."""
        self.asked = self.asked._replace(tries=self.asked.tries + 1)
        due_for = ms(self.rules.pace.answer_for)
        return (yield from self._move("ask", Facts(self.now), due_for, self.record.note))

    def settle(self, finding: Finding, draw: float = 0.0) -> Asks:
        """Write down what was found out."""
        match finding:
            case Landed():
                return (yield from self._landed(finding))
            case NotDone():
                return (yield from self._not_done(finding))
            case Unclear():
                return (yield from self._unclear(finding, draw))

    def _landed(self, finding: Landed) -> Asks:
        audit = self._audit(finding.seen, State.COMPLETED)
        outcome = sign(packed(finding.answer), (*self.journal.lasting, audit))
        policy = self.rules.policy
        keep_for = ms(policy.keep_key_for or policy.keep_for)
        due_for = ms(policy.keep_for) if policy.keep_key_for not in (None, policy.keep_for) else None
        after = Aftermath(due_for, keep_for, self._note(audit), self.rules.sealer.seal(self.record.id, outcome))
        return (yield from self._signed("reconcile_done", Facts(self.now, effect_seen=True), after, audit))

    def _not_done(self, finding: NotDone) -> Asks:
        audit = self._audit(f"{finding.stopped.how}; then {finding.seen}", State.FAILED_RETRYABLE)
        kept = sealed(self.record.id, self.journal.asking(None).signed(audit), self.rules.sealer)
        keep_for = ms(self.rules.policy.keep_key_for or self.rules.policy.keep_for)
        after = Aftermath(None, keep_for, self._note(audit), kept)
        return (yield from self._signed("reconcile_not_done", Facts(self.now, cannot_land=True), after, audit))

    def _unclear(self, finding: Unclear, draw: float) -> Asks:
        pace, asked = self.rules.pace, self.asked
        dead = pace.given_up(asked.tries)
        wait = ms(finding.again_in) if finding.again_in is not None else pace.wait(asked.tries, draw)
        said = f"{self.rules.name}: {finding.why}"
        if dead:
            said = f"{self.rules.name}: given up after {asked.tries} tries: {finding.why}"
        self.asked = asked._replace(said=finding.why)
        if not (yield from self._move("unclear", Facts(self.now, unclear=True), None if dead else wait, said)):
            return Ending.MOVED_ON
        return Ending.DEAD_LETTER if dead else Ending.UNCLEAR

    def _move(self, row: str, facts: Facts, due_for: int | None, note: str) -> Generator[Ask, Any, bool]:
        kept = sealed(self.record.id, self.journal.asking(self.asked), self.rules.sealer)
        return (yield from self._swap(row, facts, Aftermath(due_for, None, note, kept)))

    def _signed(self, row: str, facts: Facts, after: Aftermath, audit: Audit) -> Asks:
        if not (yield from self._swap(row, facts, after)):
            return Ending.MOVED_ON
        told(self.record.id, audit)
        return Ending.LANDED if audit.target is State.COMPLETED else Ending.NOT_DONE

    def _swap(self, row: str, facts: Facts, after: Aftermath) -> Generator[Ask, Any, bool]:
        new: Record | None = moved(row, self.record, facts, after)
        if new is None:
            return False
        if not isinstance((yield _swapping(Swap(self.record, new))), Done):
            return False
        self.record = new
        return True

    def _audit(self, why: str, target: State) -> Audit:
        return Audit(self.rules.name, why, self.now, State.UNKNOWN, target)

    def _note(self, audit: Audit) -> str:
        return f"{audit.by}: {audit.why}"


def _put_off(seen: Seen, rules: Rules, trouble: OnceKeyError) -> Asks:
    """Ask later, and leave alone what is kept of it: without the application's sealer it would be lost."""
    note = f"{rules.name}: its journal cannot be read without the application's sealer: {trouble}"
    after = Aftermath(ms(rules.pace.most_for), None, note)
    new = moved("unclear", seen.record, Facts(seen.now, unclear=True), after)
    written = (yield _swapping(Swap(seen.record, new))) if new is not None else None
    return Ending.UNCLEAR if isinstance(written, Done) else Ending.MOVED_ON


def _swapping(swap: Swap) -> Callable[[Any], Any]:
    return lambda store: store.swap(swap)
