"""FastStream's middleware, on real brokers: it is acknowledged after our commit, or not at all."""

from __future__ import annotations

import asyncio
import signal
import sys
import uuid
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from faststream.exceptions import NackMessage
from faststream.kafka import KafkaBroker
from faststream.middlewares import AckPolicy
from faststream.nats import NatsBroker
from faststream.rabbit import RabbitBroker

from oncekey.effects.brokers.consumers.faststream import AWAY_FOR, OnceMiddleware, _put_back
from oncekey.effects.inbox import AsyncInbox, Inbox, Later
from oncekey.errors import ConfigurationError
from tests.effects.brokers.faststream_app import Depot
from tests.effects.brokers.rigs import Rig, rig
from tests.effects.brokers.running import PATIENCE, ROOT, until
from tests.effects.inbox.places import Place, sqlite_place


@pytest.fixture(params=["rabbitmq", "nats"])
async def queue(request: pytest.FixtureRequest) -> Rig:
    """A queue or a stream of this test's own."""
    made = rig(request.param, request.getfixturevalue(f"{request.param}_server").url, f"q{uuid.uuid4().hex}")
    await made.create()
    return made


@pytest.fixture
def place(tmp_path: Path) -> Place:
    return sqlite_place(tmp_path / "depot.db")


def name_of(queue: Rig) -> str:
    return "nats" if "Nats" in type(queue).__name__ else "rabbitmq"


@asynccontextmanager
async def consuming(queue: Rig, place: Place, **chosen: Any) -> AsyncIterator[Depot]:
    """A depot at work."""
    depot = Depot(name_of(queue), queue.address, queue.queue, Path(place.url), **chosen)
    await depot.inbox.migrate()
    async with depot.broker:
        await depot.once.check(depot.broker)
        await depot.broker.start()
        yield depot


async def test_each_message_has_one_effect(queue: Rig, place: Place) -> None:
    """The handler writes in the inbox's transaction; what is sent twice has one effect, and one answer."""
    async with consuming(queue, place) as depot:
        for number in [*range(4), *range(4)]:
            await depot.send(str(number), f"id-{number}")
        await until(lambda: len(depot.answers) >= 4)
        await until(lambda: _none_left(queue))
        await depot.broker.publish("last", f"{queue.queue}.answers")
        await until(lambda: "last" in depot.answers)
    assert sorted(depot.answers) == ["0", "1", "2", "3", "last"]
    assert place.shipped() == ["0", "1", "2", "3"]
    assert len(depot.seen) == 4


async def test_killed_between_commit_and_acknowledgement(queue: Rig, place: Place) -> None:
    """The broker sends it again, and the inbox knows it: one effect."""
    async with consuming(queue, place) as depot:
        pass
    await queue.publish(["1"], b'{"number": "1"}')
    words = ["-m", "tests.effects.brokers.faststream_app", name_of(queue), queue.address, queue.queue, place.url]
    killed = await asyncio.create_subprocess_exec(sys.executable, *words, cwd=ROOT)
    assert await asyncio.wait_for(killed.wait(), PATIENCE) == -signal.SIGKILL
    assert place.shipped() == ["1"]
    async with consuming(queue, place) as depot:
        await until(lambda: _none_left(queue))
    assert (place.shipped(), depot.seen) == (["1"], [])


async def _none_left(queue: Rig) -> bool:
    return await queue.left() == 0


async def test_poison_is_parked_and_the_rest_goes_on(queue: Rig, place: Place) -> None:
    """After its attempts it is kept aside with its body, and acknowledged. FastStream runs it when it is sent again."""
    async with consuming(queue, place) as depot:
        depot.failing = {"bad": ValueError("no such address")}
        await depot.send("bad", "id-bad")
        await depot.send("1", "id-1")
        await until(lambda: _parked(depot))
        await until(lambda: place.shipped() == ["1"])
        (found,) = (await depot.inbox.parked()).parked
        assert (found.message_id, found.attempts, found.body) == ("id-bad", 2, b'{"number":"bad"}')
        (handler,) = depot.once._handlers.values()
        await depot.inbox.requeue(found.id)
        await handler.run_requeued()
        assert (await depot.inbox.parked()).parked[0].reason.endswith("publish it anew, and discard it here")
    assert await queue.left() == 0


async def _parked(depot: Depot) -> bool:
    return (await depot.inbox.count()).parked == 1


@pytest.mark.filterwarnings("ignore:The `ack_policy:RuntimeWarning")
@pytest.mark.parametrize("policy", [AckPolicy.ACK_FIRST, AckPolicy.MANUAL])
async def test_policies_that_acknowledge_before_the_commit_are_refused(
    queue: Rig, place: Place, policy: AckPolicy
) -> None:
    """When the application starts, before the first message is lost."""
    with pytest.raises(ConfigurationError, match=f"ack_policy={policy.name}, which acknowledges before the commit"):
        async with consuming(queue, place, ack_policy=policy):
            pass


def _of_threads() -> Any:
    return Inbox(lambda: None, redelivery_for=60)  # type: ignore[arg-type,return-value]


@pytest.mark.parametrize(
    ("make", "says"),
    [
        (lambda inbox: OnceMiddleware(_of_threads()), "give it an AsyncInbox"),
        (lambda inbox: OnceMiddleware(AsyncInbox(inbox.connect)), "write redelivery_for="),
        (lambda inbox: OnceMiddleware(inbox).handler(NatsBroker().subscriber("a")), "give it stream= and durable="),
        (lambda inbox: OnceMiddleware(inbox).handler(KafkaBroker().subscriber("a")), "this is a subscriber of kafka"),
    ],
)
def test_what_cannot_work_is_refused(make: Callable[[Any], Any], says: str) -> None:
    """Inboxes of the other colour, windows that nobody compared, and brokers that cannot take single messages back."""
    with pytest.raises(ConfigurationError, match=says):
        make(AsyncInbox(lambda: None, redelivery_for=60))  # type: ignore[arg-type,return-value]


async def test_a_message_that_waits_is_held_or_delayed(monkeypatch: pytest.MonkeyPatch) -> None:
    """NATS is told for how long; RabbitMQ would give it back at once, so it is held, but not longer than it allows."""
    waits: list[float] = []

    async def sleep(seconds: float) -> None:
        waits.append(seconds)

    monkeypatch.setattr("asyncio.sleep", sleep)
    assert vars(await _put_back("nats", Later(5000.0, "closed")))["extra_options"] == {"delay": 5000.0}
    assert vars(await _put_back("rabbit", Later(5000.0, "closed")))["extra_options"] == {}
    assert waits == [900.0]


async def test_what_goes_wrong_around_the_inbox_loses_no_message(monkeypatch: pytest.MonkeyPatch) -> None:
    """FastStream would reject it, and RabbitMQ drop it: it is given back instead, after a while."""
    waits: list[float] = []

    async def sleep(seconds: float) -> None:
        waits.append(seconds)

    monkeypatch.setattr("asyncio.sleep", sleep)
    once = OnceMiddleware(AsyncInbox(lambda: None, redelivery_for=60))  # type: ignore[arg-type,return-value]
    subscriber = RabbitBroker().subscriber("orders")
    with pytest.raises(NackMessage):
        await once.deliver(print, SimpleNamespace(raw_message=None), {"handler_": subscriber})
    assert waits == [AWAY_FOR]
