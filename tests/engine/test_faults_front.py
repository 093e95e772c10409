from __future__ import annotations

import asyncio
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from oncekey.core.commands import Settlement
from oncekey.core.decision import Execute, InProgress, Refused, Replay
from oncekey.core.flows import Terms
from oncekey.core.record import Guarantee, State, replace
from oncekey.engine.aio import AsyncEngine
from oncekey.engine.attempt import Attempt
from oncekey.engine.operation import Operation
from oncekey.engine.threaded import Engine
from oncekey.engine.waiting import Waiting
from oncekey.errors import ConfigurationError, StoreUnavailable
from oncekey.stores.memory import AsyncMemoryStore, MemoryStore
from tests.engine.stubs import TERMS, Same, Shaky, claim
from tests.engine.test_front import InThread, async_engine, attempt_on, completed


def stopped(engine: Any) -> None:
    """Take the keeper's thread away: the test looks at what is owed."""
    engine.keeper._thread = threading.current_thread()


class Held(InThread):
    """An asyncio store whose verbs wait at their start until they are let go."""

    def __init__(self, inner: Any) -> None:
        super().__init__(inner)
        self.go = asyncio.Event()
        self.verbs: list[str] = []

    def __getattr__(self, verb: str) -> Any:
        async def call(*args: Any, **options: Any) -> Any:
            self.verbs.append(verb)
            await self.go.wait()
            return getattr(self.inner, verb)(*args, **options)

        return call


async def test_an_outcome_is_stored_though_its_settlement_is_cancelled() -> None:
    """A time limit around the handler strikes while its outcome is on its way: it is stored all the same."""
    store = Held(Shaky())
    engine, first = AsyncEngine(store), claim()
    stopped(engine)
    store.go.set()
    attempt = attempt_on(first, await engine.enter(first, Same(), TERMS))
    store.go.clear()
    settling = asyncio.create_task(engine.settle(attempt, completed(first)))
    while "settle" not in store.verbs:
        await asyncio.sleep(0)
    settling.cancel()
    await asyncio.sleep(0)
    store.go.set()
    with pytest.raises(asyncio.CancelledError):
        await settling
    seen = store.inner.inner.get(first.id)
    assert seen.record.state is State.COMPLETED


async def test_an_outcome_is_owed_when_everything_is_cancelled() -> None:
    """All tasks are cancelled, lanes and all, and again: the outcome waits for the keeper."""
    store = Held(Shaky())
    engine, first = AsyncEngine(store), claim()
    stopped(engine)
    store.go.set()
    attempt = attempt_on(first, await engine.enter(first, Same(), TERMS))
    store.go.clear()
    settling = asyncio.create_task(engine.settle(attempt, completed(first)))
    while "settle" not in store.verbs:
        await asyncio.sleep(0)
    for _ in range(2):
        for task in asyncio.all_tasks() - {asyncio.current_task()}:
            task.cancel()
        for _ in range(5):
            await asyncio.sleep(0)
    assert settling.cancelled()
    assert engine.keeper.owes(first.token)


async def test_a_claim_that_is_given_back_cannot_be_entered_again() -> None:
    """Its work would run while the key is free for others: a new try needs a new token."""
    store = Shaky()
    engine, first = async_engine(store), claim()
    stopped(engine)
    store.down = {"claim"}
    with pytest.raises(StoreUnavailable):
        await engine.enter(first, Same(), TERMS)
    store.down.clear()
    with pytest.raises(StoreUnavailable, match="new token"):
        await engine.enter(first, Same(), TERMS)
    assert isinstance(await engine.enter(claim(), Same(), TERMS), Execute)


@pytest.mark.parametrize("colour", ["threads", "asyncio"])
async def test_a_late_request_that_was_held_is_still_late(colour: str) -> None:
    """What it waited for is forgotten when it looks again: it is refused, not run as new."""
    store = MemoryStore()
    engine: Any = Engine(store) if colour == "threads" else AsyncEngine(AsyncMemoryStore(store))
    first = claim()
    store.claim([first])

    def enter() -> Any:
        return engine.enter(claim(), Same(), TERMS, 20, late=True)

    held = asyncio.create_task(asyncio.to_thread(enter) if colour == "threads" else enter())
    while not engine.waiting._wakers:
        await asyncio.sleep(0.001)
    store._records.clear()
    engine.waiting.told(first.id)
    decision = await asyncio.wait_for(held, 10)
    assert isinstance(decision, Refused)
    assert decision.reason == "late"


