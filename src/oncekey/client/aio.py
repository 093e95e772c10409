"""Driving a flow under asyncio (or anyio): waiting and writing to the disk never block the loop."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

from oncekey.client.exchange import Guard, Lost, Reply
from oncekey.client.machine import Send, Sent, Wait


async def run_async(
    guard: Guard,
    send: Callable[[], Awaitable[Reply | Lost]],
    sleep: Callable[[float], Awaitable[object]] = asyncio.sleep,
) -> Any:
    """Drive a flow."""
    flow = guard.flow()
    given: Reply | Lost | None = None
    while True:
        try:
            step = flow.send(given)
        except StopIteration as end:
            return end.value
        given = None
        if isinstance(step, Send):
            given = await _in_time(step, send)
        elif isinstance(step, Wait):
            await sleep(step.seconds)
        else:
            await asyncio.to_thread(step.write)


async def _in_time(step: Send, send: Callable[[], Awaitable[Reply | Lost]]) -> Reply | Lost:
    limit = asyncio.timeout(step.left)
    try:
        async with limit:
            return await send()
    except TimeoutError as error:
        if not limit.expired():
            raise
        return Lost(Sent.MAYBE, error)
