"""What every consumer must do, whatever its broker. A broker's own file of tests gives `name` and `address`."""

from __future__ import annotations

import signal
import time
import uuid
from pathlib import Path
from typing import ClassVar

import pytest

from oncekey.effects.inbox import Patience
from oncekey.errors import RedeliverLater
from tests.effects.brokers.rigs import Rig, rig
from tests.effects.brokers.running import child, running, shop, until


class EveryConsumer:
    """Subclasses say which broker, and give a fixture `address`."""

    name: ClassVar[str]

    @pytest.fixture
    async def rig(self, address: str) -> Rig:
        """An empty queue."""
        made = rig(self.name, address, f"q{uuid.uuid4().hex}")
        await made.create()
        return made

    async def test_each_is_handled_once_and_acknowledged(self, rig: Rig, tmp_path: Path) -> None:
        """Whatever a producer sends twice under one id has one effect, and nothing is left at the broker."""
        ours = shop(tmp_path)
        await rig.publish([str(number) for number in range(10)] * 2)
        async with running(rig.consumer(ours.handler)):
            await until(lambda: ours.events["message_duplicate"] == 10)
        assert await rig.left() == 0
        assert ours.shipped == sorted(str(number) for number in range(10))

    async def test_killed_between_commit_and_acknowledgement(self, rig: Rig, tmp_path: Path) -> None:
        """The broker sends it again, and the inbox knows it: one effect."""
        ours = shop(tmp_path)
        await rig.publish(["1"])
        async with child(self.name, rig, tmp_path / "shop.db", "ack") as killed:
            assert await killed.ended() == -signal.SIGKILL
        assert ours.shipped == ["1"]
        async with running(rig.consumer(ours.handler)):
            await until(lambda: ours.events["message_duplicate"] == 1)
        assert await rig.left() == 0
        assert (ours.shipped, ours.seen) == (["1"], [])

    async def test_two_consumers_share_the_work(self, rig: Rig, tmp_path: Path) -> None:
        """In one group, and under redeliveries, each message has one effect."""
        ours = shop(tmp_path)
        wanted = [f"{number:02}" for number in range(30)]
        await rig.publish(wanted)
        async with running(rig.consumer(ours.handler), rig.consumer(ours.handler)):
            await until(lambda: len(ours.shipped) >= 30)
        if rig.tells_late and await rig.left():
            async with running(rig.consumer(ours.handler)):
                await until(lambda: _none_left(rig))
        assert await rig.left() == 0
        assert ours.shipped == wanted

    async def test_poison_is_parked_and_the_rest_goes_on(self, rig: Rig, tmp_path: Path) -> None:
        """After its attempts it is kept aside with its body, acknowledged, and can be run again."""
        ours = shop(tmp_path)
        ours.failing = {"bad": ValueError("no such address")}
        await rig.publish(["bad", "1", "2"], b'{"number": 1}')
        consumer = rig.consumer(ours.handler)
        consumer.tidy_every = 0.05
        async with running(consumer):
            await until(lambda: ours.inbox.count().parked == 1)
            await until(lambda: ours.shipped == ["1", "2"])
            (found,) = ours.inbox.parked().parked
            assert (found.message_id, found.body, found.attempts) == ("bad", b'{"number": 1}', 2)
            ours.failing.clear()
            ours.inbox.requeue(found.id)
            await until(lambda: ours.shipped == ["1", "2", "bad"])
        assert await rig.left() == 0

    async def test_one_without_an_id_is_parked(self, rig: Rig, tmp_path: Path) -> None:
        """What cannot be known again is neither run nor lost; a broker that names its messages helps out."""
        ours = shop(tmp_path)
        await rig.publish([None])
        async with running(rig.consumer(ours.handler)):
            await until(lambda: ours.events.total() == 1)
        assert await rig.left() == 0
        if rig.names_by_itself:
            assert len(ours.shipped) == 1
        else:
            (found,) = ours.inbox.parked().parked
            assert "the message has no id" in found.reason

    async def test_a_storm_of_redeliveries_has_one_effect(self, rig: Rig, tmp_path: Path) -> None:
        """Handlers that ask for time, again and again, are called again and again, and count for nothing."""
        ours = shop(tmp_path, patience=Patience(attempts=1))
        ours.failing = {"1": RedeliverLater("closed", 0.01)}
        await rig.publish(["1"])
        async with running(rig.consumer(ours.handler)):
            await until(lambda: len(ours.seen) >= 3)
            assert ours.shipped == []
            ours.failing.clear()
            await until(lambda: ours.shipped == ["1"])
        assert await rig.left() == 0
        assert ours.inbox.count().parked == 0

    async def test_sigterm_finishes_what_was_begun(self, rig: Rig, tmp_path: Path) -> None:
        """The message at hand is handled and acknowledged, no other is begun, and the process ends well."""
        ours = shop(tmp_path)
        await rig.publish(["1"])
        async with child(self.name, rig, tmp_path / "shop.db", "slow") as stopped:
            await stopped.said("in")
            stopped.send(signal.SIGTERM)
            assert await stopped.ended() == 0
        assert ours.shipped == ["1"]
        assert await rig.left() == 0


async def _none_left(rig: Rig) -> bool:
    return await rig.left() == 0


class LapsingConsumer(EveryConsumer):
    """Brokers that give a message to somebody else when they have heard nothing of it for a while."""

    async def test_a_slow_handler_keeps_its_message(self, rig: Rig, tmp_path: Path) -> None:
        """While it runs the broker is told so, and another consumer that waits for it does not get it."""
        ours = shop(tmp_path)
        ours.hook = lambda name: time.sleep(rig.lapses_for * 1.6)
        await rig.publish(["1"])
        async with running(rig.consumer(ours.handler), rig.consumer(ours.handler)):
            await until(lambda: ours.shipped == ["1"])
        assert (ours.seen, ours.events["message_later"]) == (["1"], 0)
        assert await rig.left() == 0
