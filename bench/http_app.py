"""A candidate behind a real server: `uvicorn --factory bench.http_app:made`, its words in the environment."""

from __future__ import annotations

import importlib
import logging
import os
from typing import Any

from bench.candidates import BY_NAME
from bench.floors import Floor
from bench.traffic import Count

NAME, STORE, URL, PHASE = "BENCH_CANDIDATE", "BENCH_STORE", "BENCH_URL", "BENCH_PHASE"


class Late:
    """The candidate, built in the server's own event loop when its lifespan begins."""

    def __init__(self) -> None:
        self.app: Any = None

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] != "lifespan":
            await self.app(scope, receive, send)
            return
        await receive()
        module, _, function = BY_NAME[os.environ[NAME]].build.partition(":")
        build = getattr(importlib.import_module(f"bench.{module}"), function)
        running = await build(os.environ[STORE], os.environ[URL], Count())
        self.app = running.app
        if isinstance(self.app, Floor):
            self.app.replaying = os.environ[PHASE] == "replay"
        await send({"type": "lifespan.startup.complete"})
        await receive()
        if running.close is not None:
            await running.close()
        await send({"type": "lifespan.shutdown.complete"})


def made() -> Late:
    logging.disable(logging.ERROR)
    return Late()
