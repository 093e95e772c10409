"""Where scenarios are listed."""

from __future__ import annotations

from collections.abc import Callable

from oncekey.testing.bench import Bench

Scenario = Callable[[Bench], None]

SCENARIOS: list[Scenario] = []


def scenario(function: Scenario) -> Scenario:
    """List it. Its docstring is the rule that it proves, in one sentence."""
    SCENARIOS.append(function)
    return function


__all__ = ["SCENARIOS", "Scenario", "scenario"]
