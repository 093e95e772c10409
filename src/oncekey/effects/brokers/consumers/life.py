"""The life of a consumer, the same for every broker, under threads and asyncio: begin, work, begin again, stop.

What may yield is a generator that yields what its library returns: a value under threads, an awaitable under asyncio
(see effects/link.py). A broker's own file gives `open`, `step` and `close`, and says in `broker` who it speaks to.
"""

from __future__ import annotations

import asyncio
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Callable
from contextlib import suppress
from typing import Any, ClassVar

from oncekey.effects.brokers.consumers.backoff import BackOff
from oncekey.effects.brokers.consumers.keeping import TaskKeeper, ThreadKeeper
from oncekey.effects.brokers.consumers.signals import stopped_by_signals
from oncekey.effects.inbox import AsyncHandler, Handler
from oncekey.effects.inbox.rules import reason_of
from oncekey.effects.link import Flow, drive, drive_async
from oncekey.engine import events
from oncekey.engine.events import log
from oncekey.errors import ConfigurationError

AnyHandler = Handler | AsyncHandler
# How often the inbox is tidied: what is past its window forgotten, what an operator requeued run.
TIDY_EVERY = 30.0
# How much of each is done at a time, so that messages wait for neither.
TIDY_MOST = 20


def asking(handler: AnyHandler, *, awaited: bool) -> Callable[..., Any]:
    """How a consumer of this colour calls a handler; an inbox for threads serves asyncio from a thread."""
    if handler.awaited is awaited:
        return lambda function, *values: function(*values)
    if awaited:
        return asyncio.to_thread
    raise ConfigurationError(
        f"{handler.rules.called} is an async handler, and this consumer is for threads: make it a plain def of an "
        f"Inbox, or use a consumer for asyncio"
    )


def within(name: str, value: int, most: int) -> int:
    """A whole number from 1 to `most`, or a sentence."""
    if isinstance(value, bool) or not isinstance(value, int) or not 1 <= value <= most:
        raise ConfigurationError(f"{name}={value!r} makes no sense: write a whole number from 1 to {most}")
    return value


class Consumer(ABC):
    """What every consumer has. `run()` works until `stop()`, SIGTERM or SIGINT, and finishes what it has begun."""

    awaited: ClassVar[bool]
    keeper: ClassVar[type[ThreadKeeper | TaskKeeper]]
    # Whether the broker has partitions and offsets, which ordered mode needs.
    has_places: ClassVar[bool] = False
    tidy_every = TIDY_EVERY

    def __init__(self, handler: AnyHandler, broker: str) -> None:
        self.handler = handler
        self.broker = broker
        self.source = handler.rules.source
        self.stopping = False
        self.ask = asking(handler, awaited=self.awaited)
        self._tidy_at = 0.0
        if handler.rules.ordered and not self.has_places:
            raise ConfigurationError(
                f"{handler.rules.called} is in ordered mode, which needs partitions and offsets, and {broker} has "
                f"none: leave out ordered=True, and messages are known by their ids"
            )

    @abstractmethod
    def open(self) -> Any:
        """Reach the broker, compare the inbox with its settings, and ask for messages."""

    @abstractmethod
    def step(self) -> Any:
        """Wait a moment for messages, and see to those that came. Raises if the broker is lost."""

    @abstractmethod
    def close(self) -> Any:
        """Finish what was begun, leave, and let go. May be called when nothing is open."""

    @abstractmethod
    def wait(self, seconds: float) -> Any:
        """Wait, or until `stop`."""

    @abstractmethod
    def drive(self, flow: Flow[Any]) -> Any:
        """Run what is written for both colours."""

    def horizon(self, seconds: float | None) -> None:
        """Compare the window with how long the broker keeps messages (None: for ever)."""
        if not self.handler.rules.ordered:
            self.handler.inbox.choices.compare(seconds, self.broker)

    def patience(self, deliveries: int | None) -> None:
        """Warn if the broker gives a message up before the inbox would park it."""
        attempts = self.handler.inbox.choices.patience.attempts
        if deliveries is not None and 0 < deliveries < attempts + 1:
            log.warning(
                "%s gives a message up after %d deliveries, before the inbox parks it after %d attempts: let it "
                "deliver at least %d times, or more if handlers raise RedeliverLater",
                *(self.broker, deliveries, attempts, attempts + 1),
            )

    def trouble(self, error: Exception) -> None:
        """Say that the broker was lost."""
        reason = reason_of(error)
        log.warning("%s cannot be used now, and is tried again: %s", self.broker, reason)
        self.handler.inbox.choices.said.say(events.BROKER_LOST, detail=reason)


