"""The relay: takes what is due, sends it, and marks what the broker has confirmed. Any number may run side by side.

A message is leased while it is sent, in a transaction that has ended before the broker is spoken to. The leases of a
relay that is killed run out, and what it sent and did not mark is sent again under the same id: at least
once, never lost.
"""

from __future__ import annotations

import asyncio
import os
import random
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass
from types import TracebackType
from typing import Final, Self

from oncekey.effects.inbox.rules import Patience
from oncekey.effects.outbox import blocks
from oncekey.effects.outbox.blocks import Failure
from oncekey.effects.outbox.message import Outgoing
from oncekey.effects.outbox.places import place_of
from oncekey.effects.outbox.sending import Fates, Publisher, send
from oncekey.effects.outbox.statements import TABLE
from oncekey.engine import events
from oncekey.engine.events import Events, Sink, log
from oncekey.errors import BrokerUnavailable, ConfigurationError, MessageRefused, StoreUnavailable

# Notices wake the relay; this often it looks without one, for a notice may be lost (a pooler passes none on).
LOOK_EVERY: Final = 5.0
# The pause of a relay whose broker or database is away doubles from the first to the last.
FIRST_PAUSE, LAST_PAUSE = 0.2, 30.0
PURGE_EVERY: Final = 60.0
PURGE_MOST: Final = 1000
# Trying twelve times takes about two hours.
PATIENCE: Final = Patience(attempts=12, first_for=1.0, most_for=1800.0)
# What is left of a lease when the last message is begun: time to hear of it and to write it down.
_SHARE: Final = 3


@dataclass(frozen=True, slots=True)
class Report:
    """What one batch came to. `untried` went back at once; `trouble` says why nothing could be sent, or is empty."""

    taken: int = 0
    sent: int = 0
    refused: int = 0
    parked: int = 0
    untried: int = 0
    trouble: str = ""
    pause_for: float | None = None

    def __add__(self, other: Report) -> Report:
        """The two together; the trouble is the later one's."""
        return Report(
            self.taken + other.taken,
            self.sent + other.sent,
            self.refused + other.refused,
            self.parked + other.parked,
            self.untried + other.untried,
            other.trouble,
            other.pause_for,
        )


@dataclass(frozen=True, slots=True)
class Pace:
    """How a relay works: so many messages at a time, leased for so long, kept for so long after they were sent.

    `lease_for` is also how long messages of a relay that was killed wait. `keep_for=None` forgets nothing.
    """

    batch: int = 100
    lease_for: float = 30.0
    keep_for: float | None = 86_400.0
    store_for: float = 10.0

    def __post_init__(self) -> None:
        """Refuse what makes no sense."""
        if isinstance(self.batch, bool) or not isinstance(self.batch, int) or self.batch < 1:
            raise ConfigurationError(f"batch={self.batch!r} makes no sense: write a whole number of 1 or more")
        for name in ("lease_for", "keep_for", "store_for"):
            value = getattr(self, name)
            if value is None and name == "keep_for":
                continue
            if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value < float("inf"):
                raise ConfigurationError(f"{name}={value!r} makes no sense: write a number of seconds above 0")


