"""Judges a history: ten rules, each linear in the events of one key, and a void for runs in which too little happened.

Each (caller, key) is a register that is written once, so no search is needed. R10 is not about a key: a run whose
faults or rare events stayed below their floors proves nothing, and is void instead of passed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from tests.chaos.history import Call, History, Kind, Operation, Story
from tests.chaos.rarities import counted


@dataclass(frozen=True, slots=True)
class Terms:
    """What the run promised. `slack` covers a request that a link held back, and a busy machine."""

    lease_for: float
    slack: float = 2.0
    floors: Mapping[str, int] = field(default_factory=dict)


class Broken(NamedTuple):
    """A rule that does not hold, for which operation, and what was seen."""

    rule: str
    operation: Operation
    why: str


class Verdict(NamedTuple):
    """`broken` must be empty; with `void` lines the run says nothing, however empty that is."""

    broken: list[Broken]
    void: list[str]

    @property
    def passed(self) -> bool:
        """Whether the run proves something, and proves it well."""
        return not self.broken and not self.void


Check = Callable[[Story, Terms], Iterator[str]]


class Rule(NamedTuple):
    """One rule, the figure of the report in which its violations are counted, and how it is checked."""

    name: str
    sentence: str
    figure: str
    check: Check


def one_effect(story: Story, terms: Terms) -> Iterator[str]:
    if len(story.effects) > 1:
        receipts = ", ".join(effect.receipt for effect in story.effects)
        yield f"{len(story.effects)} effects: {receipts}"


def one_answer(story: Story, terms: Terms) -> Iterator[str]:
    answers = {call.answer for call in story.finals}
    if len(answers) > 1:
        yield f"{len(answers)} different final answers"


def true_answer(story: Story, terms: Terms) -> Iterator[str]:
    receipts = {effect.receipt for effect in story.effects}
    for call in story.finals:
        if call.receipt not in receipts:
            yield f"a final answer with the receipt {call.receipt or 'of nothing'}, which is not in the ledger"


def final_is_final(story: Story, terms: Terms) -> Iterator[str]:
    """A request sent after somebody got the final answer gets it too, or an error of the infrastructure."""
    first = min(story.finals, key=lambda call: call.until, default=None)
    if first is None:
        return
    for call in story.calls:
        if call.at > first.until and call.whole and _takes_back(call, first):
            yield f"{call.kind} {call.at - first.until:.3f} s after the final answer"


def _takes_back(call: Call, first: Call) -> bool:
    if call.kind is Kind.MISMATCH:
        return call.payload == first.payload
    return call.kind in {Kind.BUSY, Kind.RELEASED, Kind.UNKNOWN}


def own_answer(story: Story, terms: Terms) -> Iterator[str]:
    for call in story.finals:
        if call.echo != story.operation.caller:
            yield f"an answer that was made for {call.echo or 'nobody'}"


def same_request(story: Story, terms: Terms) -> Iterator[str]:
    asked = {effect.receipt: effect.payload for effect in story.effects}
    for call in story.finals:
        if asked.get(call.receipt, call.payload) != call.payload:
            yield "another request than the one that took effect got its answer"


def settled(story: Story, terms: Terms) -> Iterator[str]:
    """After the quiet time a request is final, or the key stands on the list of unknowns."""
    if not story.ended or story.excused or not any(call.whole for call in story.calls):
        return
    last = [call for call in story.calls if call.last]
    if not any(call.kind is Kind.FINAL for call in last):
        yield f"after the faults were over: {', '.join(call.kind for call in last) or 'never asked'}"


def honest_busy(story: Story, terms: Terms) -> Iterator[str]:
    """Each busy overlaps an attempt, widened by the lease: of a handler, or of another request that took the key."""
    for call in story.calls:
        if call.kind is Kind.BUSY and not any(_covers(span, call, terms) for span in _spans(story, call)):
            yield f"told to wait at {call.at:.3f}, when nobody was at work"


Span = tuple[float, float | None]


def _spans(story: Story, asking: Call) -> Iterator[Span]:
    yield from ((attempt.start, attempt.end) for attempt in story.attempts)
    yield from ((call.at, call.until) for call in story.calls if call is not asking and call.whole)


def _covers(span: Span, call: Call, terms: Terms) -> bool:
    start, end = span
    wide = terms.lease_for + terms.slack
    return start - wide <= call.until and (end is None or call.at <= end + wide)


def whole_payload(story: Story, terms: Terms) -> Iterator[str]:
    sent = {call.payload for call in story.calls if call.whole}
    for effect in story.effects:
        if effect.payload not in sent:
            yield f"the effect {effect.receipt} carries a payload that no client sent in full"


def typed(story: Story, terms: Terms) -> Iterator[str]:
    for call in story.calls:
        if call.kind is Kind.UNTYPED:
            yield f"an error that nobody has named: {call.detail}"


RULES = (
    Rule("R1", "at most one effect", "duplicates", one_effect),
    Rule("R2", "all final answers are the same bytes", "contradictory", one_answer),
    Rule("R3", "a final answer names an effect that exists", "lost", true_answer),
    Rule("R4", "what was final stays final", "lost", final_is_final),
    Rule("R5", "nobody gets another caller's answer", "leaks", own_answer),
    Rule("R6", "another request never gets the answer", "leaks", same_request),
    Rule("R7", "no key stays stuck", "stuck", settled),
    Rule("R8", "who is told to wait waits for somebody", "false busy", honest_busy),
    Rule("R9", "no effect of a truncated request", "truncated", whole_payload),
    Rule("typed", "every refusal has a name", "untyped", typed),
)
FIGURES = tuple(dict.fromkeys(rule.figure for rule in RULES))


def broken(history: History, terms: Terms) -> list[Broken]:
    """Every rule on every operation."""
    return [
        Broken(rule.name, story.operation, why)
        for story in history.stories().values()
        for rule in RULES
        for why in rule.check(story, terms)
    ]


def below_floors(history: History, floors: Mapping[str, int]) -> list[str]:
    """R10: what happened too seldom for this run to mean anything."""
    seen = counted(history)
    return [
        f"{name}: {seen.get(name, 0)}, at least {least} are needed"
        for name, least in floors.items()
        if seen.get(name, 0) < least
    ]


def judge(history: History, terms: Terms) -> Verdict:
    """R1 to R9 on every operation, and R10 on the run."""
    return Verdict(broken(history, terms), below_floors(history, terms.floors))


def figures(found: list[Broken]) -> dict[str, int]:
    """Operations that broke a rule, by the figure of the report."""
    hit = {figure: set[Operation]() for figure in FIGURES}
    named = {rule.name: rule.figure for rule in RULES}
    for each in found:
        hit[named[each.rule]].add(each.operation)
    return {figure: len(operations) for figure, operations in hit.items()}
