"""Messages go to SQS; the stand-in shows what our client sends, not what AWS keeps."""

from __future__ import annotations

import base64
import uuid
from typing import Any

import boto3
import pytest

from oncekey.effects.brokers.publishers import open_publisher
from oncekey.effects.outbox import Outgoing
from oncekey.errors import BrokerUnavailable, ConfigurationError, MessageRefused
from tests.infra import SqsServer

REGION = "eu-west-1"


@pytest.fixture
def sqs(sqs_server: SqsServer, monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "test")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "test")
    client = boto3.client("sqs", endpoint_url=sqs_server.url, region_name=REGION)
    yield client
    client.close()


def received(client: Any, url: str) -> list[dict[str, Any]]:
    answer = client.receive_message(
        QueueUrl=url, MaxNumberOfMessages=10, MessageAttributeNames=["All"], MessageSystemAttributeNames=["All"]
    )
    return list(answer.get("Messages", []))


def attributes(message: dict[str, Any]) -> dict[str, str]:
    return {name: value["StringValue"] for name, value in message["MessageAttributes"].items()}


async def test_a_message_arrives_with_its_id(sqs: Any, sqs_server: SqsServer) -> None:
    """As an attribute; a body that is no text travels as base64, and says so."""
    name = uuid.uuid4().hex
    url = sqs.create_queue(QueueName=name)["QueueUrl"]
    publisher = open_publisher(f"sqs://{REGION}?endpoint={sqs_server.url}")
    await publisher.open()
    await publisher.publish(Outgoing("id-1", name, b"text", {"trace": "x"}, "A-1", "Placed"))
    await publisher.publish(Outgoing("id-2", name, b"\0\xff"))
    await publisher.close()
    found = {attributes(message)["oncekey-id"]: message for message in received(sqs, url)}
    wanted = {"oncekey-id": "id-1", "trace": "x", "oncekey-key": "A-1", "oncekey-type": "Placed"}
    assert (found["id-1"]["Body"], attributes(found["id-1"])) == ("text", wanted)
    assert base64.b64decode(found["id-2"]["Body"]) == b"\0\xff"
    assert attributes(found["id-2"])["oncekey-encoding"] == "base64"


async def test_a_fifo_queue_knows_a_message_that_comes_twice(sqs: Any, sqs_server: SqsServer) -> None:
    """By its MessageDeduplicationId; the key is its group. The address may name the queue."""
    name = f"{uuid.uuid4().hex}.fifo"
    url = sqs.create_queue(QueueName=name, Attributes={"FifoQueue": "true"})["QueueUrl"]
    publisher = open_publisher(f"sqs://{REGION}/{name}?endpoint={sqs_server.url}")
    await publisher.open()
    for _ in range(2):
        await publisher.publish(Outgoing("id-1", "orders", b"one", {}, "A-1"))
    await publisher.close()
    (found,) = received(sqs, url)
    about = found["Attributes"]
    assert (about["MessageDeduplicationId"], about["MessageGroupId"]) == ("id-1", "A-1")


@pytest.mark.usefixtures("sqs")
async def test_what_sqs_cannot_take_is_refused(sqs_server: SqsServer) -> None:
    """A queue that is not there, and more headers than it carries."""
    publisher = open_publisher(f"sqs://{REGION}?endpoint={sqs_server.url}")
    await publisher.open()
    with pytest.raises(MessageRefused, match="there is no queue nowhere"):
        await publisher.publish(Outgoing("1", "nowhere", b"x"))
    with pytest.raises(MessageRefused, match="10 attributes"):
        await publisher.publish(Outgoing("1", "nowhere", b"x", {str(number): "x" for number in range(10)}))
    await publisher.close()


@pytest.mark.usefixtures("sqs")
async def test_an_endpoint_that_is_away_is_waited_for() -> None:
    """And so are missing credentials: no message can help it."""
    publisher = open_publisher(f"sqs://{REGION}?endpoint=http://127.0.0.1:1")
    await publisher.open()
    with pytest.raises(BrokerUnavailable, match="does not serve us"):
        await publisher.publish(Outgoing("1", "orders", b"x"))
    await publisher.close()
    with pytest.raises(ConfigurationError, match="names no region"):
        open_publisher("sqs:///queue")
