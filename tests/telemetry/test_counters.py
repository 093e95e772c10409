"""Counters in files that processes share."""

from __future__ import annotations

import multiprocessing
import os
from pathlib import Path

import pytest

from oncekey.engine import events
from oncekey.engine.events import Event
from oncekey.telemetry.counters import Counters
from oncekey.telemetry.metrics import (
    BATCHES,
    BY_EVENT,
    DECIDE,
    HANDLER,
    HISTOGRAMS,
    METRICS,
    MISUSE_BY_SHARD,
    PRUNED,
    ZOMBIE,
)
from oncekey.telemetry.prometheus import page, text


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
    names = [line.split()[0].partition("{")[0] for line in page.splitlines() if not line.startswith("#")]
    assert len(names) == len(METRICS)
    assert all(name.replace("_", "").isalnum() for name in names)
    assert page.endswith("\n")


def test_a_forked_process_counts_for_itself(tmp_path: Path) -> None:
    """Servers fork workers after the application was made; two that wrote to one file would lose counts."""
    counters = Counters(tmp_path)
    counters(Event(events.CREATED))
    child = os.fork()
    if child == 0:
        counters(Event(events.CREATED))
        os._exit(0)
    assert os.waitpid(child, 0)[1] == 0
    assert (len(list(tmp_path.iterdir())), counters.totals()[BY_EVENT[events.CREATED]]) == (2, 2)


def test_counters_need_no_folder() -> None:
    """A process alone counts in its memory."""
    counters = Counters()
    counters(Event(events.PURGED, size=500))
    assert counters.totals()[PRUNED] == 500


def test_times_fall_into_their_buckets(tmp_path: Path) -> None:
    """A bound belongs to its bucket; what is longer than all of them is counted too, and sums add up over processes."""
    for seconds in (DECIDE.bounds[0], 0.3, 99.0):
        Counters(tmp_path)(Event(events.REPLAYED, took_for=seconds))
    seen = Counters(tmp_path).observed()[DECIDE]
    assert (seen.buckets[0], seen.buckets[9], seen.buckets[-1], sum(seen.buckets)) == (1, 1, 1, 3)
    assert seen.total == pytest.approx(99.3005)


def test_an_event_tells_of_the_work_and_of_the_store() -> None:
    """How long the work ran and how long its outcome took to be stored are two figures."""
    counters = Counters()
    counters(Event(events.COMPLETED, took_for=0.002, ran_for=1.5))
    counters(Event(events.BATCH, detail="settle", size=3))
    observed = counters.observed()
    assert (observed[HANDLER].total, sum(observed[HANDLER].buckets)) == (1.5, 1)
    assert observed[BATCHES["settle"]].total == 3


def test_misuse_is_told_by_scope_in_few_series() -> None:
    """The first digit of the scope's digest names the series, so that one caller's misuse stands out."""
    counters = Counters()
    counters(Event(events.KEY_MISUSE, scope="a1b2c3"))
    counters(Event(events.KEY_MISUSE))
    totals = counters.totals()
    assert (totals[MISUSE_BY_SHARD["a"]], totals[MISUSE_BY_SHARD["b"]]) == (1, 0)
    assert totals[BY_EVENT[events.KEY_MISUSE]] == 2


def test_everything_is_on_the_page_from_the_first_scrape() -> None:
    """A rate needs a zero to begin from, and a bucket must not fall."""
    lines = page(Counters()).decode().splitlines()
    samples = [line for line in lines if not line.startswith("#")]
    assert len(samples) == len(METRICS) + sum(len(one.bounds) + 3 for one in HISTOGRAMS)
    assert all(float(line.split()[-1]) == 0 for line in samples)
    names = {one.name for one in METRICS} | {one.name for one in HISTOGRAMS}
    assert len([line for line in lines if line.startswith("# TYPE")]) == len(names)
