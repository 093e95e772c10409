"""OnceKey as its documentation installs it, all options at their defaults."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any

from bench.floors import Running
from bench.traffic import Count, starlette

if TYPE_CHECKING:
    from oncekey import Policy


async def oncekey(store: str, url: str, count: Count, policy: Policy | None = None) -> Running:
    from oncekey import OnceKeyMiddleware, by_header

    # It says at its start that throw-away servers and memory lose records.
    logging.getLogger("oncekey").setLevel(logging.ERROR)
    guarded = OnceKeyMiddleware(starlette(count), url, scope=by_header("authorization"), policy=policy)
    await guarded.engine.store.migrate()

    def trips() -> dict[str, int]:
        batched: Any = guarded.engine._batched  # noqa: SLF001 - the bench counts what the engine sends
        return {"trips": batched.claims.batches + batched.settlements.batches, "requests": batched.claims.items}

    return Running(guarded, guarded.engine.close, trips)


async def from_store(store: str, url: str, count: Count) -> Running:
    """The same, and every replay asks the store."""
    from oncekey import Policy

    return await oncekey(store, url, count, Policy(recall_for=None))
