"""The consumers of Kafka, on librdkafka's mock cluster: what our clients do, not what a broker keeps."""

from __future__ import annotations

import asyncio
import signal
import threading
import time
import uuid
from pathlib import Path
from typing import Any, ClassVar

import aiokafka
import pytest
from confluent_kafka import TopicPartition

from oncekey.effects.brokers.consumers.kafka import KafkaConsumer
from oncekey.effects.brokers.consumers.kafka_aio import AioKafkaConsumer
from oncekey.effects.brokers.consumers.lanes import Lane, begin_at, kept_for
from oncekey.effects.inbox import Handled, Later, Message
from oncekey.errors import ConfigurationError
from tests.effects.brokers import rigs
from tests.effects.brokers.rig_kafka import AioKafkaRig, KafkaRig
from tests.effects.brokers.running import child, running, shop, until
from tests.effects.brokers.scenarios import EveryConsumer
from tests.infra import KafkaMock


@pytest.fixture
def address(kafka_mock: KafkaMock) -> str:
    return kafka_mock.bootstrap


class TestKafka(EveryConsumer):
    """Every scenario under threads."""

    name: ClassVar[str] = "kafka"


class TestAioKafka(EveryConsumer):
    """And under asyncio, but for groups of several: the mock cluster refuses SyncGroup to a second one of aiokafka."""

    name: ClassVar[str] = "aiokafka"
    test_two_consumers_share_the_work = None  # type: ignore[assignment]


@pytest.fixture(params=["kafka", "aiokafka"])
def rig(request: pytest.FixtureRequest, address: str) -> KafkaRig:
    """A topic of this test's own, for either client."""
    made = rigs.rig(request.param, address, f"q{uuid.uuid4().hex}")
    assert isinstance(made, KafkaRig)
    return made


async def test_ordered_mode_survives_a_rebalance(address: str, tmp_path: Path) -> None:
    """Members come and go while messages flow: each has one effect, in the order of its partition, in four rows."""
    rig = KafkaRig(address, f"q{uuid.uuid4().hex}")
    rig.session_for = 3.0
    ours = shop(tmp_path, ordered=True)
    for partition in range(4):
        await rig.publish([f"{partition}-{number:02}" for number in range(20)], partition=partition)
    first, second = rig.consumer(ours.handler), rig.consumer(ours.handler)
    ours.hook = lambda name: time.sleep(0.01)
    async with running(first):
        await until(lambda: len(ours.shipped) >= 10)
        async with running(second):
            await until(lambda: len(first.lanes) == len(second.lanes) == 2)
        await until(lambda: len(ours.shipped) == 80)
        await until(lambda: len(first.lanes) == 4 and all(lane.told == 20 for lane in first.lanes.values()))
    done = [number for (number,) in ours.place.rows("SELECT number FROM shipment ORDER BY rowid")]
    assert sorted(done) == sorted(done, key=lambda name: (name[0], done.index(name)))
    assert ours.inbox.count()[:2] == (0, 4)
    assert await rig.left() == 0


async def test_a_partition_is_let_go_when_its_message_is_done(address: str, tmp_path: Path) -> None:
    """Under asyncio a rebalance comes while a handler runs: it waits, tells the offset, and drops what waits."""
    rig = AioKafkaRig(address, f"q{uuid.uuid4().hex}")
    ours = shop(tmp_path)
    begun = threading.Event()

    def hook(name: str) -> None:
        begun.set()
        time.sleep(0.2)

    ours.hook = hook
    await rig.publish(["1"], partition=0)
    consumer = rig.consumer(ours.handler)
    async with running(consumer):
        await until(begun.is_set)
        assert ours.shipped == []
        await consumer.let_go([aiokafka.TopicPartition(rig.queue, 0)])
        assert ours.shipped == ["1"]
        assert 0 not in consumer.lanes
        assert await rig.left() == 0


