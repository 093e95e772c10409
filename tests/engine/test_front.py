from __future__ import annotations

import asyncio
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from oncekey.core.commands import Claim, Done, Settlement, Stale
from oncekey.core.decision import Decision, Execute, InProgress, Replay
from oncekey.core.policy import ms
from oncekey.core.record import State
from oncekey.engine.aio import AsyncEngine
from oncekey.engine.attempt import Attempt
from oncekey.engine.operation import AsyncOperation, ThreadOperation
from oncekey.engine.threaded import Engine
from oncekey.engine.tuning import Tuning
from oncekey.errors import LeaseLost, StoreUnavailable
from oncekey.stores.contract import MISSED
from oncekey.stores.memory import AsyncMemoryStore, MemoryStore
from tests.engine.stubs import TERMS, Same, Shaky, claim


def attempt_on(taken: Claim, decision: Decision, lease_for: float = 30.0) -> Attempt:
    assert isinstance(decision, Execute)
    return Attempt(decision, time.monotonic(), lease_for, 900.0, taken.state)


def completed(taken: Claim) -> Settlement:
    return Settlement(taken.id, taken.token, State.COMPLETED, b"out", 60_000)


@pytest.fixture(params=["direct", "batched"])
def store(request: pytest.FixtureRequest) -> Any:
    """The memory store, asked on the spot, and the same behind the combiner."""
    return MemoryStore() if request.param == "direct" else Shaky()


class InThread:
    """A store's asyncio colour for tests: every verb goes through a thread, as real ones wait."""

    def __init__(self, inner: Any) -> None:
        self.inner = inner
        self.url = inner.url

    def __getattr__(self, verb: str) -> Any:
        async def call(*args: Any, **options: Any) -> Any:
            return await asyncio.to_thread(getattr(self.inner, verb), *args, **options)

        return call


def async_engine(store: Any, **options: Any) -> AsyncEngine:
    engine = AsyncEngine(AsyncMemoryStore(store) if isinstance(store, MemoryStore) else InThread(store), **options)
    engine._writer = lambda: Engine(store)._writer() if isinstance(store, MemoryStore) else _writer(store)  # type: ignore[method-assign]
    engine.keeper._open_writer = engine._writer
    return engine


def _writer(store: Any) -> Any:
    from oncekey.engine.keeper import Writer

    return Writer(store.renew, store.settle)


async def test_first_runs_and_the_next_replays(store: Any) -> None:
    """The whole way round under asyncio: execute, settle, replay."""
    engine, first = async_engine(store), claim()
    decision = await engine.enter(first, Same(), TERMS)
    assert await engine.settle(attempt_on(first, decision), completed(first)) == Done()
    again = await engine.enter(claim(), Same(), TERMS)
    assert isinstance(again, Replay)
    assert again.record.outcome == b"out"


def test_first_runs_and_the_next_replays_under_threads(store: Any) -> None:
    """The whole way round under threads."""
    engine, first = Engine(store), claim()
    decision = engine.enter(first, Same(), TERMS)
    assert engine.settle(attempt_on(first, decision), completed(first)) == Done()
    again = engine.enter(claim(), Same(), TERMS)
    assert isinstance(again, Replay)
    assert again.record.outcome == b"out"


async def test_of_many_at_once_one_runs(store: Any) -> None:
    """Fifty duplicates at the same moment: one Execute, the others are told that it runs."""
    engine = async_engine(store)
    decisions = await asyncio.gather(*(engine.enter(claim(), Same(), TERMS) for _ in range(50)))
    assert sorted(type(decision).__name__ for decision in decisions) == ["Execute"] + ["InProgress"] * 49


async def test_a_held_duplicate_gets_the_first_answer(store: Any) -> None:
    """With a wait the duplicate is woken by the settlement, not by a poll."""
    engine, first = async_engine(store), claim()
    decision = await engine.enter(first, Same(), TERMS)
    held = asyncio.create_task(engine.enter(claim(), Same(), TERMS, wait_for=20))
    while not engine.waiting._wakers:
        await asyncio.sleep(0.001)
    await engine.settle(attempt_on(first, decision), completed(first))
    assert isinstance(await asyncio.wait_for(held, 10), Replay)


async def test_held_duplicates_look_for_themselves_when_news_may_have_been_missed(store: Any) -> None:
    """Another worker's notice was lost with the connection: all waiters look, and none sleeps on."""
    engine, first, other = async_engine(store), claim(), claim("other")
    decision = await engine.enter(first, Same(), TERMS)
    await engine.enter(other, Same(), TERMS)
    held = [asyncio.create_task(engine.enter(claim(name), Same(), TERMS, wait_for=20)) for name in ("k", "other")]
    while len(engine.waiting._wakers) < 2:
        await asyncio.sleep(0.001)
    waiting, engine.waiting.told = engine.waiting.told, lambda id_: None  # type: ignore[method-assign]
    assert isinstance(decision, Execute)
    await engine.settle(attempt_on(first, decision), completed(first))
    waiting(MISSED)
    assert isinstance(await asyncio.wait_for(held[0], 10), Replay)
    assert not held[1].done()
    held[1].cancel()
    await asyncio.wait(held)


def test_a_held_duplicate_gets_the_first_answer_under_threads(store: Any) -> None:
    """The same for threads."""
    engine, first = Engine(store), claim()
    decision = engine.enter(first, Same(), TERMS)
    with ThreadPoolExecutor(1) as pool:
        held = pool.submit(engine.enter, claim(), Same(), TERMS, 20)
        while not engine.waiting._wakers:
            threading.Event().wait(0.001)
        engine.settle(attempt_on(first, decision), completed(first))
        assert isinstance(held.result(10), Replay)


