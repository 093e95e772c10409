"""Any plan and any wire make a store, in both colours.

A plan is pure: for one verb, a generator that yields what to execute (statements, commands) and reads the replies. A
wire is I/O: it runs one such generator on one connection, as one transaction where the database has them, and turns
the driver's errors into StoreError.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Generator, Sequence
from typing import Any, Protocol, TypeVar

from oncekey.core.commands import Claim, Claimed, Page, Purged, Renewal, Settlement, Swap, Written
from oncekey.core.record import Record, Seen, State
from oncekey.stores.contract import Finding, Listener, Wanted

T = TypeVar("T")
# What is yielded and sent back is between a plan and its own wire.
Steps = Generator[Any, Any, T]


class Plan(Protocol):
    """The verbs of the contract, as generators of steps."""

    def claim(self, many: Sequence[Claim]) -> Steps[list[Claimed]]: ...
    def settle(self, many: Sequence[Settlement]) -> Steps[list[Written]]: ...
    def renew(self, many: Sequence[Renewal]) -> Steps[list[Written]]: ...
    def swap(self, swap: Swap) -> Steps[Written]: ...
    def put(self, many: Sequence[Record]) -> Steps[list[Written]]: ...
    def get(self, id_: bytes) -> Steps[Seen | None]: ...
    def watch(self, id_: bytes) -> Steps[Seen | None]: ...
    def scan(self, wanted: Wanted, after: str | None, limit: int) -> Steps[Page]: ...
    def purge(self, limit: int) -> Steps[Purged]: ...
    def stats(self) -> Steps[dict[str, int | str]]: ...
    def migrate(self) -> Steps[list[str]]: ...
    def check(self) -> Steps[list[Finding]]: ...


class Wire(Protocol):
    """The I/O of one database, for threads."""

    def run(self, steps: Steps[T]) -> T: ...
    def listen(self, told: Callable[[bytes], None]) -> Listener: ...
    def close(self) -> None: ...


class AsyncWire(Protocol):
    """The I/O of one database, for asyncio. Listening is a thread's work in both colours."""

    async def run(self, steps: Steps[T]) -> T: ...
    def listen(self, told: Callable[[bytes], None]) -> Listener: ...
    async def close(self) -> None: ...


class PlannedStore:
    """A store for threads: see stores.contract for the verbs."""

    def __init__(self, url: str, plan: Plan, wire: Wire) -> None:
        self.url = url
        self.plan = plan
        self.wire = wire

    def claim(self, many: Sequence[Claim]) -> list[Claimed]:
        return self.wire.run(self.plan.claim(many))

    def settle(self, many: Sequence[Settlement]) -> list[Written]:
        return self.wire.run(self.plan.settle(many))

    def renew(self, many: Sequence[Renewal]) -> list[Written]:
        return self.wire.run(self.plan.renew(many))

    def swap(self, swap: Swap) -> Written:
        return self.wire.run(self.plan.swap(swap))

    def put(self, many: Sequence[Record]) -> list[Written]:
        return self.wire.run(self.plan.put(many))

    def get(self, id_: bytes) -> Seen | None:
        return self.wire.run(self.plan.get(id_))

    def watch(self, id_: bytes) -> Seen | None:
        return self.wire.run(self.plan.watch(id_))

    def scan(
        self,
        states: Sequence[State],
        *,
        due_before: int | None = None,
        undated: bool = False,
        after: str | None = None,
        limit: int = 100,
    ) -> Page:
        return self.wire.run(self.plan.scan(Wanted(tuple(states), due_before, undated), after, limit))

    def purge(self, limit: int = 500) -> Purged:
        return self.wire.run(self.plan.purge(limit))

    def stats(self) -> dict[str, int | str]:
        return self.wire.run(self.plan.stats())

    def migrate(self) -> list[str]:
        return self.wire.run(self.plan.migrate())

    def check(self) -> list[Finding]:
        return self.wire.run(self.plan.check())

    def listen(self, told: Callable[[bytes], None]) -> Listener:
        return self.wire.listen(told)

    def close(self) -> None:
        self.wire.close()


class AsyncPlannedStore:
    """A store for asyncio: the same plan over an awaited wire."""

    def __init__(self, url: str, plan: Plan, wire: AsyncWire) -> None:
        self.url = url
        self.plan = plan
        self.wire = wire

    async def claim(self, many: Sequence[Claim]) -> list[Claimed]:
        return await self.wire.run(self.plan.claim(many))

    async def settle(self, many: Sequence[Settlement]) -> list[Written]:
        return await self.wire.run(self.plan.settle(many))

    async def renew(self, many: Sequence[Renewal]) -> list[Written]:
        return await self.wire.run(self.plan.renew(many))

    async def swap(self, swap: Swap) -> Written:
        return await self.wire.run(self.plan.swap(swap))

    async def put(self, many: Sequence[Record]) -> list[Written]:
        return await self.wire.run(self.plan.put(many))

    async def get(self, id_: bytes) -> Seen | None:
        return await self.wire.run(self.plan.get(id_))

    async def watch(self, id_: bytes) -> Seen | None:
        return await self.wire.run(self.plan.watch(id_))

    async def scan(
        self,
        states: Sequence[State],
        *,
        due_before: int | None = None,
        undated: bool = False,
        after: str | None = None,
        limit: int = 100,
    ) -> Page:
        return await self.wire.run(self.plan.scan(Wanted(tuple(states), due_before, undated), after, limit))

    async def purge(self, limit: int = 500) -> Purged:
        return await self.wire.run(self.plan.purge(limit))

    async def stats(self) -> dict[str, int | str]:
        return await self.wire.run(self.plan.stats())

    async def migrate(self) -> list[str]:
        return await self.wire.run(self.plan.migrate())

    async def check(self) -> list[Finding]:
        return await self.wire.run(self.plan.check())

    async def listen(self, told: Callable[[bytes], None]) -> Listener:
        return await asyncio.to_thread(self.wire.listen, told)

    async def close(self) -> None:
        await self.wire.close()