class Relay:
    """Sends what has been committed into the outbox at `store` to `publisher`. For asyncio.

    async with Relay("postgresql://...", open_publisher("amqp://...")) as relay:
        await relay.run()
    """

    def __init__(
        self,
        store: str,
        publisher: Publisher,
        *,
        patience: Patience = PATIENCE,
        pace: Pace | None = None,
        table: str = TABLE,
        sinks: tuple[Sink, ...] = (),
    ) -> None:
        self.pace = pace or Pace()
        self.patience = patience
        self.publisher = publisher
        self.place = place_of(store, table, self.pace.store_for)
        self._said = Events(sinks)
        self._stop = asyncio.Event()
        self._pauses = 0
        self._purge_at = 0.0

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    async def check(self) -> None:
        """Refuse to begin without a table, or on a database that does not answer."""
        await self.place.together(blocks.check)

    async def run_once(self) -> Report:
        """Send one batch of what is due, and say what came of it. A broker that is away is in the report."""
        lease = os.urandom(9).hex()
        lease_for = round(self.pace.lease_for * 1000)
        taken = await self.place.together(lambda: blocks.claim(lease, lease_for, self.pace.batch))
        if not taken:
            return Report()
        fates = Fates()
        try:
            publish_for = self.pace.lease_for / _SHARE
            batch_for = self.pace.lease_for - publish_for
            await send(self.publisher, taken, fates, publish_for=publish_for, batch_for=batch_for)
        finally:
            # Cancelled or not, what was sent is marked, and what was not need not wait for the lease to run out.
            report = await asyncio.shield(asyncio.ensure_future(self._settle(lease, taken, fates)))
        return report

    async def run(self, told: Callable[[Report], None] = lambda report: None) -> Report:
        """Send until `stop` is called, and return the sum. A broker or database that is away is waited for.

        `told` hears of every batch that was taken, and of every trouble.
        """
        total = Report()
        while not self._stop.is_set():
            report = await self._batch()
            if report.taken or report.trouble:
                total += report
                told(report)
            if report.trouble:
                await self._rest(self._pause(report))
            elif report.taken:
                self._pauses = 0
            else:
                await self._idle()
        return total

    def stop(self) -> None:
        """Let `run` end when the batch at hand is settled. Call it from the relay's own loop."""
        self._stop.set()

    async def close(self) -> None:
        """Let go of broker and database."""
        try:
            await self.publisher.close()
        finally:
            await self.place.close()

    async def _batch(self) -> Report:
        try:
            return await self.run_once()
        except StoreUnavailable as error:
            return Report(trouble=str(error))

    async def _settle(self, lease: str, taken: list[Outgoing], fates: Fates) -> Report:
        failures = [self._failure(message, error) for message, error in fates.refused]
        untried = fates.untried(taken)
        await self.place.together(lambda: blocks.settle(lease, fates.sent, failures, untried))
        self._tell(fates, failures)
        parked = sum(failure.park for failure in failures)
        trouble = str(fates.down) if fates.down else ""
        pause_for = fates.down.after if fates.down else None
        return Report(len(taken), len(fates.sent), len(failures) - parked, parked, len(untried), trouble, pause_for)

    def _failure(self, message: Outgoing, error: MessageRefused) -> Failure:
        attempts = message.attempts + 1
        wait_for = error.after if error.after is not None else _jittered(self.patience.wait_for(attempts))
        return Failure(message, str(error), round(wait_for * 1000), error.final or self.patience.used_up(attempts))

    def _tell(self, fates: Fates, failures: list[Failure]) -> None:
        for message in fates.sent:
            self._said.say(events.OUTBOX_SENT, _digits(message))
        for failure in failures:
            name = events.OUTBOX_PARKED if failure.park else events.OUTBOX_LATER
            self._said.say(name, _digits(failure.message), failure.reason)
            if failure.park:
                log.error(
                    "message %s to %s is a dead letter now: %s",
                    failure.message.id,
                    failure.message.topic,
                    failure.reason,
                )
        if fates.down:
            self._said.say(events.BROKER_DOWN, detail=str(fates.down))

    def _pause(self, report: Report) -> float:
        self._pauses += 1
        wait_for = _jittered(min(LAST_PAUSE, FIRST_PAUSE * 2 ** min(self._pauses - 1, 30)))
        log.warning("nothing is sent for %.1f s: %s", max(wait_for, report.pause_for or 0), report.trouble)
        return max(wait_for, report.pause_for or 0)

    async def _idle(self) -> None:
        """Nothing was due: wait for a commit, for what is due next, or for the end."""
        try:
            await self._purge()
            due_in = await self.place.together(blocks.look)
            seconds = LOOK_EVERY if due_in is None else min(LOOK_EVERY, max(0, due_in) / 1000)
            if seconds:
                await self._until_stopped(self.place.news(seconds))
        except StoreUnavailable as error:
            await self._rest(self._pause(Report(trouble=str(error))))

    async def _purge(self) -> None:
        now = asyncio.get_running_loop().time()
        if self.pace.keep_for is None or now < self._purge_at:
            return
        keep_for = round(self.pace.keep_for * 1000)
        gone = await self.place.together(lambda: blocks.purge(keep_for, PURGE_MOST))
        # A full batch means that there is more: it goes on at the next quiet moment.
        self._purge_at = now if gone == PURGE_MOST else now + PURGE_EVERY

    async def _rest(self, seconds: float) -> None:
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._stop.wait()

    async def _until_stopped(self, waiting: Awaitable[None]) -> None:
        """Wait, but not longer than until `stop`."""
        news = asyncio.ensure_future(waiting)
        stopped = asyncio.ensure_future(self._stop.wait())
        try:
            await asyncio.wait((news, stopped), return_when=asyncio.FIRST_COMPLETED)
        finally:
            stopped.cancel()
            if not news.done():
                news.cancel()
            with suppress(asyncio.CancelledError):
                await news


def _jittered(seconds: float) -> float:
    """Between half of it and all of it, so that many do not come back together."""
    return seconds * random.uniform(0.5, 1.0)  # noqa: S311 - protects nothing


def _digits(message: Outgoing) -> bytes:
    return bytes.fromhex(message.id.replace("-", ""))


__all__ = ["BrokerUnavailable", "Pace", "Relay", "Report"]
