"""The queue of unknown outcomes, and a search for what no index knows."""

from __future__ import annotations

import pytest

from oncekey.core.record import State
from oncekey.errors import ConfigurationError
from oncekey.operations import queue, search
from oncekey.stores.memory import MemoryStore
from tests.operations.filled import claim, fill, settle


def found(store: MemoryStore, text: str, state: str = "open") -> set[str]:
    """The keys of what a search finds."""
    return {record.label.key for record in search(store, text, state).records}


def test_the_queue_is_in_the_order_of_its_times(store: MemoryStore) -> None:
    """The longest due first, then what is due later, page by page; dead letters and other states are not in it."""
    for number in (5, 3, 9, 1):
        settle(store, claim(store, f"k{number}"), State.UNKNOWN, due_for=number * 1000)
    settle(store, claim(store, "dead"), State.UNKNOWN)
    claim(store, "running")
    first = queue(store, limit=3)
    rest = queue(store, after=first.after, limit=3)
    assert [record.label.key for record in (*first.records, *rest.records)] == ["k1", "k3", "k5", "k9"]
    assert rest.after is None


def test_a_search_knows_all_names(store: MemoryStore) -> None:
    """A beginning of the id, the ref, the whole key, and parts of endpoint and note, in any case of letters."""
    made = fill(store)
    id_ = made["unknown"].id.hex()
    for text in (id_, id_[:7].upper(), f"ok_{id_[:12]}", "unknown", "timeouterror", " [RED]no "):
        assert found(store, text) == {"unknown"}, text
    assert found(store, "post /orders") == {"running", "lapsed", "unknown", "failed"}
    assert found(store, "unknow") == set()  # a part of a key finds nothing: keys are secrets
    assert found(store, id_[:5]) == set()
    assert (found(store, "completed"), found(store, "completed", "all")) == (set(), {"completed"})


def test_a_search_stops_and_goes_on(store: MemoryStore) -> None:
    """It looks at no more than it may, and says where it has come to."""
    for number in range(1100):
        settle(store, claim(store, f"k{number}"), State.UNKNOWN, due_for=1)
    last = max(store._records)
    key = store._records[last].label.key
    first = search(store, key, most=1000)
    assert (first.records, first.after is None) == ([], False)
    assert [record.id for record in search(store, key, after=first.after, most=1000).records] == [last]


def test_nothing_is_looked_for_by_nothing(store: MemoryStore) -> None:
    """An empty text would be found everywhere."""
    with pytest.raises(ConfigurationError, match="nothing to look for"):
        search(store, "  ")
