"""What becomes of one unknown record, as a generator: it yields what to ask of the store or the resolver. No I/O.

    ask        the next asking is moved away first, by the version that was seen: of several workers one asks
    inquire    the resolver answers
    settle     completed, failed_retryable or unclear, by the version that asking made

Whoever else wrote in between, a late owner, an operator or another worker, has the last word.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, NamedTuple

from oncekey.core.commands import Done, Swap
from oncekey.core.journal import Asked, Audit, Journal
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
Steps = Generator[Callable[[Any], Any] | Inquire, Any, Ending]


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
    case = _Case(seen, rules)
    journal = case.journal()
    if journal is None:
        return (yield from case.put_off("its journal cannot be read: give the reconciler the application's sealer"))
    asked = journal.asked or Asked(0, seen.now)
    asked = asked._replace(tries=asked.tries + 1)
    journal = journal.asking(asked)
    if not (yield from case.move("ask", Facts(seen.now), ms(rules.pace.answer_for), case.record.note, journal)):
        return Ending.MOVED_ON
    found = rules.resolvers.find(case.record.label.endpoint)
    if found is None:
        finding: Finding = Unclear(f"no resolver is registered for {case.record.label.endpoint or 'it'}")
    else:
        finding, took = yield Inquire(found, case.inquiry(journal, asked, found))
        case.now += took
    match finding:
        case Landed():
            return (yield from case.landed(journal, finding))
        case NotDone():
            return (yield from case.not_done(journal, finding))
        case Unclear():
            return (yield from case.unclear(journal, asked, finding, draw))


class _Case:
    """One record on its way through."""

    def __init__(self, seen: Seen, rules: Rules) -> None:
        self.record, self.now = seen
        self.rules = rules

    def journal(self) -> Journal | None:
        try:
            return journal_of(self.record, self.rules.sealer)
        except OnceKeyError:
            return None

    def inquiry(self, journal: Journal, asked: Asked, found: Found) -> Inquiry:
        record, label = self.record, self.record.label
        unclear_for = (self.now - asked.since) / 1000
        words = label.endpoint, label.scope, label.key, record.note
        return Inquiry(record.id, *words, journal, record.attempts, asked.tries, unclear_for, found.place)

    def landed(self, journal: Journal, finding: Landed) -> Steps:
        audit = self._audit(finding.seen, State.COMPLETED)
        outcome = sign(packed(finding.answer), (*journal.trail, audit))
        policy = self.rules.policy
        keep_for = ms(policy.keep_key_for or policy.keep_for)
        due_for = ms(policy.keep_for) if policy.keep_key_for not in (None, policy.keep_for) else None
        after = Aftermath(due_for, keep_for, self._note(audit), self.rules.sealer.seal(self.record.id, outcome))
        return (yield from self._signed("reconcile_done", Facts(self.now, effect_seen=True), after, audit))

    def not_done(self, journal: Journal, finding: NotDone) -> Steps:
        audit = self._audit(f"{finding.stopped.how}; then {finding.seen}", State.FAILED_RETRYABLE)
        kept = sealed(self.record.id, journal.asking(None).signed(audit), self.rules.sealer)
        keep_for = ms(self.rules.policy.keep_key_for or self.rules.policy.keep_for)
        after = Aftermath(None, keep_for, self._note(audit), kept)
        return (yield from self._signed("reconcile_not_done", Facts(self.now, cannot_land=True), after, audit))

    def unclear(self, journal: Journal, asked: Asked, finding: Unclear, draw: float) -> Steps:
        pace = self.rules.pace
        dead = pace.given_up(asked.tries)
        wait = ms(finding.again_in) if finding.again_in is not None else pace.wait(asked.tries, draw)
        said = f"{self.rules.name}: {finding.why}"
        if dead:
            said = f"{self.rules.name}: given up after {asked.tries} tries: {finding.why}"
        journal = journal.asking(asked._replace(said=finding.why))
        facts = Facts(self.now, unclear=True)
        if not (yield from self.move("unclear", facts, None if dead else wait, said, journal)):
            return Ending.MOVED_ON
        return Ending.DEAD_LETTER if dead else Ending.UNCLEAR

    def put_off(self, why: str) -> Steps:
        """Ask later, and leave what is kept of it alone."""
        wait, note = ms(self.rules.pace.most_for), f"{self.rules.name}: {why}"
        moved_ = yield from self.move("unclear", Facts(self.now, unclear=True), wait, note, None)
        return Ending.UNCLEAR if moved_ else Ending.MOVED_ON

    def move(
        self, row: str, facts: Facts, due_for: int | None, note: str, journal: Journal | None
    ) -> Generator[Callable[[Any], Any], Any, bool]:
        kept = sealed(self.record.id, journal, self.rules.sealer) if journal is not None else b""
        return (yield from self._swap(row, facts, Aftermath(due_for, None, note, kept)))

    def _signed(self, row: str, facts: Facts, after: Aftermath, audit: Audit) -> Steps:
        if not (yield from self._swap(row, facts, after)):
            return Ending.MOVED_ON
        told(self.record.id, audit)
        return Ending.LANDED if audit.target is State.COMPLETED else Ending.NOT_DONE

    def _swap(self, row: str, facts: Facts, after: Aftermath) -> Generator[Callable[[Any], Any], Any, bool]:
        new: Record | None = moved(row, self.record, facts, after)
        if new is None:
            return False
        swap = Swap(self.record, new)
        if not isinstance((yield lambda store: store.swap(swap)), Done):
            return False
        self.record = new
        return True

    def _audit(self, why: str, target: State) -> Audit:
        return Audit(self.rules.name, why, self.now, State.UNKNOWN, target)

    def _note(self, audit: Audit) -> str:
        return f"{audit.by}: {audit.why}"
