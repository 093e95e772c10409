"""Hot verbs without a task: a batch is sent in its caller's own step, and its answers come in a callback.

A batch that waits for a connection, or meets trouble, is a matter for the verbs themselves: nothing is repeated here.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Any, Protocol

from oncekey.core.commands import Claim, Settlement
from oncekey.stores.planned import AsyncPlannedStore, AsyncWire, Plan, Steps

# Called once, with the answers or with what went wrong.
Told = Callable[[Any], None]


class PostingWire(AsyncWire, Protocol):
    """One that can also be told what to do without anybody waiting for it."""

    def post(self, steps: Steps[Any], told: Told) -> bool: ...


class PostingStore(AsyncPlannedStore):
    """A store for asyncio whose hot verbs can be posted."""

    wire: PostingWire

    def __init__(self, url: str, plan: Plan, wire: PostingWire) -> None:
        super().__init__(url, plan, wire)

    def post_claims(self, many: Sequence[Claim], told: Told) -> bool:
        """As `claim`, but `told` is called with the answers or a StoreError. False: not now, and nothing was done."""
        return self.wire.post(self.plan.claim(many), told)

    def post_settlements(self, many: Sequence[Settlement], told: Told) -> bool:
        """As `settle`, in the same way."""
        return self.wire.post(self.plan.settle(many), told)


class Places(asyncio.Semaphore):
    """How many connections may be in use."""

    def take(self) -> bool:
        """Take one without waiting, if nobody waits and one is free."""
        if self.locked():
            return False
        self._value -= 1
        return True
