"""Two engines, as two workers have them, on one real store."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import pytest

from oncekey import OnceKeyMiddleware, by_header
from oncekey.core.commands import Settlement
from oncekey.core.decision import Decision, Execute, InProgress, Replay, Unknown
from oncekey.core.record import State
from oncekey.engine.aio import AsyncEngine
from oncekey.engine.attempt import Attempt
from oncekey.engine.threaded import Engine
from oncekey.stores.open import open_store
from tests.adapters.asgi_kit import Shop, call, http
from tests.engine.stubs import TERMS, Same, claim

LONG = 30.0


def completed(taken: Execute) -> Settlement:
    return Settlement(taken.id, taken.token, State.COMPLETED, b"out", 60_000)


def attempt_on(decision: Decision, lease_for: float) -> Attempt:
    assert isinstance(decision, Execute)
    return Attempt(decision, time.monotonic(), lease_for, 900.0, State.EXECUTING)


async def test_a_duplicate_held_by_another_worker_is_woken(store_url: str) -> None:
    """The first answer is stored by one engine; the other one's waiter gets it long before its time is up."""
    first, second = AsyncEngine(store_url), AsyncEngine(store_url)
    try:
        taken = await first.enter(claim("held"), Same(), TERMS)
        assert isinstance(taken, Execute)
        held = asyncio.create_task(second.enter(claim("held"), Same(), TERMS, wait_for=LONG))
        store = open_store(store_url)
        while not store.get(taken.id).record.waited:  # type: ignore[union-attr]
            await asyncio.sleep(0.005)
        store.close()
        await first.settle(attempt_on(taken, LONG), completed(taken))
        assert isinstance(await asyncio.wait_for(held, LONG / 2), Replay)
    finally:
        await first.close()
        await second.close()


def test_a_duplicate_held_by_another_worker_is_woken_under_threads(store_url: str) -> None:
    """The same between two threaded engines."""
    first, second = Engine(store_url), Engine(store_url)
    with ThreadPoolExecutor(1) as pool:
        taken = first.enter(claim("held"), Same(), TERMS)
        assert isinstance(taken, Execute)
        held = pool.submit(second.enter, claim("held"), Same(), TERMS, LONG)
        while not first.store.get(taken.id).record.waited:  # type: ignore[union-attr]
            threading.Event().wait(0.005)
        first.settle(attempt_on(taken, LONG), completed(taken))
        assert isinstance(held.result(LONG / 2), Replay)
    first.close()
    second.close()


async def test_a_blocked_event_loop_keeps_its_lease(store_url: str) -> None:
    """The loop stands still for three leases; the thread renews, and the outcome is taken as from a living owner."""
    engine, lease_for = AsyncEngine(store_url), 0.6
    taken = await engine.enter(claim("busy", lease_for=round(lease_for * 1000)), Same(), TERMS)
    attempt = attempt_on(taken, lease_for)
    engine.keeper.keep(attempt)
    time.sleep(lease_for * 3)  # noqa: ASYNC251 - blocking the loop is the point
    seen = await engine.store.get(attempt.id)
    assert seen is not None
    assert seen.record.state is State.EXECUTING
    assert seen.record.lease_until is not None
    assert seen.record.lease_until > seen.now
    assert attempt.alive
    await engine.settle(attempt, completed(taken))  # type: ignore[arg-type]
    await engine.close()


def test_a_lost_lease_turns_unknown_and_its_owner_may_still_tell_the_truth(store_url: str) -> None:
    """Nobody renews: the next request finds it unknown and runs nothing; the late owner's outcome is accepted."""
    engine = Engine(store_url)
    taken = engine.enter(claim("slow", lease_for=80), Same(), TERMS)
    assert isinstance(taken, Execute)
    decision = _when_over(lambda: engine.enter(claim("slow"), Same(), TERMS))
    assert isinstance(decision, Unknown)
    engine.settle(attempt_on(taken, 0.08), completed(taken))
    assert isinstance(engine.enter(claim("slow"), Same(), TERMS), Replay)
    engine.close()


def _when_over(ask: Callable[[], Decision]) -> Decision:
    """Ask until the lease is over."""
    deadline = time.monotonic() + 10
    while time.monotonic() < deadline:
        decision = ask()
        if not isinstance(decision, InProgress):
            return decision
        threading.Event().wait(0.02)
    raise AssertionError("the lease never ended")


async def test_round_trips_are_shared_under_concurrency(store_url: str) -> None:
    """At 64 concurrent requests a first request costs less than one round trip, and a replay less still."""
    app = OnceKeyMiddleware(Shop(), store_url, scope=by_header("authorization"))
    requests = 640

    async def client(number: int) -> None:
        for turn in range(requests // 64):
            assert (await call(app, http(b"key-%d-%d" % (number, turn)))).status == 201

    batched = app.engine._batched
    try:
        await asyncio.gather(*(client(number) for number in range(64)))
        first = batched.claims.batches + batched.settlements.batches
        await asyncio.gather(*(client(number) for number in range(64)))
        replays = batched.claims.batches + batched.settlements.batches - first
    finally:
        await app.engine.close()
    assert first < requests
    assert replays < requests / 2


@pytest.mark.parametrize("duplicates", [200])
async def test_a_storm_of_duplicates_has_one_effect(store_url: str, duplicates: int) -> None:
    """All at the same moment through two workers' middleware: one runs, the others are told or replay."""
    shop = Shop()
    apps = [OnceKeyMiddleware(shop, store_url, scope=by_header("authorization")) for _ in range(2)]
    try:
        answers = await asyncio.gather(*(call(apps[number % 2]) for number in range(duplicates)))
        again = await call(apps[1])
    finally:
        for app in apps:
            await app.engine.close()
    assert len(shop.effects) == 1
    assert {answer.status for answer in answers} <= {201, 409}
    assert again.body == b'{"n":1}'
    assert {answer.body for answer in answers if answer.status == 201} == {b'{"n":1}'}
