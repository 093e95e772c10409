"""The rules that a crash must not break, as pure functions of what was seen."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from oncekey.core.record import IN_PROGRESS, State
from oncekey.testing.crashes.steps import Step, Way
from oncekey.testing.crashes.trial import Got

# A header of these differs by nature: it names the moment, or that the answer is a replay.
MAY_DIFFER = frozenset({"date", "idempotency-replayed", "idempotent-replayed", "original-request", "cache-control"})


class Case(NamedTuple):
    """What was seen of one request that was hit at one step, and of those that came after it with the same key."""

    step: Step
    way: Way
    key: str
    first: Got
    at_once: Got
    later: Got
    again: Got

    @property
    def gots(self) -> tuple[Got, ...]:
        """All answers, in the order in which they were asked for."""
        return (self.first, self.at_once, self.later, self.again)


def one_effect(case: Case, clean: Got) -> str:
    """At most as many effects as without a crash."""
    most = max(got.effects for got in case.gots)
    return f"{most} effects, and {clean.effects} without a crash" if most > clean.effects else ""


def one_answer(case: Case, clean: Got) -> str:
    """All final answers are identical."""
    finals = {(got.status, _kept(got), got.body) for got in case.gots if got.final}
    return f"{len(finals)} different final answers" if len(finals) > 1 else ""


def truth(case: Case, clean: Got) -> str:
    """An answer that says it was done means that it was done."""
    lies = [got for got in case.gots if got.final and got.status == clean.status and got.effects < clean.effects]
    return (
        f"the answer is {clean.status}, and only {lies[0].effects} of {clean.effects} effects happened" if lies else ""
    )


def final_stays(case: Case, clean: Got) -> str:
    """Who asks after somebody has had the final answer gets it, unless the store cannot be asked."""
    seen = False
    for got in case.gots:
        if seen and not got.final and got.problem not in UNDECIDED:
            return f"a final answer was given, and a later request got: {got}"
        seen = seen or got.final
    return ""


def stored_first(case: Case, clean: Got) -> str:
    """No client sees the beginning of a success that the store does not hold."""
    early = [got for got in case.gots if got.status == clean.status and not got.problem]
    early = [got for got in early if got.state is not State.COMPLETED]
    return f"a client was told {early[0].status} before it was stored" if early else ""


def silence(case: Case, clean: Got) -> str:
    """Nothing runs between unknown and its resolution."""
    for before, got in zip(case.gots, case.gots[1:], strict=False):
        if before.state is State.UNKNOWN and got.ran:
            return "the work ran again although its outcome was unknown"
    return ""


def defined(case: Case, clean: Got) -> str:
    """Once the lease is over, the next request gets an answer that says how things stand."""
    for got in (case.later, case.again):
        if not got.answered:
            return f"after the lease a request got no answer: {got}"
        if got.problem in UNDECIDED:
            return f"after the lease a request is still refused: {got}"
        if got.state in IN_PROGRESS:
            return "the record is in progress past its lease"
    return ""


def served(case: Case, clean: Got) -> str:
    """A process that goes on serves the next request."""
    return "" if case.at_once.answered else f"the next request got no answer: {case.at_once}"


# Answers that leave open how things stand.
UNDECIDED = frozenset({"store-unavailable"})
RULES: tuple[Callable[[Case, Got], str], ...] = (
    one_effect,
    one_answer,
    truth,
    stored_first,
    final_stays,
    silence,
    defined,
    served,
)


def broken(case: Case, clean: Got) -> list[str]:
    """What this case broke, in words; nothing if all rules held."""
    return [trouble for rule in RULES if (trouble := rule(case, clean))]


def _kept(got: Got) -> tuple[tuple[str, str], ...]:
    return tuple(header for header in got.headers if header[0] not in MAY_DIFFER)


__all__ = ["RULES", "Case", "broken"]
