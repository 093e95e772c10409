"""One candidate in a process and a virtual environment of its own.

    python -m bench.worker CANDIDATE STORE URL

Reads orders from its standard input, one JSON object a line, and answers each with one on its standard output:

    {"do": "run", "phase": "first" or "replay", "seed": "r1", "count": 500, "concurrency": 32}
    {"do": "trips"}                      {"do": "end"}
"""

from __future__ import annotations

import asyncio
import importlib
import json
import logging
import sys
from typing import Any

from bench.candidates import BY_NAME
from bench.floors import Floor, Running
from bench.traffic import Answered, Count, call, keys, paced, timed

PACE = ("seed", "clients", "pause", "seconds")


class Worker:
    """Carries out orders."""

    def __init__(self, running: Running, count: Count) -> None:
        self.running = running
        self.count = count

    async def run(self, order: dict[str, Any]) -> dict[str, Any]:
        """One phase of one round. What was executed belongs to the answer: a replay must not execute."""
        app = self.running.app
        if isinstance(app, Floor):
            app.replaying = order["phase"] == "replay"
        before = self.count.executions
        try:
            cost = await timed(app, keys(order["seed"], order["count"]), order["concurrency"])
        except Exception as wrong:  # noqa: BLE001 - whatever a candidate raises is its figure
            return {"broken": f"{type(wrong).__name__}: {wrong}"[:200]}
        return {"wall": cost.wall, "cpu": cost.cpu, "executions": self.count.executions - before}

    async def same(self, order: dict[str, Any]) -> dict[str, Any]:
        """Whether a replay has the bytes of the first answer."""
        [key] = keys(order["seed"], 1)
        try:
            return {"same": await call(self.running.app, key) == await call(self.running.app, key)}
        except Answered as wrong:
            return {"same": False, "broken": str(wrong)}

    async def paced(self, order: dict[str, Any]) -> dict[str, Any]:
        """First requests of clients that pause between two, for some seconds: what each took, in microseconds."""
        return {"times": await paced(self.running.app, **{name: order[name] for name in PACE})}

    async def trips(self, order: dict[str, Any]) -> dict[str, Any]:
        """Round trips so far, if the candidate counts them."""
        return dict(self.running.trips()) if self.running.trips is not None else {}

    async def serve(self) -> None:
        """Orders until the end."""
        loop = asyncio.get_running_loop()
        while line := await loop.run_in_executor(None, sys.stdin.readline):
            order = json.loads(line)
            if order["do"] == "end":
                break
            say(await getattr(self, order["do"])(order))
        if self.running.close is not None:
            await self.running.close()


def say(answer: dict[str, Any]) -> None:
    print(json.dumps(answer), flush=True)


async def main(name: str, store: str, url: str) -> None:
    logging.disable(logging.ERROR)
    module, _, function = BY_NAME[name].build.partition(":")
    count = Count()
    running = await getattr(importlib.import_module(f"bench.{module}"), function)(store, url, count)
    say({"ready": name})
    await Worker(running, count).serve()


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:4]))
