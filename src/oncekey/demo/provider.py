"""The simulated payment provider. It acts when it is asked to, every time: it is not the one that deduplicates.

The effect lands first and is written to the provider's ledger; then comes the delay, then the answer or the failure.
So a worker that is killed during the delay leaves an effect of which nobody was told.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import os
import sqlite3
import time
from collections.abc import Callable
from typing import Any, TypeVar

from oncekey.demo.ledger import Cancelled, Entry, Ledger, Made, Run, Sent
from oncekey.demo.marks import Marks
from oncekey.errors import NotExecuted, OutcomeUnknown

T = TypeVar("T")
Told = dict[str, Any]


class ProviderFailed(Exception):
    """The provider had begun, and then failed with this status."""

    def __init__(self, status: int) -> None:
        super().__init__(f"the provider failed with {status} after it had begun")
        self.status = status


class Provider:
    """The provider, as one worker reaches it."""

    def __init__(self, ledger: Ledger) -> None:
        self.ledger = ledger

    async def act(
        self, deed: tuple[str, str], caller: str, marks: Marks, object_: str, told: Told, reference: str = ""
    ) -> Told:
        """Do it: `deed` is the API and the kind of thing done, `told` what a success tells. Raises ProviderFailed.

        `reference` is the caller's own name for this attempt, under which it can be cancelled and looked up.
        """
        api, kind = deed
        entry = Entry(
            ref=marks.ref,
            api=api,
            kind=kind,
            caller=digest(caller),
            object=object_,
            told=json.dumps(told),
            begun_at=time.time_ns() // 1_000_000,
            delay_for=marks.delay_for,
            fails_with=marks.fail,
            worker=os.getpid(),
        )
        try:
            entry = await self._asked(lambda: self.ledger.begin(entry, marks.fail_once, reference))
        except Cancelled as shut:
            raise NotExecuted("the provider was told to cancel this attempt, and has done nothing") from shut
        if entry.delay_for:
            await asyncio.sleep(entry.delay_for / 1000)
        if entry.fails_with is not None:
            raise ProviderFailed(entry.fails_with)
        return told

    async def find(self, object_: str, kind: str, caller: str) -> Told | None:
        """A caller's object of a kind."""
        told = await self._asked(lambda: self.ledger.found(object_, kind, digest(caller)))
        return json.loads(told) if told is not None else None

    async def cancel(self, reference: str) -> str:
        """Refuse this attempt from now on, unless it was run already; the provider's word for that."""
        await self._asked(lambda: self.ledger.cancel(reference))
        return f"void-{reference}"

    async def run_of(self, reference: str) -> Made | None:
        """What was run under a caller's reference."""
        return await self._asked(lambda: self.ledger.made(reference))

    async def sent(self, ref: str) -> Sent | None:
        """What it would tell of its latest run for a ref, if that was made under a reference and did not fail."""
        return await self._asked(lambda: self.ledger.sent(ref))

    async def executions(self, ref: str) -> int:
        """How often it acted for a ref."""
        return await self._asked(lambda: self.ledger.executions(ref))

    async def recent(self, limit: int) -> tuple[int, list[Run]]:
        """How often it has acted in all, and its latest runs."""
        return await self._asked(lambda: self.ledger.recent(limit))

    async def _asked(self, question: Callable[[], T]) -> T:
        try:
            return await asyncio.get_running_loop().run_in_executor(self.ledger.thread, question)
        except sqlite3.Error as error:
            # A commit that failed may have happened all the same.
            raise OutcomeUnknown(f"the provider's ledger cannot be used: {error}") from error


def digest(caller: str) -> bytes:
    """Who called, without the credential."""
    return hashlib.sha256(caller.encode()).digest()[:16]