async def test_a_held_request_that_gets_the_key_has_its_whole_lease() -> None:
    """The lease counts from when it was asked for, not from when the waiting began."""
    store = MemoryStore()
    engine, first = AsyncEngine(AsyncMemoryStore(store)), claim()
    store.claim([first])
    began = time.monotonic()
    held = asyncio.create_task(engine.enter(claim(lease_for=50), Same(), TERMS, wait_for=20))
    while not engine.waiting._wakers:
        await asyncio.sleep(0.001)
    await asyncio.sleep(0.06)
    store.settle([Settlement(first.id, first.token, State.FAILED_RETRYABLE, keep_for=60_000)])
    decision = await asyncio.wait_for(held, 10)
    assert isinstance(decision, Execute)
    attempt = Attempt(decision, began, 0.05, 900.0, State.EXECUTING)
    assert attempt.until >= began + 0.05 + 0.06


@pytest.mark.parametrize("colour", ["threads", "asyncio"])
async def test_a_key_that_became_free_before_the_waiting_is_taken_at_once(colour: str) -> None:
    """The owner failed between our look and our subscription: nobody will tell us, and nobody has to."""
    store = MemoryStore()
    engine: Any = Engine(store) if colour == "threads" else AsyncEngine(AsyncMemoryStore(store))
    first = claim()
    store.claim([first])
    watch = store.watch

    def late(id_: bytes) -> Any:
        store.settle([Settlement(first.id, first.token, State.FAILED_RETRYABLE, keep_for=60_000)])
        return watch(id_)

    store.watch = late  # type: ignore[method-assign]
    entering = engine.enter(claim(), Same(), TERMS, 5) if colour == "asyncio" else None
    began = time.monotonic()
    decision = await entering if entering else await asyncio.to_thread(engine.enter, claim(), Same(), TERMS, 5)
    assert isinstance(decision, Execute)
    assert decision.waited_for < 1000 * (time.monotonic() - began) + 2
    assert decision.waited_for < 4000


async def test_a_record_without_a_deadline_is_not_polled() -> None:
    """Only news, or the end of our own time, can end that wait."""
    store, looks = MemoryStore(), []
    engine, first = AsyncEngine(AsyncMemoryStore(store)), claim()
    store.claim([first])
    store._put(replace(store._records[first.id], lease_until=None))
    watch = store.watch

    def counted(id_: bytes) -> Any:
        looks.append(id_)
        return watch(id_)

    store.watch = counted  # type: ignore[method-assign]
    assert isinstance(await engine.enter(claim(), Same(), TERMS, wait_for=0.1), InProgress)
    assert len(looks) <= 2


def test_a_waiter_of_a_closed_loop_does_not_keep_the_news_from_the_others() -> None:
    """Its wake-up fails; whoever comes after it is woken, and whoever told is not disturbed."""
    waiting, woken = Waiting(10), []
    loop = asyncio.new_event_loop()
    loop.close()

    def wake() -> None:
        loop.call_soon_threadsafe(print)

    waiting.add(b"id", wake)
    waiting.add(b"id", lambda: woken.append(1))
    waiting.told(b"id")
    assert woken == [1]


def test_held_requests_of_two_loops_in_a_row_are_served() -> None:
    """Opening the subscription is locked for the loop at hand, not for the first one for ever."""
    engine = AsyncEngine(AsyncMemoryStore(MemoryStore()))

    async def once(name: str) -> None:
        first = claim(name)
        real, opened = engine.store.listen, asyncio.Event()

        async def slow(told: Any) -> Any:
            await opened.wait()
            return await real(told)

        engine.store.listen = slow  # type: ignore[method-assign]
        decision = await engine.enter(first, Same(), TERMS)
        held = [asyncio.create_task(engine.enter(claim(name), Same(), TERMS, wait_for=20)) for _ in range(2)]
        await asyncio.sleep(0.01)
        opened.set()
        while len(engine.waiting._wakers.get(first.id, [])) < 2:
            await asyncio.sleep(0.001)
        await engine.settle(attempt_on(first, decision), completed(first))
        assert [type(one) for one in await asyncio.gather(*held)] == [Replay, Replay]
        engine.store.listen = real  # type: ignore[method-assign]
        engine.waiting.close()

    asyncio.run(once("one"))
    asyncio.run(once("two"))


@pytest.mark.parametrize("state", [State.EXECUTING, State.CLAIMED])
def test_attempts_that_crash_count_too(state: State) -> None:
    """A lapsed attempt is not taken over once all attempts are used up."""
    now = [1_000]
    engine = Engine(MemoryStore(clock=lambda: now[0]))
    terms = Terms(keep_for=86_400_000, reconcile_after_for=5_000, attempts=2)
    decisions = []
    for _ in range(3):
        taken = claim(lease_for=100, state=state)._replace(guarantee=Guarantee.DEDUPLICATED_DOWNSTREAM)
        decisions.append(engine.enter(taken, Same(), terms))
        now[0] += 1_000
    assert [type(decision) for decision in decisions] == [Execute, Execute, Refused]