async def test_what_comes_before_its_partition_is_taken_comes_again(address: str, tmp_path: Path) -> None:
    """Aiokafka fetches while we still ask the database where to begin: none of that is passed over."""
    rig = AioKafkaRig(address, f"q{uuid.uuid4().hex}")
    ours = shop(tmp_path, ordered=True)
    for partition in range(4):
        await rig.publish([f"{partition}"], partition=partition)
    consumer = rig.consumer(ours.handler)
    sort, place, came = consumer._messages, consumer.place, asyncio.Event()

    def sorting(fetched: Any) -> Any:
        if fetched:
            came.set()
        return sort(fetched)

    async def asked(partition: int) -> Any:
        await asyncio.wait_for(came.wait(), 20)
        return await place(partition)

    consumer._messages, consumer.place = sorting, asked
    async with running(consumer):
        await until(lambda: ours.shipped == ["0", "1", "2", "3"])


async def test_ordered_mode_begins_where_the_database_is(rig: KafkaRig, tmp_path: Path) -> None:
    """Kafka may remember more than was committed, after a restore of the database: what is missing is done again."""
    ours = shop(tmp_path, ordered=True)
    await rig.publish([str(number) for number in range(6)], partition=0)
    async with running(rig.consumer(ours.handler)):
        await until(lambda: len(ours.shipped) == 6)
    assert await rig.left() == 0
    ours.place.change("DELETE FROM shipment WHERE number >= '3'")
    ours.place.change("UPDATE oncekey_inbox_place SET position = 2")
    async with running(rig.consumer(ours.handler)):
        await until(lambda: len(ours.shipped) == 6)
    assert ours.seen[6:] == ["3", "4", "5"]


async def test_a_topic_made_anew_is_refused(rig: KafkaRig, tmp_path: Path) -> None:
    """Its offsets begin again, and all would pass for duplicates."""
    ours = shop(tmp_path, ordered=True)
    await rig.publish(["1"], partition=0)
    ours.place.change("INSERT INTO oncekey_inbox_place VALUES ('', 'orders', 0, 7, 0)")
    consumer = rig.consumer(ours.handler)
    with pytest.raises(ConfigurationError, match=r"call inbox\.forget_places"):
        await (consumer.run() if consumer.awaited else asyncio.to_thread(consumer.run))
    ours.inbox.forget_places("orders")
    rig.group = "others"
    async with running(rig.consumer(ours.handler)):
        await until(lambda: ours.shipped == ["1"])


async def test_nothing_overtakes_one_that_waits_in_its_partition(rig: KafkaRig, tmp_path: Path) -> None:
    """Ordered mode: the partition waits for its message; others go on; once it is parked the rest follows."""
    ours = shop(tmp_path, ordered=True)
    ours.failing = {"bad": ValueError("no such address")}
    await rig.publish(["1", "bad", "2"], partition=0)
    await rig.publish(["other"], partition=1)
    async with running(rig.consumer(ours.handler)):
        await until(lambda: {"2", "other"} <= set(ours.shipped))
    assert ours.shipped == ["1", "2", "other"]
    assert ours.seen.index("2") > max(at for at, name in enumerate(ours.seen) if name == "bad")
    assert ours.inbox.count().parked == 1
    assert await rig.left() == 0


async def test_a_message_that_kills_its_process_is_parked(address: str, tmp_path: Path) -> None:
    """Kafka does not say that a message comes again: what may have been begun before is counted before it runs."""
    ours = shop(tmp_path)
    rig = KafkaRig(address, f"q{uuid.uuid4().hex}")
    await rig.publish(["1"])
    for _ in range(2):
        async with child("kafka", rig, tmp_path / "shop.db", "handler") as killed:
            assert await killed.ended() == -signal.SIGKILL
    async with running(rig.consumer(ours.handler)):
        await until(lambda: ours.events["message_parked"])
    assert (ours.shipped, ours.seen) == ([], [])