def life(consumer: Consumer) -> Flow[None]:
    """All of it. Every trouble but a wrong set-up is waited out."""
    pause = BackOff()
    checked = False
    while not consumer.stopping:
        try:
            if not checked:
                yield consumer.ask(consumer.handler.inbox.check)
                checked = True
            yield consumer.open()
            consumer.handler.rules.check_window()
            yield from _rounds(consumer, pause)
            yield consumer.close()
        except ConfigurationError:
            yield from _closed(consumer)
            raise
        except Exception as error:  # noqa: BLE001 - a broker or a database that is away comes back
            consumer.trouble(error)
            yield from _closed(consumer)
            yield consumer.wait(pause.next_for())
        except BaseException:
            yield from _closed(consumer)
            raise


def _rounds(consumer: Consumer, pause: BackOff) -> Flow[None]:
    while not consumer.stopping:
        yield from _tidy(consumer)
        yield consumer.step()
        pause.over()


def _closed(consumer: Consumer) -> Flow[None]:
    try:
        yield consumer.close()
    except Exception as error:  # noqa: BLE001 - it is lost already, and why was said
        log.info("%s was not left in good order: %s", consumer.broker, error)


def _tidy(consumer: Consumer) -> Flow[None]:
    now = time.monotonic()
    if now < consumer._tidy_at:  # noqa: SLF001 - the consumer's own clock
        return
    consumer._tidy_at = now + consumer.tidy_every  # noqa: SLF001
    try:
        yield from tidy(consumer.handler, consumer.ask)
    except Exception as error:  # noqa: BLE001 - the database is away: another time
        log.warning("the inbox could not be tidied: %s", error)


def tidy(handler: AnyHandler, ask: Callable[..., Any]) -> Flow[None]:
    """Run what an operator has requeued, and forget what is past the window, some of each."""
    for _ in range(TIDY_MOST):
        if (yield ask(handler.run_requeued)) is None:
            break
    for _ in range(TIDY_MOST):
        if not (yield ask(handler.inbox.purge)).more:
            break


class ThreadConsumer(Consumer):
    """A consumer that blocks its thread."""

    awaited = False
    keeper = ThreadKeeper

    def __init__(self, handler: AnyHandler, broker: str) -> None:
        super().__init__(handler, broker)
        self._stop = threading.Event()

    def run(self) -> None:
        """Work until `stop()`; in the main thread, also until SIGTERM or SIGINT."""
        with stopped_by_signals(self.stop):
            self.drive(life(self))

    def stop(self) -> None:
        """Let `run()` end once it has finished what it has begun. From any thread, or a signal handler."""
        self.stopping = True
        self._stop.set()

    def wait(self, seconds: float) -> None:
        self._stop.wait(seconds)

    def drive(self, flow: Flow[Any]) -> Any:
        return drive(flow)


class AsyncConsumer(Consumer):
    """A consumer on an event loop."""

    awaited = True
    keeper = TaskKeeper

    def __init__(self, handler: AnyHandler, broker: str) -> None:
        super().__init__(handler, broker)
        self._stop = asyncio.Event()
        self._loop: asyncio.AbstractEventLoop | None = None

    async def run(self) -> None:
        """Work until `stop()`; in the main thread, also until SIGTERM or SIGINT."""
        self._loop = asyncio.get_running_loop()
        with stopped_by_signals(self.stop):
            await self.drive(life(self))

    def stop(self) -> None:
        """Let `run()` end once it has finished what it has begun. From any thread, or a signal handler."""
        self.stopping = True
        if self._loop is not None:
            with suppress(RuntimeError):  # the loop is closed, and nothing runs
                self._loop.call_soon_threadsafe(self._stop.set)

    async def wait(self, seconds: float) -> None:
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._stop.wait()

    def drive(self, flow: Flow[Any]) -> Any:
        return drive_async(flow)
