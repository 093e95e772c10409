"""OnceKey as its documentation installs it, all options at their defaults."""

from __future__ import annotations

import logging
from typing import Any

from bench.floors import Running
from bench.traffic import Count, starlette


async def oncekey(store: str, url: str, count: Count) -> Running:
    from oncekey import OnceKeyMiddleware, by_header

    # It says at its start that throw-away servers and memory lose records.
    logging.getLogger("oncekey").setLevel(logging.ERROR)
    guarded = OnceKeyMiddleware(starlette(count), url, scope=by_header("authorization"))
    await guarded.engine.store.migrate()

    def trips() -> dict[str, int]:
        batched: Any = guarded.engine._batched  # noqa: SLF001 - the bench counts what the engine sends
        return {"trips": batched.claims.batches + batched.settlements.batches, "requests": batched.claims.items}

    return Running(guarded, guarded.engine.close, trips)
