"""What engines, sweeps and purges tell beside the name of an event."""

from __future__ import annotations

import time
from typing import Any

import pytest

from oncekey.core.commands import Claim, Settlement
from oncekey.core.decision import Execute
from oncekey.core.keys import SHADOW
from oncekey.core.record import Label, State
from oncekey.engine import events
from oncekey.engine.aio import AsyncEngine
from oncekey.engine.attempt import Attempt
from oncekey.engine.events import Event, Events
from oncekey.engine.keeper import Writer
from oncekey.engine.threaded import Engine
from oncekey.errors import StoreUnavailable
from oncekey.operations import purge
from oncekey.stores.memory import MemoryStore
from oncekey.stores.open import open_async_store, open_store
from oncekey.testing import ManualClock
from tests.engine.stubs import TERMS, Same, Shaky, claim

LABEL = Label("c0ffee", "POST /pay", "key-1")


def ended(taken: Claim, execute: Execute, engine: Any) -> tuple[Attempt, Settlement]:
    """An attempt that runs, and how it ends."""
    attempt = Attempt(execute, time.monotonic(), 30.0, 900.0, taken.state)
    engine.keeper.keep(attempt)
    return attempt, Settlement(taken.id, taken.token, State.COMPLETED, b"out", 60_000)


@pytest.fixture
def url(tmp_path: Any) -> str:
    """A file, because a store that answers on the spot sends no batches."""
    made = f"sqlite:///{tmp_path}/oncekey.db"
    with_schema = open_store(made)
    with_schema.migrate()
    with_schema.close()
    return made


def check(heard: list[Event]) -> None:
    """The story of one operation, with its times."""
    created, done = (event for event in heard if event.name != events.BATCH)
    assert (created.name, created.scope, created.endpoint) == (events.CREATED, "c0ffee", "POST /pay")
    assert created.took_for is not None
    assert done.name == events.COMPLETED
    assert min(done.took_for or 0, done.ran_for or 0) > 0
    assert [(one.detail, one.size, one.ref) for one in heard if one.name == events.BATCH] == [
        ("claim", 1, ""),
        ("settle", 1, ""),
    ]


def test_an_engine_for_threads_tells_how_long_things_took(url: str) -> None:
    """The decision, the work and the settlement have their times, and the store's calls their sizes."""
    heard: list[Event] = []
    engine = Engine(url, sinks=(heard.append,))
    taken = claim()._replace(label=LABEL)
    decision = engine.enter(taken, Same(), TERMS)
    assert isinstance(decision, Execute)
    engine.settle(*ended(taken, decision, engine))
    engine.close()
    check(heard)


async def test_an_engine_for_asyncio_tells_the_same(url: str) -> None:
    """As above."""
    heard: list[Event] = []
    engine = AsyncEngine(open_async_store(url), sinks=(heard.append,))
    taken = claim()._replace(label=LABEL)
    decision = await engine.enter(taken, Same(), TERMS)
    assert isinstance(decision, Execute)
    await engine.settle(*ended(taken, decision, engine))
    await engine.close()
    check(heard)


def test_a_held_request_tells_how_long_it_was_held() -> None:
    """Being held is no part of how long a decision takes."""
    heard: list[Event] = []
    engine = Engine(MemoryStore(), sinks=(heard.append,))
    engine.enter(claim(), Same(), TERMS)
    engine.enter(claim(), Same(), TERMS, 0.01)
    assert [event.name for event in heard] == [events.CREATED, events.HELD, events.LET_GO, events.IN_PROGRESS]
    assert (heard[2].took_for or 0) > 0
    assert heard[3].took_for is None


def test_a_lease_that_a_request_finds_over_is_told() -> None:
    """It becomes unknown by that request's own write, and no sweep will tell of it any more."""
    heard: list[Event] = []
    clock = ManualClock()
    engine = Engine(MemoryStore(clock), sinks=(heard.append,))
    engine.enter(claim()._replace(label=LABEL), Same(), TERMS)
    clock.advance(31_000)
    engine.enter(claim(), Same(), TERMS)
    assert [event.name for event in heard[1:]] == [events.LAPSED, events.TURNED_UNKNOWN, events.UNKNOWN]
    assert (heard[1].scope, heard[1].detail) == ("c0ffee", "the lease ended while the work was running")


def test_a_purge_tells_what_it_swept_and_deleted() -> None:
    """A scheduler's purge moves the same counters as everybody else."""
    heard: list[Event] = []
    clock = ManualClock()
    store = MemoryStore(clock)
    store.claim([claim(), claim("shadow")._replace(label=Label("", f"{SHADOW}POST /pay"), state=State.CLAIMED)])
    clock.advance(31_000)
    purge(store, sinks=(heard.append,))
    clock.advance(10 * 86_400_000)
    purge(store, sinks=(heard.append,))
    assert [(event.name, event.size) for event in heard] == [
        (events.LAPSED, 1),
        (events.TURNED_UNKNOWN, 1),
        (events.PURGED, 1),
    ]


def test_nobody_is_told_where_nobody_listens() -> None:
    """Without a sink no event is made, and batches are not counted."""
    said = Events()
    assert said.counting("claim") is None
    assert said.tracer is None
    said.say("no such event", more="no such field")  # type: ignore[call-arg]


def test_an_outcome_that_was_owed_is_told_when_it_is_stored() -> None:
    """Else a record that became unknown, or was completed after all, would be in no figure."""
    heard: list[Event] = []
    store = Shaky()
    engine = Engine(store, sinks=(heard.append,))
    engine.keeper._open_writer = lambda: Writer(store.renew, store.settle)
    taken = claim()
    decision = engine.enter(taken, Same(), TERMS)
    assert isinstance(decision, Execute)
    store.down.add("settle")
    with pytest.raises(StoreUnavailable):
        engine.settle(*ended(taken, decision, engine))
    store.down.clear()
    engine.keeper.close()
    names = [event.name for event in heard if event.name not in (events.BATCH, events.STORE_ERROR)]
    assert names == [events.CREATED, events.SETTLE_OWED, events.COMPLETED]