async def test_a_held_duplicate_runs_the_work_if_the_owner_did_nothing(store: Any) -> None:
    """The owner declared that nothing was done: the waiter takes the key instead of answering 409."""
    engine, first = async_engine(store), claim()
    decision = await engine.enter(first, Same(), TERMS)
    held = asyncio.create_task(engine.enter(claim(), Same(), TERMS, wait_for=20))
    while not engine.waiting._wakers:
        await asyncio.sleep(0.001)
    released = Settlement(first.id, first.token, State.FAILED_RETRYABLE, keep_for=60_000)
    await engine.settle(attempt_on(first, decision), released)
    taken = await asyncio.wait_for(held, 10)
    assert isinstance(taken, Execute)
    assert taken.attempt == 2


async def test_waiting_is_bounded_in_number(store: Any) -> None:
    """When all places are taken a duplicate is answered at once."""
    engine = async_engine(store, tuning=Tuning(waiting=1))
    await engine.enter(claim(), Same(), TERMS)
    held = asyncio.create_task(engine.enter(claim(), Same(), TERMS, wait_for=20))
    while not engine.waiting._wakers:
        await asyncio.sleep(0.001)
    assert isinstance(await asyncio.wait_for(engine.enter(claim(), Same(), TERMS, wait_for=20), 10), InProgress)
    held.cancel()
    await asyncio.wait([held])
    assert engine.waiting._count == 0


async def test_waiting_is_bounded_in_time(store: Any) -> None:
    """After its time the duplicate is told that the work still runs."""
    engine = async_engine(store)
    await engine.enter(claim(), Same(), TERMS)
    assert isinstance(await engine.enter(claim(), Same(), TERMS, wait_for=0.02), InProgress)


async def test_a_claim_that_may_have_been_granted_is_given_back() -> None:
    """The reply to the claim is lost: the caller gets an error, and the key is free for the retry soon after."""
    store = Shaky()
    engine, first = async_engine(store), claim()
    store.down, store.lose_replies = {"claim"}, True
    with pytest.raises(StoreUnavailable):
        await engine.enter(first, Same(), TERMS)
    store.down.clear()
    while not isinstance(await engine.enter(claim(), Same(), TERMS), Execute):
        await asyncio.sleep(0.01)


async def test_an_outcome_that_the_store_did_not_take_is_settled_later() -> None:
    """The store goes away after the effect: the caller is told, the record is completed when it is back."""
    store = Shaky()
    engine, first = async_engine(store), claim()
    decision = await engine.enter(first, Same(), TERMS)
    store.down = {"settle"}
    with pytest.raises(StoreUnavailable):
        await engine.settle(attempt_on(first, decision), completed(first))
    assert isinstance(await engine.enter(claim(), Same(), TERMS), InProgress)
    store.down.clear()
    while not isinstance(await engine.enter(claim(), Same(), TERMS), Replay):
        await asyncio.sleep(0.01)


async def test_a_stale_owner_changes_nothing_and_is_told() -> None:
    """A settlement with a token that is no longer current is refused and names what stands there."""
    engine, first = async_engine(MemoryStore()), claim()
    decision = await engine.enter(first, Same(), TERMS)
    await engine.settle(attempt_on(first, decision), completed(first))
    other = first._replace(token=b"another token...")
    written = await engine.settle(attempt_on(first, decision), completed(other))
    assert isinstance(written, Stale)
    assert written.found is not None
    assert written.found.record.token == first.token


@pytest.mark.parametrize("colour", ["threads", "asyncio"])
async def test_the_latch_is_set_once_and_refused_after_the_lease(colour: str) -> None:
    """begin() makes a claimed operation executing; without a lease it raises and the state stays."""
    now = [1_000]
    store = MemoryStore(clock=lambda: now[0])
    engine: Any = Engine(store) if colour == "threads" else AsyncEngine(AsyncMemoryStore(store))
    taken = claim(state=State.CLAIMED, lease_for=ms(1.0))

    async def call(value: Any) -> Any:
        return await value if asyncio.iscoroutine(value) else value

    attempt = attempt_on(taken, await call(engine.enter(taken, Same(), TERMS)))
    operation: Any = (ThreadOperation if colour == "threads" else AsyncOperation)(engine, attempt, "key")
    await call(operation.begin())
    await call(operation.begin())
    assert store.get(taken.id).record.state is State.EXECUTING  # type: ignore[union-attr]
    late = claim("late", state=State.CLAIMED, lease_for=ms(1.0))
    attempt = attempt_on(late, await call(engine.enter(late, Same(), TERMS)))
    now[0] += 60_000
    with pytest.raises(LeaseLost):
        await call((ThreadOperation if colour == "threads" else AsyncOperation)(engine, attempt, "key").begin())
    assert store.get(late.id).record.state is State.CLAIMED  # type: ignore[union-attr]


def test_derived_keys_are_stable_and_differ_by_step() -> None:
    """The same key for every attempt of a step, another for another step, in the provider's length."""
    taken = claim()
    first = attempt_on(taken, Execute(taken.id, b"1" * 16, 1, 1000))
    second = attempt_on(taken, Execute(taken.id, b"2" * 16, 2, 1000))
    engine = Engine(MemoryStore())
    keys = [ThreadOperation(engine, attempt, "key").derived_key("charge") for attempt in (first, second)]
    assert keys[0] == keys[1]
    assert keys[0] != ThreadOperation(engine, first, "key").derived_key("mail")
    assert len(ThreadOperation(engine, first, "key").derived_key("charge", 64)) == 64
