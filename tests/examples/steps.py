"""Where a process of the order service can be killed: before or after what it does, by name."""

from __future__ import annotations

import functools
import inspect
import os
import signal
import threading
from collections.abc import Callable
from typing import Any, NamedTuple

from examples.orders import shop, warehouse
from oncekey.client import Journal
from oncekey.effects.brokers.consumers.rabbitmq import RabbitConsumer
from oncekey.effects.brokers.publishers.rabbitmq import RabbitMQ
from oncekey.effects.on_psycopg import PsycopgLink
from oncekey.effects.outbox import Outbox, Relay, relay
from oncekey.effects.transaction.block import Block


class Step(NamedTuple):
    """A place in a process: after a function has returned, or before it begins."""

    role: str
    what: str
    owner: Any
    name: str
    after: bool

    def __str__(self) -> str:
        return f"{self.role}: {self.what}"


STEPS = (
    Step("customer", "the intent is on the disk, and nothing was sent", Journal, "sending", after=True),
    Step("customer", "the answer has come, and was not written down", Journal, "done", after=False),
    Step("shop", "the key is claimed", Block, "enter", after=True),
    Step("shop", "the order is written", shop, "insert", after=True),
    Step("shop", "the message is staged", Outbox, "stage", after=True),
    Step("shop", "all is written, and not committed", PsycopgLink, "close", after=False),
    Step("shop", "it is committed, and not answered", PsycopgLink, "close", after=True),
    Step("relay", "messages are taken, and not sent", relay, "send", after=False),
    Step("relay", "a message is confirmed, and not marked", RabbitMQ, "publish", after=True),
    Step("relay", "messages are marked", Relay, "_settle", after=True),
    Step("warehouse", "a message has come", RabbitConsumer, "_handle", after=False),
    Step("warehouse", "the shipment is written, and not committed", warehouse.ship.rules, "work", after=True),
    Step("warehouse", "it is committed, and not acknowledged", RabbitConsumer, "acknowledge", after=False),
    Step("warehouse", "it is acknowledged", RabbitConsumer, "acknowledge", after=True),
)
BY_NAME = {str(step): step for step in STEPS}


class Fuse:
    """Kills the process when it is at a step for the nth time."""

    def __init__(self, nth: int) -> None:
        self._left = nth
        self._lock = threading.Lock()

    def burn(self) -> None:
        with self._lock:
            self._left -= 1
            if self._left == 0:
                os.kill(os.getpid(), signal.SIGKILL)

    def put(self, step: Step) -> None:
        """Lay it at a step of this process."""
        setattr(step.owner, step.name, watched(getattr(step.owner, step.name), self.burn, after=step.after))


def watched(work: Callable[..., Any], burn: Callable[[], None], *, after: bool) -> Callable[..., Any]:
    """A function, an async function or a flow, with something that is done before it or after it."""
    before_it, after_it = (_nothing, burn) if after else (burn, _nothing)

    @functools.wraps(work)
    def plain(*args: Any, **kwargs: Any) -> Any:
        before_it()
        value = work(*args, **kwargs)
        after_it()
        return value

    @functools.wraps(work)
    def flow(*args: Any, **kwargs: Any) -> Any:
        before_it()
        value = yield from work(*args, **kwargs)
        after_it()
        return value

    @functools.wraps(work)
    async def awaited(*args: Any, **kwargs: Any) -> Any:
        before_it()
        value = await work(*args, **kwargs)
        after_it()
        return value

    if inspect.isgeneratorfunction(work):
        return flow
    return awaited if inspect.iscoroutinefunction(work) else plain


def _nothing() -> None:
    """The other side of a step."""
