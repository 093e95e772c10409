"""What a handler may know and say about the operation it runs."""

from __future__ import annotations

from typing import TYPE_CHECKING

from oncekey.core.commands import Renewal
from oncekey.core.keys import derived_key, key_ref
from oncekey.core.policy import ms
from oncekey.core.record import State

if TYPE_CHECKING:
    from oncekey.engine.aio import AsyncEngine
    from oncekey.engine.attempt import Attempt
    from oncekey.engine.threaded import Engine


class Operation:
    """The operation at hand: in ASGI `scope["oncekey"]`, in WSGI `environ["oncekey.operation"]`."""

    def __init__(self, engine: Engine | AsyncEngine, attempt: Attempt, key: str) -> None:
        self._engine = engine
        self._attempt = attempt
        self.key = key

    @property
    def attempt(self) -> int:
        """Which attempt this is, counted from 1."""
        return self._attempt.number

    @property
    def ref(self) -> str:
        """A short name for logs, from which the key cannot be read."""
        return key_ref(self._attempt.id)

    @property
    def lost(self) -> str | None:
        """Why the lease was lost, or None while it is ours. Do not begin an effect once it is lost."""
        return self._attempt.lost

    def derived_key(self, step: str, length: int = 36) -> str:
        """A key for a call to somebody else: the same in every attempt, another for every step, unguessable length.

        Send it as the provider's own idempotency key, so that the provider deduplicates what we cannot.
        """
        return derived_key(self._attempt.id, step, length)

    def _begin(self) -> Renewal | None:
        if self._attempt.state is State.EXECUTING:
            return None
        attempt = self._attempt
        return Renewal(attempt.id, attempt.token, ms(attempt.lease_for), ms(attempt.cap_for), begin=True)


class ThreadOperation(Operation):
    """As threads use it."""

    _engine: Engine

    def begin(self) -> None:
        """Set the latch before the effect leaves (policy latch=True). LeaseLost: do nothing and end."""
        renewal = self._begin()
        if renewal is not None:
            self._engine.begin(self._attempt, renewal)
            self._attempt.state = State.EXECUTING


class AsyncOperation(Operation):
    """As asyncio uses it."""

    _engine: AsyncEngine

    async def begin(self) -> None:
        """Set the latch before the effect leaves (policy latch=True). LeaseLost: do nothing and end."""
        renewal = self._begin()
        if renewal is not None:
            await self._engine.begin(self._attempt, renewal)
            self._attempt.state = State.EXECUTING
