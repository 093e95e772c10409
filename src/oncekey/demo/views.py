"""What can be looked at: health, metrics, the provider's count, the latest requests, the OpenAPI document, the page."""

from __future__ import annotations

import os
from collections.abc import Awaitable, Callable, Iterator
from typing import NamedTuple
from urllib.parse import parse_qs

from oncekey.adapters.endpoint import AsgiEndpoint
from oncekey.demo.feed import Feed
from oncekey.demo.openapi import document
from oncekey.demo.page import pages
from oncekey.demo.provider import Provider
from oncekey.demo.settings import Settings
from oncekey.demo.web import json_answer, problem
from oncekey.http.messages import Reply, Request
from oncekey.operations import masked
from oncekey.stores.contract import AsyncStore
from oncekey.telemetry.counters import Counters
from oncekey.telemetry.metrics_page import MetricsPage

View = Callable[[Request], Awaitable[Reply]]

SHOWN = 40
NO_STORE = [(b"cache-control", b"no-store")]


class Views(NamedTuple):
    """The views, and what they look at."""

    settings: Settings
    provider: Provider
    counters: Counters
    feed: Feed
    store: Callable[[], AsyncStore]

    def by_path(self) -> Iterator[tuple[str, View]]:
        """Path and view of each."""
        yield "/healthz", self.health
        yield "/metrics", self.metrics
        yield "/__probe__/executions", self.executions
        yield "/__probe__/recent", self.recent
        whole = pages() | {"/openapi.json": json_answer(200, document())}
        for path, reply in whole.items():
            yield path, _always(reply)

    async def health(self, request: Request) -> Reply:
        """This worker answers."""
        return json_answer(200, {"status": "ok", "worker": os.getpid()}, NO_STORE)

    async def metrics(self, request: Request) -> Reply:
        """All workers' counters, added up, and what stands in the store."""
        return await AsgiEndpoint(MetricsPage(self.counters), self.store).reply(request)

    async def executions(self, request: Request) -> Reply:
        """How often the provider really acted for a ref."""
        refs = parse_qs(request.query.decode("latin-1")).get("ref", [])
        if len(refs) != 1:
            return problem(400, "Bad Request", "Name one ref: /__probe__/executions?ref=TOKEN")
        return json_answer(200, {"executions": await self.provider.executions(refs[0])}, NO_STORE)

    async def recent(self, request: Request) -> Reply:
        """What the start page shows: the latest requests, and the latest runs of the provider beside them."""
        total, runs = await self.provider.recent(SHOWN)
        value = {
            "store": masked(self.settings.store),
            "workers": self.settings.workers,
            "counters": {metric.name: count for metric, count in self.counters.totals().items() if not metric.labels},
            "requests": self.feed.latest(SHOWN),
            "executions": total,
            "runs": [run._asdict() for run in runs],
        }
        return json_answer(200, value, NO_STORE)


def _always(reply: Reply) -> View:
    async def view(request: Request) -> Reply:
        return reply

    return view
