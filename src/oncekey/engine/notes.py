"""An attempt's journal as it is written: one write at a time, each with all that is known so far.

Two writes on their way at once could arrive in the other order, and the older one would undo the newer.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Coroutine
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from oncekey.core.commands import Renewal
from oncekey.core.journal import Journal, Step, pack_journal
from oncekey.core.keys import key_ref
from oncekey.core.policy import ms
from oncekey.engine.events import log
from oncekey.engine.sealing import Sealer
from oncekey.errors import ConfigurationError, OnceKeyError

if TYPE_CHECKING:
    from oncekey.engine.aio import AsyncEngine
    from oncekey.engine.attempt import Attempt
    from oncekey.engine.threaded import Engine

T = TypeVar("T")


class Entering(Protocol):
    """A call that is about to be made: engine.external."""

    def opens(self) -> Journal: ...
    def takes_back(self) -> None: ...


class Notes:
    """What this attempt has written down. `calling` are the calls under way, `ran` the steps that it has come to.

    `unnamed` are the calls that got their names from what they send, with the digest of that.
    """

    def __init__(self, attempt: Attempt, sealer: Sealer | None) -> None:
        self.attempt = attempt
        self.calling: set[str] = set()
        self.ran: set[str] = set()
        self.unnamed: dict[str, bytes | None] = {}
        self._sealer = sealer or Sealer()

    def renewal(self, journal: Journal, *, begin: bool) -> Renewal:
        """The write that keeps this journal. JournalFull: it is too large, and nothing was changed."""
        attempt = self.attempt
        sealed = self._sealer.seal(attempt.id, pack_journal(journal))
        attempt.journal = journal
        return Renewal(attempt.id, attempt.token, ms(attempt.lease_for), ms(attempt.cap_for), begin, sealed)

    def _kept(self, step: Step) -> Renewal:
        return self.renewal(self.attempt.journal.having(step), begin=False)

    def _again(self) -> Renewal | None:
        """All that is known, once more; None if it is too much."""
        try:
            return self.renewal(self.attempt.journal, begin=False)
        except OnceKeyError as error:
            self._unwritten(error)
            return None

    def _unwritten(self, error: OnceKeyError) -> None:
        # What it was about has happened, and goes into the record with the settlement if that is an open end.
        log.warning("a note of operation %s is not stored yet: %s", key_ref(self.attempt.id), error)


class ThreadNotes(Notes):
    """As threads write."""

    def __init__(self, engine: Engine, attempt: Attempt, sealer: Sealer | None) -> None:
        super().__init__(attempt, sealer)
        self._engine = engine
        self._writing = threading.Lock()

    def open(self, call: Entering) -> None:
        """Store that a call begins, with the latch."""
        with self._writing:
            journal = call.opens()
            try:
                self._engine.mark(self.attempt, self.renewal(journal, begin=True))
            except BaseException:
                call.takes_back()
                raise

    def keep(self, step: Step) -> None:
        """Store a step's result."""
        with self._writing:
            self._engine.mark(self.attempt, self._kept(step))

    def write(self) -> None:
        """Store what is known now; trouble is no reason to stop."""
        with self._writing:
            renewal = self._again()
            try:
                if renewal is not None:
                    self._engine.mark(self.attempt, renewal)
            except OnceKeyError as error:
                self._unwritten(error)


class AsyncNotes(Notes):
    """As asyncio writes."""

    def __init__(self, engine: AsyncEngine, attempt: Attempt, sealer: Sealer | None) -> None:
        super().__init__(attempt, sealer)
        self._engine = engine
        self._writing = asyncio.Lock()

    async def open(self, call: Entering) -> None:
        """Store that a call begins, with the latch."""
        async with self._writing:
            journal = call.opens()
            try:
                await self._engine.mark(self.attempt, self.renewal(journal, begin=True))
            except BaseException:
                call.takes_back()
                raise

    async def keep(self, step: Step) -> None:
        """Store a step's result."""
        async with self._writing:
            await self._engine.mark(self.attempt, self._kept(step))

    async def write(self) -> None:
        """Store what is known now; trouble is no reason to stop."""
        async with self._writing:
            renewal = self._again()
            try:
                if renewal is not None:
                    await self._engine.mark(self.attempt, renewal)
            except OnceKeyError as error:
                self._unwritten(error)


class BorrowedNotes:
    """The notes of an asyncio operation, written from a thread that its event loop has lent it to."""

    def __init__(self, notes: AsyncNotes, loop: asyncio.AbstractEventLoop) -> None:
        self._notes = notes
        self._loop = loop
        self.attempt, self.calling, self.ran, self.unnamed = notes.attempt, notes.calling, notes.ran, notes.unnamed

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        """Have it done on the loop, and wait for it."""
        if asyncio._get_running_loop() is self._loop:  # noqa: SLF001 - the public one raises where there is none
            work.close()
            raise ConfigurationError(
                "this would block the event loop: in async code await the operation itself, and use an async client; "
                "from_thread() is for functions that run in a worker thread"
            )
        return asyncio.run_coroutine_threadsafe(work, self._loop).result()

    def open(self, call: Entering) -> None:
        """Store that a call begins, with the latch."""
        self.run(self._notes.open(call))

    def keep(self, step: Step) -> None:
        """Store a step's result."""
        self.run(self._notes.keep(step))

    def write(self) -> None:
        """Store what is known now; trouble is no reason to stop."""
        self.run(self._notes.write())


__all__ = ["AsyncNotes", "BorrowedNotes", "Notes", "ThreadNotes"]
