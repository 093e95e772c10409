"""What an exploration found, for people and for tests."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field

from oncekey.testing.crashes.steps import Step, Way
from oncekey.testing.crashes.trial import Got
from oncekey.testing.crashes.verdict import Case, broken
from oncekey.testing.expect import RuleBroken


@dataclass
class Report:
    """Every case, and what it broke. `missed` are steps that did not come a second time."""

    clean: Got
    steps: list[Step]
    cases: list[Case] = field(default_factory=list)
    missed: list[tuple[Step, Way]] = field(default_factory=list)

    @property
    def broken(self) -> list[tuple[Case, list[str]]]:
        """The cases in which a rule did not hold, each with the reasons."""
        return [(case, why) for case in self.cases if (why := broken(case, self.clean))]

    @property
    def ends(self) -> dict[str, int]:
        """How many cases ended in which state."""
        return dict(Counter(case.again.state.word if case.again.state else "absent" for case in self.cases))

    def check(self) -> Report:
        """Raise if a rule was broken anywhere, with a line for each case; otherwise return the report."""
        if self.broken:
            lines = [f"  {_line(case)}\n      {'; '.join(why)}" for case, why in self.broken]
            raise RuleBroken(f"{len(lines)} of {len(self.cases)} crashes broke a rule:\n" + "\n".join(lines))
        return self

    def __str__(self) -> str:
        ends = ", ".join(f"{count} {word}" for word, count in sorted(self.ends.items()))
        head = (
            f"{len(self.steps)} steps, {len(self.cases)} crashes, {len(self.broken)} broke a rule; they ended: {ends}"
        )
        return "\n".join([head, *(_line(case) for case in self.cases)])


def _line(case: Case) -> str:
    said = " | ".join(str(got) for got in case.gots)
    return f"{case.way:10} {case.step!s:60} {case.again.effects} effects | {said}"


__all__ = ["Report"]
