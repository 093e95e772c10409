"""Work on FastAPI's threads, which are few and which nobody can stop."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import CancelledError, Future
from contextlib import suppress
from typing import Any, TypeVar

from fastapi.concurrency import run_in_threadpool

from oncekey.effects.link import Flow, drive, drive_async

T = TypeVar("T")


async def on_thread(work: Callable[[], T]) -> T:
    """Nobody can stop a thread, and what it works on must not be undone meanwhile: who is cancelled waits for it."""
    turn: Future[None] = Future()

    def taken() -> T:
        if not turn.set_running_or_notify_cancel():
            raise CancelledError
        try:
            return work()
        finally:
            turn.set_result(None)

    try:
        return await run_in_threadpool(taken)
    finally:
        if not (turn.cancel() or turn.done()):
            await _over(asyncio.wrap_future(turn))


async def ended(flow: Flow[T], *, awaited: bool) -> T:
    """Run the flow of an end. Whoever is cancelled meanwhile, when the client leaves: a commit is not left half way.

    A session that blocks gets a thread beside those of the endpoints, which may all be waiting for its connection.
    """
    task = asyncio.ensure_future(drive_async(flow) if awaited else asyncio.to_thread(drive, flow))
    try:
        return await asyncio.shield(task)
    finally:
        await _over(task)


async def _over(work: asyncio.Future[Any]) -> None:
    while not work.done():
        with suppress(asyncio.CancelledError):
            await asyncio.wait([work])
