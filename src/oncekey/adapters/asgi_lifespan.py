"""Start and stop: the store is checked before the application starts, and running work is waited for at its end."""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING

from oncekey.engine.events import log
from oncekey.errors import ConfigurationError, StoreError, StoreUnavailable
from oncekey.http.fitness import weigh

if TYPE_CHECKING:
    from oncekey.adapters.asgi import Message, OnceKeyMiddleware, Receive, Scope, Send

# How long work that its clients have left may run on at shutdown before it is cancelled, and so unknown.
GRACE_FOR = 25.0


async def lifespan(installed: OnceKeyMiddleware, scope: Scope, receive: Receive, send: Send) -> None:
    """Pass the lifespan messages through untouched; look at the store at start-up and drain at shutdown."""
    refused = False

    async def watched() -> Message:
        nonlocal refused
        message = await receive()
        if message["type"] == "lifespan.startup":
            try:
                await start(installed)
            except ConfigurationError as error:
                # Said by ourselves: servers take an exception alone for an application that knows no lifespan.
                refused = True
                await send({"type": "lifespan.startup.failed", "message": str(error)})
                raise
        elif message["type"] == "lifespan.shutdown":
            await drain(installed)
        return message

    async def told(message: Message) -> None:
        if not refused:
            await send(message)

    await installed.app(scope, watched, told)


async def start(installed: OnceKeyMiddleware) -> None:
    """Open what an earlier shutdown has closed, and look at the store; one that is away is looked at later."""
    installed.ending = False
    installed.reopen()
    try:
        await check(installed)
    except StoreError as error:
        log.error("the store cannot be reached yet, guarded requests are answered 503 until it can: %s", error)


async def check(installed: OnceKeyMiddleware) -> None:
    """Refuse to serve on a store that would lose or evict records; say warnings aloud."""
    if installed.ending:
        raise StoreUnavailable("this process is shutting down and takes no new work; nothing was run")
    weigh(await installed.engine.store.check())
    installed.checked = True


async def drain(installed: OnceKeyMiddleware) -> None:
    """Take no new work and wait for what runs; what does not end in time is cancelled, and recorded as unknown."""
    installed.ending, installed.checked = True, False
    grace_until = time.monotonic() + GRACE_FOR
    # Again and again: a claim that was under way when the shutdown came may still turn into work.
    while installed.running and (left := grace_until - time.monotonic()) > 0:
        await asyncio.wait(installed.running, timeout=left)
    late = set(installed.running)
    for task in late:
        task.cancel()
    if late:
        await asyncio.wait(late, timeout=installed.engine.tuning.store_for)
    await installed.engine.close()
