"""Every store of ours keeps every rule of the shipped suite, in both colours."""

from __future__ import annotations

import pytest

from oncekey.stores.memory import MemoryStore
from oncekey.testing import SCENARIOS, ManualClock, StoreConformance, run, run_one
from oncekey.testing.__main__ import main
from oncekey.testing.conformance import Verdict, rule_of
from oncekey.testing.scenarios import ROOMS, Scenario
from tests.contract.stores import ALL, Subject
from tests.contract.wrong import WRONG


@pytest.mark.parametrize("scenario", SCENARIOS, ids=lambda one: one.__name__)
@pytest.mark.parametrize(("store", "colour"), ALL)
def test_the_store_keeps_the_rule(scenario: Scenario, subject: Subject) -> None:
    """The scenario's own docstring is the rule."""
    run_one(scenario, subject.open, subject.clock)


class TestThirdParty(StoreConformance):
    """The suite as somebody else uses it: by subclassing."""

    clock = ManualClock()
    _store = MemoryStore(clock)

    def open(self) -> MemoryStore:
        """Give every client the same records."""
        return self._store


def test_every_scenario_says_its_rule() -> None:
    """A scenario has a name of its own and a sentence, and every room has several."""
    names = [scenario.__name__ for scenario in SCENARIOS]
    assert len(names) == len(set(names)) > 70
    assert all(rule_of(scenario).endswith(".") for scenario in SCENARIOS)
    assert {scenario.__module__ for scenario in SCENARIOS} == {room.__name__ for room in ROOMS}


def test_the_command_line_tells_and_exits(capsys: pytest.CaptureFixture[str]) -> None:
    """`python -m oncekey.testing URL` prints a line for each rule, and its exit code is the verdict."""
    assert main(["memory://", "--only", "claim"]) == 0
    out = capsys.readouterr().out
    assert "BROKEN" not in out
    assert "holds" in out
    assert main(["memori://"]) == 2
    assert "did you mean memory://" in capsys.readouterr().err


@pytest.mark.parametrize("kind", WRONG)
def test_the_suite_finds_a_wrong_store(kind: type[MemoryStore]) -> None:
    """A store with one common fault breaks at least one rule: a suite that passes everything proves nothing."""
    clock = ManualClock()
    store = kind(clock)
    # Who waits to be told waits long for a store that cannot; that is not what these stores do wrong.
    quick = [one for one in SCENARIOS if "wake" not in one.__name__ and "hears" not in one.__name__]
    verdicts: list[Verdict] = [v for v in run(lambda: store, clock, quick) if v.trouble]
    assert verdicts, f"{kind.__name__}: {kind.__doc__} and nobody noticed"
    assert all("RuleBroken" in verdict.trouble or "Error" in verdict.trouble for verdict in verdicts)
