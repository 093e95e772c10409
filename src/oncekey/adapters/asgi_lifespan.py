"""Start and stop: the store is checked before the application starts, and running work is waited for at its end."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from oncekey.engine.events import log
from oncekey.errors import ConfigurationError, OnceKeyError, UnsafeStore

if TYPE_CHECKING:
    from oncekey.adapters.asgi import Message, OnceKeyMiddleware, Receive, Scope, Send

# How long work that its clients have left may run on at shutdown before it is cancelled, and so unknown.
GRACE_FOR = 25.0


async def lifespan(installed: OnceKeyMiddleware, scope: Scope, receive: Receive, send: Send) -> None:
    """Pass the lifespan messages through untouched; look at the store at start-up and drain at shutdown."""

    async def watched() -> Message:
        message = await receive()
        if message["type"] == "lifespan.startup":
            await check(installed)
            installed.checked = True
        elif message["type"] == "lifespan.shutdown":
            await drain(installed)
        return message

    await installed.app(scope, watched, send)


async def check(installed: OnceKeyMiddleware) -> None:
    """Refuse to start on a store that would lose or evict records; say warnings aloud."""
    try:
        findings = await installed.engine.store.check()
    except ConfigurationError:
        raise
    except OnceKeyError as error:
        log.error("the store cannot be reached yet, guarded requests are answered 503 until it can: %s", error)
        return
    for finding in findings:
        if finding.level == "refusal":
            raise UnsafeStore(f"{finding.what}: {finding.fix}")
        if finding.level == "warning":
            log.warning("%s: %s", finding.what, finding.fix)


async def drain(installed: OnceKeyMiddleware) -> None:
    """Wait for running work; what does not end in time is cancelled, and recorded as unknown."""
    if installed.running:
        _, late = await asyncio.wait(installed.running, timeout=GRACE_FOR)
        for task in late:
            task.cancel()
        if late:
            await asyncio.wait(late, timeout=installed.engine.tuning.store_for)
    await installed.engine.close()