async def test_an_engine_whose_store_fails_to_close_still_closes_the_rest() -> None:
    """The keeper's trouble does not keep the store open."""
    store = Shaky()
    engine, closed = async_engine(store), []
    store.close = lambda: closed.append(1)  # type: ignore[attr-defined]
    engine.keeper.close = _broken  # type: ignore[method-assign]
    with pytest.raises(ZeroDivisionError):
        await engine.close()
    assert closed == [1]


def _broken() -> None:
    raise ZeroDivisionError


async def test_closing_twice_is_as_good_as_once() -> None:
    """A second installation on the same engine ends it again."""
    engine, first = async_engine(Shaky()), claim()
    await engine.settle(attempt_on(first, await engine.enter(first, Same(), TERMS)), completed(first))
    await engine.close()
    await engine.close()


def test_an_engine_leaves_no_file_open_behind_it(tmp_path: Path) -> None:
    """The keeper's own connection is closed with the engine."""
    engine, first = Engine(f"sqlite:///{tmp_path}/records.db"), claim(lease_for=60)
    attempt = attempt_on(first, engine.enter(first, Same(), TERMS), lease_for=0.06)
    engine.keeper.keep(attempt)
    until = attempt.until
    while attempt.until == until and attempt.lost is None:
        threading.Event().wait(0.001)
    engine.close()
    held = [str(link.readlink()) for link in Path("/proc/self/fd").iterdir() if link.is_symlink()]
    assert not [name for name in held if "records.db" in name]


def test_memory_does_not_grow_with_what_has_expired() -> None:
    """Nobody can purge this process's memory from outside: it does so by itself, now and then."""
    now = [1_000]
    store = MemoryStore(clock=lambda: now[0])
    for number in range(20_000):
        taken = claim(str(number))
        store.claim([taken])
        store.settle([Settlement(taken.id, taken.token, State.COMPLETED, b"out", 1_000)])
        now[0] += 1
    assert len(store._records) < 8_000


def test_memory_keeps_what_is_open_however_old() -> None:
    """Growing over its mark, it forgets only what may be purged."""
    now = [1_000]
    store = MemoryStore(clock=lambda: now[0])
    opened = claim("open")
    store.claim([opened])
    for number in range(6_000):
        now[0] += 100_000
        store.claim([claim(str(number))])
    assert store.get(opened.id) is not None
    assert len(store._records) == 6_001


@pytest.mark.parametrize("store", [None, Path("records.db"), 7])
@pytest.mark.parametrize("kind", [Engine, AsyncEngine])
def test_what_is_no_store_is_refused_at_once(kind: Any, store: Any) -> None:
    """Not at the first payment."""
    with pytest.raises(ConfigurationError, match="store="):
        kind(store)


def test_a_store_of_the_other_colour_is_refused_at_once() -> None:
    """Its claims would be made and never be seen."""
    with pytest.raises(ConfigurationError, match="asyncio"):
        AsyncEngine(Shaky())
    with pytest.raises(ConfigurationError, match="threads"):
        Engine(AsyncMemoryStore(MemoryStore()))  # type: ignore[arg-type]


def test_a_derived_key_does_not_depend_on_the_attempt() -> None:
    """The receiver deduplicates by it, also after a take-over."""
    keys = []
    for number in (1, 2):
        attempt = Attempt(Execute(b"i" * 20, bytes([number]) * 16, number, 1000), 0.0, 30.0, 900.0, State.EXECUTING)
        keys.append(Operation(Engine(MemoryStore()), attempt, "key").derived_key("charge"))
    assert keys[0] == keys[1]


def test_the_pool_of_waiting_threads_is_given_back() -> None:
    """Whatever ends a wait, its place is free again."""
    store = MemoryStore()
    engine = Engine(store)
    engine.enter(claim(), Same(), TERMS)

    def trouble(id_: bytes) -> Any:
        raise StoreUnavailable("refused")

    store.watch = trouble  # type: ignore[method-assign]
    with ThreadPoolExecutor(2) as pool, pytest.raises(StoreUnavailable):
        pool.submit(engine.enter, claim(), Same(), TERMS, 5).result(10)
    assert (engine.waiting._count, engine.waiting._wakers) == (0, {})
