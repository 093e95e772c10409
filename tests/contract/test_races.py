"""Twenty processes, a thousand duplicates, one effect: counted in a ledger that no store knows of."""

from __future__ import annotations

import multiprocessing
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

import pytest

from oncekey.core.commands import Claim, Done
from oncekey.stores.memory import MemoryStore
from oncekey.stores.open import open_store
from oncekey.testing.bench import HOUR, a_settlement
from tests.contract.racer import FIRST, SECOND, Race, Runner, Tale, attack, get_ready, run
from tests.contract.stores import SHARED, Subject, fresh_id

PROCESSES = 20
DUPLICATES = 50
KEEP_FOR = 400  # long enough that some ask before the expiry and some after


@pytest.fixture(scope="module")
def processes() -> Iterator[Runner]:
    """Twenty processes that start a race together."""
    context = multiprocessing.get_context("spawn")
    starting = context.Barrier(PROCESSES)
    with ProcessPoolExecutor(PROCESSES, mp_context=context, initializer=get_ready, initargs=(starting,)) as pool:
        yield lambda race: list(pool.map(run, [race] * PROCESSES))


def told(tales: list[Tale]) -> tuple[Counter[str], set[bytes]]:
    """All that the processes saw."""
    decisions: Counter[str] = Counter()
    for tale in tales:
        decisions += tale.decisions
    return decisions, set().union(*(tale.answers for tale in tales))


def url_of(subject: Subject) -> str:
    """Where other processes open the same store."""
    assert subject.url is not None
    return subject.url


@pytest.mark.parametrize(("store", "colour"), SHARED)
def test_a_thousand_duplicates_have_one_effect(subject: Subject, processes: Runner, tmp_path: Path) -> None:
    """Twenty processes with fifty concurrent duplicates each: one executes, all others wait for it or replay it."""
    ledger = tmp_path / "ledger"
    tales = processes(Race(url_of(subject), fresh_id(), str(ledger), DUPLICATES))
    decisions, answers = told(tales)
    assert len(ledger.read_text().splitlines()) == 1
    assert decisions["Execute"] == 1
    assert decisions.total() == decisions["Execute"] + decisions["InProgress"] + decisions["Replay"]
    assert decisions.total() == PROCESSES * DUPLICATES
    assert answers <= {FIRST}


@pytest.mark.parametrize(("store", "colour"), SHARED)
def test_an_expiry_has_one_winner(subject: Subject, processes: Runner, tmp_path: Path) -> None:
    """On both sides of an expiry: before it the old answer is replayed, after it exactly one request executes."""
    ledger = tmp_path / "ledger"
    url = url_of(subject)
    client = open_store(url, store_for=60)
    claim = Claim(fresh_id(), fresh_id()[:16], b"the same request", HOUR)
    client.claim([claim])
    assert isinstance(client.settle([a_settlement(claim, outcome=FIRST, keep_for=KEEP_FOR)])[0], Done)
    decisions, answers = told(processes(Race(url, claim.id, str(ledger), 5, past=FIRST)))
    client.close()
    assert len(ledger.read_text().splitlines()) == 1
    assert decisions["Execute"] == 1
    assert decisions["Execute"] + decisions["InProgress"] + decisions["Replay"] == PROCESSES * 5
    assert answers <= {SECOND}


def test_threads_on_a_memory_store_have_one_effect(tmp_path: Path) -> None:
    """Within one process the memory store holds the same promise."""
    store = MemoryStore()
    for turn in range(10):
        ledger = tmp_path / f"ledger {turn}"
        decisions, answers = told([attack(store, Race("", fresh_id(), str(ledger), 100))])
        assert len(ledger.read_text().splitlines()) == 1
        assert decisions["Execute"] == 1
        assert answers <= {FIRST}
