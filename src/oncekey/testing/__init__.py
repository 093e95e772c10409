"""Test tools that are shipped: the conformance suite for stores, and a clock that moves when it is told to.

`python -m oncekey.testing URL` runs the suite on a store by its URL; give it a scratch database.
"""

from __future__ import annotations

from oncekey.testing.bench import Bench
from oncekey.testing.clock import ManualClock
from oncekey.testing.conformance import StoreConformance, Verdict, run, run_one
from oncekey.testing.expect import RuleBroken
from oncekey.testing.scenarios import SCENARIOS

__all__ = ["SCENARIOS", "Bench", "ManualClock", "RuleBroken", "StoreConformance", "Verdict", "run", "run_one"]
