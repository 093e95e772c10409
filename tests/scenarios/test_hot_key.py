from __future__ import annotations

import asyncio

from oncekey.core.decision import Execute, InProgress, Replay
from oncekey.engine.aio import AsyncEngine
from oncekey.engine.tuning import Tuning
from tests.engine.stubs import TERMS, Same, claim
from tests.scenarios.test_engines import LONG, attempt_on, completed

DUPLICATES, WAITING, OTHERS = 1000, 300, 60


async def test_other_keys_are_served_while_a_thousand_ask_for_one(store_url: str) -> None:
    """Whoever waits holds no connection: claims, answers and replays of other keys all end before the hot one does."""
    engine = AsyncEngine(store_url, Tuning(waiting=WAITING))
    try:
        hot = await engine.enter(claim("hot"), Same(), TERMS)
        assert isinstance(hot, Execute)
        asked = [
            asyncio.create_task(engine.enter(claim("hot"), Same(), TERMS, wait_for=LONG)) for _ in range(DUPLICATES)
        ]

        async def other(number: int) -> None:
            taken = await engine.enter(claim(f"other-{number}"), Same(), TERMS)
            assert isinstance(taken, Execute)
            await engine.settle(attempt_on(taken, LONG), completed(taken))
            assert isinstance(await engine.enter(claim(f"other-{number}"), Same(), TERMS), Replay)

        await asyncio.wait_for(asyncio.gather(*(other(number) for number in range(OTHERS))), LONG)
        # Those for whom there is no room are told to come later, at once; all others still wait.
        for told in asyncio.as_completed(asked, timeout=LONG):
            assert isinstance(await told, InProgress)
            if sum(task.done() for task in asked) >= DUPLICATES - WAITING:
                break
        await engine.settle(attempt_on(hot, LONG), completed(hot))
        ends = [type(decision) for decision in await asyncio.wait_for(asyncio.gather(*asked), LONG)]
        assert (ends.count(Replay), ends.count(InProgress)) == (WAITING, DUPLICATES - WAITING)
    finally:
        await engine.close()
