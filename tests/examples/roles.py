"""The four processes of the order service, as functions that a fresh process calls with its fuse already laid."""

from __future__ import annotations

import asyncio
import logging
import os
import signal
from pathlib import Path

import uvicorn

from examples.orders import customer, shop, warehouse
from oncekey.effects.brokers.publishers import open_publisher
from oncekey.effects.outbox import Pace, Relay
from tests.examples.steps import BY_NAME, Fuse

# Small batches have many steps, and what a dead relay had taken need not wait for long.
PACE = Pace(batch=5, lease_for=1.0)


def begin(role: str, step: str | None, nth: int, port: int, journal: str, count: int) -> None:
    """Be one of the processes, and die at the nth time of a step."""
    logging.disable(logging.WARNING)  # what is done to them is done on purpose
    if step is not None:
        Fuse(nth).put(BY_NAME[step])
    if role == "customer":
        customer.order(f"http://127.0.0.1:{port}", Path(journal), count)
    elif role == "shop":
        uvicorn.run(shop.app, host="127.0.0.1", port=port, log_level="critical")
    elif role == "relay":
        asyncio.run(_relay())
    else:
        asyncio.run(warehouse.main())


async def _relay() -> None:
    """As `oncekey relay` does it, but for the pace."""
    async with Relay(os.environ["DATABASE"], open_publisher(os.environ["BROKER"]), pace=PACE) as running:
        asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, running.stop)
        await running.run()
