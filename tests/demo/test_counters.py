"""Counters in files that processes share."""

from __future__ import annotations

import multiprocessing
from pathlib import Path

import pytest

from oncekey.engine import events
from oncekey.engine.events import Event
from oncekey.telemetry.counters import Counters
from oncekey.telemetry.metrics import BY_EVENT, METRICS, PRUNED, ZOMBIE
from oncekey.telemetry.prometheus import text


def count(folder: Path, times: int) -> None:
    """Count in a process of its own."""
    counters = Counters(folder)
    for _ in range(times):
        counters(Event(events.CREATED))


def test_processes_are_added_up(tmp_path: Path) -> None:
    """What ended processes counted stays in the sum."""
    context = multiprocessing.get_context("spawn")
    children = [context.Process(target=count, args=(tmp_path, times)) for times in (3, 4)]
    for child in children:
        child.start()
    for child in children:
        child.join()
    assert Counters(tmp_path).totals()[BY_EVENT[events.CREATED]] == 7


def test_a_number_may_be_added_at_once(tmp_path: Path) -> None:
    """Sweeps and purges count by the batch."""
    counters = Counters(tmp_path)
    counters.add(PRUNED, 500)
    counters.add(ZOMBIE, 0)
    assert (counters.totals()[PRUNED], counters.totals()[ZOMBIE]) == (500, 0)


@pytest.mark.parametrize("name", events.NAMES)
def test_every_event_has_its_counter(name: str) -> None:
    """A new event without a counter is noticed here."""
    assert BY_EVENT[name] in METRICS


def test_the_page_has_no_dots_in_names(tmp_path: Path) -> None:
    """Prometheus allows letters, digits and underscores."""
    page = text(Counters(tmp_path).totals()).decode()
    names = [line.split()[0] for line in page.splitlines() if not line.startswith("#")]
    assert len(names) == len(METRICS)
    assert all(name.replace("_", "").isalnum() for name in names)
    assert page.endswith("\n")
