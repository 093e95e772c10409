"""The conformance suite: every scenario against one store, under pytest or from the command line.

    from oncekey.testing import ManualClock, StoreConformance

    class TestMyStore(StoreConformance):
        clock = ManualClock()          # leave it out if the store's clock cannot be set

        def open(self):                # one more client of the same records, sync or async
            return MyStore("my://...", clock=self.clock)

pytest itself is not needed here: it finds the class by its name, and `pytest_generate_tests` by its own.
"""

from __future__ import annotations

import time
import traceback
from collections.abc import Callable, Iterable, Iterator
from typing import Any, ClassVar, NamedTuple

from oncekey.testing.bench import AnyStore, Bench
from oncekey.testing.clock import ManualClock
from oncekey.testing.scenarios import SCENARIOS, Scenario


class Verdict(NamedTuple):
    """How one scenario went; `trouble` is empty when the rule held."""

    name: str
    rule: str
    trouble: str
    seconds: float


class StoreConformance:
    """Subclass it, give it `open`, and every scenario is a test. `clock` is the store's, where it can be set."""

    clock: ClassVar[ManualClock | None] = None

    def open(self) -> AnyStore:
        """Open one more client of the same records, in either colour."""
        raise NotImplementedError("a conformance test needs an open() that returns a client of the store under test")

    @staticmethod
    def pytest_generate_tests(metafunc: Any) -> None:
        """Make one test of each scenario."""
        if "scenario" in metafunc.fixturenames:
            metafunc.parametrize("scenario", SCENARIOS, ids=[one.__name__ for one in SCENARIOS])

    def test_conformance(self, scenario: Scenario) -> None:
        """The store keeps this rule."""
        run_one(scenario, self.open, self.clock)


def run_one(scenario: Scenario, open_: Callable[[], AnyStore], clock: ManualClock | None = None) -> None:
    """Run one scenario on clients of its own, and raise what it raises."""
    bench = Bench(open_, clock)
    try:
        scenario(bench)
    finally:
        bench.close()


def run(
    open_: Callable[[], AnyStore], clock: ManualClock | None = None, scenarios: Iterable[Scenario] | None = None
) -> Iterator[Verdict]:
    """Run scenarios one after the other; a failed one does not stop the others."""
    for scenario in SCENARIOS if scenarios is None else scenarios:
        began = time.monotonic()
        try:
            run_one(scenario, open_, clock)
            trouble = ""
        except Exception as broken:  # noqa: BLE001 - the table of verdicts is where it is raised to
            trouble = "".join(traceback.format_exception_only(broken)).strip()
        yield Verdict(scenario.__name__, rule_of(scenario), trouble, time.monotonic() - began)


def rule_of(scenario: Scenario) -> str:
    """The sentence that a scenario proves."""
    return (scenario.__doc__ or "").strip().splitlines()[0]


__all__ = ["StoreConformance", "Verdict", "rule_of", "run", "run_one"]
