"""Crash points: one request of your handler, hit at every step, and what the next ones get.

from oncekey.testing.crashes import Trial, explore, post

def trial(store, folder):
    app = OnceKeyMiddleware(handler, store=store, scope=SHARED)
    return Trial(asgi=app, request=post("/payments"), effects=charged.count)

def test_a_crash_never_charges_twice():
    explore(trial).check()
"""

from __future__ import annotations

from oncekey.testing.crashes.explore import explore
from oncekey.testing.crashes.kills import explore_kills
from oncekey.testing.crashes.report import Report
from oncekey.testing.crashes.steps import MEANING, Crash, Place, Step, Way
from oncekey.testing.crashes.trial import Ask, Got, Trial, post
from oncekey.testing.crashes.verdict import Case

__all__ = [
    "MEANING",
    "Ask",
    "Case",
    "Crash",
    "Got",
    "Place",
    "Report",
    "Step",
    "Trial",
    "Way",
    "explore",
    "explore_kills",
    "post",
]