async def test_offsets_of_a_lost_partition_are_not_told(address: str, tmp_path: Path) -> None:
    """Whoever lost a partition while it worked says nothing of it: its next owner does."""
    made = KafkaRig(address, f"q{uuid.uuid4().hex}")
    await made.publish(["1"], partition=0)
    consumer = made.consumer(shop(tmp_path).handler)
    told: list[Any] = []
    consumer.commit = told.append
    consumer.ask = lambda function, *values: (consumer._lost(None, [TopicPartition(made.queue, 0)]), function(*values))[
        1
    ]
    async with running(consumer):
        await until(lambda: consumer.handler.inbox.handled("orders", "1"))
    assert told == []


def test_lanes() -> None:
    """Up to the first that waits all is done; the others behind it, handled or not, are told later."""
    lane = Lane(doubtful=2)
    messages = [Message("orders", b"", place=(0, number)) for number in range(5, 9)]
    assert [message.redelivered for message in lane.marked(messages)] == [True, True, False, False]
    done, later = Handled("done"), Later(3, "no")
    lane.took(messages, [Handled("duplicate"), done, later, done], now=100)
    assert (lane.doubtful, lane.reached, lane.due_at) == (0, 7, 103)
    assert [(message.place, message.redelivered) for message in lane.waiting] == [((0, 7), True)]
    lane.took(lane.waiting, [done], now=103)
    assert (lane.reached, lane.waiting) == (9, [])


def test_where_a_partition_begins(caplog: pytest.LogCaptureFixture) -> None:
    """Behind the database's place; what was deleted before it was handled is said aloud."""
    assert begin_at(None, 0, 9, "p") is None
    assert begin_at(4, 0, 9, "p") == 5
    assert begin_at(8, 0, 9, "p") == 9
    assert caplog.text == ""
    assert begin_at(4, 7, 9, "p") == 7
    assert "the rest is gone" in caplog.text
    with pytest.raises(ConfigurationError, match="ends before offset 9, and offset 9 was handled"):
        begin_at(9, 0, 9, "p")


@pytest.mark.parametrize(
    ("configs", "seconds"),
    [
        ({"retention.ms": "1000", "segment.ms": "500", "cleanup.policy": "delete"}, 1.5),
        ({"retention.ms": "-1", "cleanup.policy": "delete"}, None),
        ({"retention.ms": "1000", "cleanup.policy": "compact"}, None),
        ({"retention.ms": "1000", "cleanup.policy": "compact,delete"}, 1),
        ({}, None),
    ],
)
def test_how_long_a_topic_keeps(configs: dict[str, str | None], seconds: float | None) -> None:
    """Retention, and the segment that is only deleted as a whole; a compacted topic keeps for ever."""
    assert kept_for(configs) == seconds


def test_settings_that_would_lose_messages_are_refused(tmp_path: Path) -> None:
    """Commits before the commit, no group, and patterns of topics."""
    handler = shop(tmp_path).handler
    with pytest.raises(ConfigurationError, match=r"enable\.auto\.commit"):
        KafkaConsumer(handler, "orders", {"group.id": "a", "enable.auto.commit": "true"})
    with pytest.raises(ConfigurationError, match="enable_auto_commit"):
        AioKafkaConsumer(handler, "orders", group_id="a", enable_auto_commit=True)
    with pytest.raises(ConfigurationError, match=r"write 'group\.id'"):
        KafkaConsumer(handler, "orders", {})
    with pytest.raises(ConfigurationError, match="write group_id="):
        AioKafkaConsumer(handler, "orders")
    with pytest.raises(ConfigurationError, match="is a pattern"):
        KafkaConsumer(handler, "^orders", {"group.id": "a"})


def test_a_window_is_needed_where_kafka_does_not_tell(address: str, tmp_path: Path) -> None:
    """The mock cluster does not say for how long it keeps messages: then the user must."""
    consumer = KafkaRig(address, uuid.uuid4().hex).consumer(shop(tmp_path, redelivery_for=None).handler)
    consumer._ask = lambda: setattr(consumer, "_asked", (None, _Unanswered()))
    with pytest.raises(ConfigurationError, match="write redelivery_for="):
        consumer.run()


class _Unanswered:
    def result(self, timeout: float) -> None:
        raise TimeoutError
