"""What all consumers share, where no broker is needed to see it."""

from __future__ import annotations

import asyncio
import signal
import threading
from pathlib import Path
from typing import Any

import aiosqlite
import pytest

from oncekey.effects.brokers.consumers.backoff import BackOff
from oncekey.effects.brokers.consumers.life import AsyncConsumer, ThreadConsumer
from oncekey.effects.brokers.consumers.rabbitmq import RabbitConsumer
from oncekey.effects.brokers.consumers.reading import id_in, texts
from oncekey.effects.inbox import AsyncInbox, Inbox
from oncekey.errors import ConfigurationError, SchemaMissing
from tests.effects.brokers.running import shop
from tests.effects.inbox.places import sqlite_place


class Story(ThreadConsumer):
    """A broker that does what it is told, and what was asked of it."""

    def __init__(self, handler: Any, *, opens: tuple[Exception | None, ...] = (), steps: int = 1) -> None:
        super().__init__(handler, "the broker of a test")
        self.told: list[str] = []
        self.opens = list(opens)
        self.steps = steps

    def open(self) -> None:
        self.told.append("open")
        if self.opens and (trouble := self.opens.pop(0)):
            raise trouble

    def step(self) -> None:
        self.told.append("step")
        self.steps -= 1
        if not self.steps:
            self.stop()

    def close(self) -> None:
        self.told.append("close")

    def wait(self, seconds: float) -> None:
        self.told.append("wait")


class Loop(AsyncConsumer):
    """The same on an event loop; it ends when it is stopped."""

    async def open(self) -> None: ...

    async def step(self) -> None:
        await self.wait(30)

    async def close(self) -> None:
        self.closed = True


def test_trouble_is_waited_out(tmp_path: Path) -> None:
    """Whatever goes wrong with the broker, it is left in order and tried again; what was told stays told."""
    ours = shop(tmp_path)
    story = Story(ours.handler, opens=(OSError("refused"), RuntimeError("odd"), None), steps=2)
    story.run()
    assert story.told == ["open", "close", "wait"] * 2 + ["open", "step", "step", "close"]
    assert ours.events["broker_lost"] == 2


def test_a_wrong_set_up_ends_it(tmp_path: Path) -> None:
    """Waiting would not help."""
    story = Story(shop(tmp_path).handler, opens=(ConfigurationError("no"),))
    with pytest.raises(ConfigurationError, match="no"):
        story.run()
    assert story.told == ["open", "close"]


def test_an_inbox_without_tables_is_refused(tmp_path: Path) -> None:
    """Before the first message is taken from the broker."""
    inbox = Inbox(sqlite_place(tmp_path / "empty.db").connect, redelivery_for=60)
    story = Story(inbox.once("orders")(lambda message: None))
    with pytest.raises(SchemaMissing, match="migrate"):
        story.run()
    assert story.told == ["close"]


def test_a_window_that_nobody_compared_is_refused(tmp_path: Path) -> None:
    """Neither the user nor the broker has said for how long a message may come again."""
    story = Story(shop(tmp_path, redelivery_for=None).handler)
    with pytest.raises(ConfigurationError, match="write redelivery_for="):
        story.run()


def test_a_dead_database_does_not_end_it(tmp_path: Path) -> None:
    """Tidying is for another time, and messages come again."""
    ours = shop(tmp_path)
    story = Story(ours.handler, steps=3)
    story.tidy_every = 0
    ours.place.change("DROP TABLE oncekey_inbox")
    story.ask = lambda function, *values: None if function == ours.inbox.check else function(*values)
    story.run()
    assert story.told == ["open", "step", "step", "step", "close"]


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
async def test_a_signal_stops_all_consumers_of_a_process(tmp_path: Path, number: signal.Signals) -> None:
    """Once; the handlers of before are there again, for whoever wants it to end at once."""
    before = signal.getsignal(number)
    consumers = [Loop(shop(tmp_path, consumer=name).handler, "a broker") for name in "ab"]
    tasks = [asyncio.create_task(one.run()) for one in consumers]
    while signal.getsignal(number) is before:
        await asyncio.sleep(0)
    await asyncio.sleep(0.05)
    signal.raise_signal(number)
    assert signal.getsignal(number) is before
    await asyncio.wait_for(asyncio.gather(*tasks), 10)
    assert all(one.closed for one in consumers)


async def test_a_consumer_that_is_cancelled_leaves_in_order(tmp_path: Path) -> None:
    """Cancelling is no way around closing."""
    consumer = Loop(shop(tmp_path).handler, "a broker")
    task = asyncio.create_task(consumer.run())
    await asyncio.sleep(0.05)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert consumer.closed


def test_other_threads_hear_no_signals(tmp_path: Path) -> None:
    """A consumer in a thread of yours leaves the signals of the process alone."""
    story = Story(shop(tmp_path).handler)
    before = signal.getsignal(signal.SIGTERM)
    thread = threading.Thread(target=story.run)
    thread.start()
    thread.join()
    assert story.told[-1] == "close"
    assert signal.getsignal(signal.SIGTERM) is before


def test_waits_grow_and_differ() -> None:
    """Up to a limit, less a random part, and from the start again once it works."""
    backoff = BackOff(1, 8)
    waits = [backoff.next_for() for _ in range(6)]
    assert all(most / 2 <= wait <= most for wait, most in zip(waits, [1, 2, 4, 8, 8, 8], strict=True))
    assert len(set(waits[3:])) > 1
    backoff.over()
    assert backoff.next_for() <= 1


def test_what_cannot_work_is_refused_when_it_is_made(tmp_path: Path) -> None:
    """Async handlers under threads, ordered mode without offsets, and odd numbers."""
    inbox = AsyncInbox(lambda: aiosqlite.connect(tmp_path / "a.db"), keep_for=None)

    @inbox.once("orders")
    async def ship(message: Any) -> None: ...

    with pytest.raises(ConfigurationError, match="use a consumer for asyncio"):
        Story(ship)
    with pytest.raises(ConfigurationError, match="leave out ordered=True"):
        Story(shop(tmp_path, ordered=True).handler)
    for prefetch in (0, True, "3", 65_536):
        with pytest.raises(ConfigurationError, match="whole number from 1 to 65535"):
            RabbitConsumer(ship, "amqp://broker.example/", "orders", prefetch=prefetch)  # type: ignore[arg-type]


def test_ids_are_found_where_producers_put_them() -> None:
    """Our own header first, in any spelling, then the broker's names, in their order."""
    headers = texts([("OnceKey-Id", b"1"), ("n", 7), (b"none", None)])
    assert headers == {"OnceKey-Id": "1", "n": "7"}
    assert id_in(headers, "2") == "1"
    assert id_in({}, "", b"3", "4") == "3"
    assert id_in({"oncekey-id": ""}, None) is None
