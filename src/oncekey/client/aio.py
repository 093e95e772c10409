"""Driving a flow under asyncio (or anyio): waiting and writing to the disk never block the loop."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

from oncekey.client.exchange import Guard, Lost, Reply
from oncekey.client.machine import Send, Wait


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
            given = await send()
        elif isinstance(step, Wait):
            await sleep(step.seconds)
        else:
            await asyncio.to_thread(step.write)
