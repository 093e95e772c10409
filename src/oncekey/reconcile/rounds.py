"""What both colours of the reconciler share: reports, and what to make of a resolver's answer."""

from __future__ import annotations

import logging
import random
from dataclasses import dataclass, field, fields
from typing import Any

from oncekey.core.keys import key_ref
from oncekey.engine import events
from oncekey.engine.events import Events
from oncekey.operations.cleaning import SweepReport
from oncekey.reconcile.findings import Finding, Inquiry, Landed, NotDone, TooEarly, Unclear
from oncekey.reconcile.pace import Pace
from oncekey.reconcile.triage import Ending

log = logging.getLogger("oncekey.reconcile")

# A page is longer than what is taken from it, and taken in any order: workers that read the same page seldom meet.
PAGE, TAKEN = 400, 100


def draw() -> float:
    """Where in a span of time this one goes, so that many spread over it."""
    return random.random()  # noqa: S311 - nothing depends on its being a secret


def pause(pace: Pace) -> float:
    """How long to wait for the next round: workers that began together do not stay together."""
    return pace.poll_for * (0.75 + draw() / 2)


SAID = {
    Ending.LANDED: events.RESOLVED,
    Ending.NOT_DONE: events.RESOLVED,
    Ending.UNCLEAR: events.UNCLEAR,
    Ending.DEAD_LETTER: events.DEAD_LETTER,
}


@dataclass(slots=True)
class Report:
    """What a round came to: how many landed, did not happen, are unclear, were given up, or moved on by themselves."""

    swept: SweepReport = field(default_factory=SweepReport)
    landed: int = 0
    not_done: int = 0
    unclear: int = 0
    dead_letter: int = 0
    moved_on: int = 0

    def count(self, ending: Ending) -> None:
        """One more."""
        setattr(self, ending.value, getattr(self, ending.value) + 1)

    def add(self, other: Report) -> None:
        """All of another round."""
        for mine, theirs in ((self, other), (self.swept, other.swept)):
            for one in fields(mine):
                if one.name != "swept":
                    setattr(mine, one.name, getattr(mine, one.name) + getattr(theirs, one.name))

    @property
    def settled(self) -> int:
        """How many are known now."""
        return self.landed + self.not_done

    @property
    def asked(self) -> int:
        """How many inquiries were made."""
        return self.settled + self.unclear + self.dead_letter


def tell(said: Events, id_: bytes, ending: Ending) -> Ending:
    """Say what an inquiry came to."""
    if ending in SAID:
        said.say(SAID[ending], id_, ending.value)
    return ending


def judged(inquiry: Inquiry, answer: Any) -> Finding:
    """A resolver's answer, if it is one; what is none is unclear, and said aloud."""
    if isinstance(answer, NotDone) and answer.stopped.inquiry is not inquiry:
        answer = None
        wrong = "gave the proof of another inquiry: cancel again, then read again"
    else:
        wrong = f"answered {type(answer).__name__}: return landed(...), not_done(...) or unclear(...)"
    if isinstance(answer, Landed | NotDone | Unclear):
        return answer
    log.error("the resolver for %s %s", inquiry.endpoint, wrong)
    return Unclear(f"the resolver {wrong}")


def failed(inquiry: Inquiry, error: Exception) -> Finding:
    """What an exception in a resolver means: nobody knows more than before."""
    if isinstance(error, TooEarly):
        return Unclear(str(error), error.wait)
    log.warning("the resolver for %s failed on %s", inquiry.endpoint, key_ref(inquiry.id), exc_info=error)
    return Unclear(f"{type(error).__name__}: {error}"[:200])
