from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.chaos.arena import Launchers, Plan
from tests.chaos.launching import launcher
from tests.chaos.mutants import MUTANTS
from tests.chaos.trials import trial


@pytest.fixture(scope="module")
def line(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[asyncio.Runner, Launchers]]:
    """One loop and one launcher for all: a launcher's start is most of what a short run costs."""
    folder: Path = tmp_path_factory.mktemp("launcher")
    with asyncio.Runner() as runner:
        usual = launcher(folder)
        yield runner, Launchers(runner.run(usual.__aenter__()))
        runner.run(usual.__aexit__(None, None, None))


@pytest.mark.slow
@pytest.mark.parametrize("name", MUTANTS)
def test_each_bug_is_caught(line: tuple[asyncio.Runner, Launchers], name: str) -> None:
    """A few seconds with clients, and faults aimed at it where it needs them, and the rule that it breaks is named."""
    runner, launchers = line
    found = runner.run(trial(name, launchers))
    assert found.rules & MUTANTS[name].rules, f"{name} was not caught; broken: {found.rules or 'nothing'}"


@pytest.mark.slow
def test_without_a_bug_the_same_run_finds_nothing(line: tuple[asyncio.Runner, Launchers]) -> None:
    """What catches the mutants lets the package pass: all of their faults, for as long as a slow mutant takes."""
    runner, launchers = line
    blows = tuple({blow for mutant in MUTANTS.values() for blow in mutant.blows})
    assert runner.run(trial("", launchers, Plan("sqlite", 5.0, blows=blows, workers=2))).rules == set()
