"""The consumer of SQS, on a stand-in: what our client does, not what Amazon keeps."""

from __future__ import annotations

import uuid
from pathlib import Path
from typing import Any, ClassVar

import orjson
import pytest

from oncekey.effects.brokers.consumers.sqs import SqsConsumer
from oncekey.effects.link import drive
from oncekey.errors import ConfigurationError, RedeliverLater
from tests.effects.brokers import rig_sqs
from tests.effects.brokers.running import running, shop, until
from tests.effects.brokers.scenarios import LapsingConsumer
from tests.infra import SqsServer


@pytest.fixture
def address(sqs_server: SqsServer) -> str:
    return sqs_server.url


class TestSqs(LapsingConsumer):
    """Every scenario."""

    name: ClassVar[str] = "sqs"


@pytest.fixture
def client(address: str) -> Any:
    return rig_sqs.client(address)


def queue(client: Any, suffix: str = "", **attributes: str) -> str:
    """A queue of this test's own."""
    made: str = client.create_queue(QueueName=uuid.uuid4().hex + suffix, Attributes=attributes)["QueueUrl"]
    return made


async def test_groups_of_a_fifo_queue_keep_their_order(address: str, client: Any, tmp_path: Path) -> None:
    """Behind a message that waits, its group waits; other groups go on. A producer's deduplication id names it."""
    ours = shop(tmp_path)
    ours.failing = {"a1": RedeliverLater("closed", 0.5)}
    url = queue(client, ".fifo", FifoQueue="true")
    for id_ in ("a1", "a2", "b1", "b2"):
        client.send_message(QueueUrl=url, MessageBody="{}", MessageGroupId=id_[0], MessageDeduplicationId=id_)
    async with running(SqsConsumer(ours.handler, url, wait_for=1, client=client)):
        await until(lambda: ours.shipped == ["b1", "b2"])
        assert ours.seen == ["a1", "b1", "b2"]
        ours.failing.clear()
        await until(lambda: len(ours.shipped) == 4)
    assert ours.seen[-2:] == ["a1", "a2"]


async def test_equal_contents_are_two_messages(client: Any, tmp_path: Path) -> None:
    """A deduplication id that SQS makes of the content names no message: what says the same may be two orders."""
    ours = shop(tmp_path)
    url = queue(client, ".fifo", FifoQueue="true", ContentBasedDeduplication="true")
    consumer = SqsConsumer(ours.handler, url, client=client)
    consumer.open()
    client.send_message(QueueUrl=url, MessageBody="{}", MessageGroupId="a")
    ((received,),) = [drive(consumer.receive())]
    assert received.message.id == received.raw["MessageId"]


def test_retentions_are_compared(client: Any, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """The queue's and its dead letters' together, for a message may be moved back; and who gives up first is said."""
    dead = queue(client, MessageRetentionPeriod="600")
    arn = client.get_queue_attributes(QueueUrl=dead, AttributeNames=["QueueArn"])["Attributes"]["QueueArn"]
    policy = orjson.dumps({"deadLetterTargetArn": arn, "maxReceiveCount": 2}).decode()
    url = queue(client, MessageRetentionPeriod="300", RedrivePolicy=policy)
    ours = shop(tmp_path, redelivery_for=None, keep_for=800)
    with pytest.raises(ConfigurationError, match=r"keeps messages for 900 s, .*write keep_for=900 or more"):
        SqsConsumer(ours.handler, url, client=client).run()
    ours = shop(tmp_path, redelivery_for=None, keep_for=900)
    SqsConsumer(ours.handler, url, client=client).open()
    assert "gives a message up after 2 deliveries" in caplog.text
    client.delete_queue(QueueUrl=dead)
    SqsConsumer(ours.handler, url, client=client).open()
    assert "the dead letters of the queue" in caplog.text
