"""The brokers and their stand-ins do what the tests that use them rely on."""

from __future__ import annotations

import asyncio
import uuid
from typing import Any

import aio_pika
import boto3
import nats
from confluent_kafka import Consumer, Producer

from tests.infra import KafkaMock, NatsServer, RabbitServer, SqsServer


async def test_rabbitmq_keeps_a_confirmed_message_over_a_restart(rabbitmq_server: RabbitServer) -> None:
    """A persistent message in a durable queue is there after SIGKILL, on the same address."""
    name, url = uuid.uuid4().hex, rabbitmq_server.url
    async with await aio_pika.connect(url) as connection, await connection.channel() as channel:
        await channel.declare_queue(name, durable=True)
        message = aio_pika.Message(b"kept", delivery_mode=aio_pika.DeliveryMode.PERSISTENT)
        await channel.default_exchange.publish(message, name)

    await asyncio.to_thread(rabbitmq_server.checkpoint)
    await asyncio.to_thread(rabbitmq_server.kill)
    await asyncio.to_thread(rabbitmq_server.start)

    assert rabbitmq_server.url == url
    async with await aio_pika.connect(url) as connection, await connection.channel() as channel:
        queue = await channel.declare_queue(name, durable=True)
        found = await queue.get(timeout=10)
    assert found.body == b"kept"


async def test_nats_deduplicates_by_message_id(nats_server: NatsServer) -> None:
    """JetStream stores one message for two publishes with one Nats-Msg-Id."""
    name = uuid.uuid4().hex
    client = await nats.connect(nats_server.url)
    try:
        stream = client.jetstream()
        await stream.add_stream(name=name, subjects=[name])
        answers = [await stream.publish(name, b"once", headers={"Nats-Msg-Id": "1"}) for _ in range(2)]
        assert [bool(answer.duplicate) for answer in answers] == [False, True]
    finally:
        await client.close()


def test_kafka_mock_serves_another_process(kafka_mock: KafkaMock) -> None:
    """What one client produces with headers, another reads in its group."""
    topic = uuid.uuid4().hex
    producer = Producer({"bootstrap.servers": kafka_mock.bootstrap})
    producer.produce(topic, b"body", key=b"key", headers={"id": "1"})
    assert producer.flush(10) == 0
    settings = {"bootstrap.servers": kafka_mock.bootstrap, "group.id": topic, "auto.offset.reset": "earliest"}
    consumer = Consumer(settings)
    consumer.subscribe([topic])
    message = consumer.poll(20)
    consumer.close()
    assert message is not None
    assert (message.key(), message.value(), message.headers()) == (b"key", b"body", [("id", b"1")])


def test_sqs_stand_in_counts_receives(sqs_server: SqsServer) -> None:
    """A message that nobody deleted comes again, with its receive count."""
    client: Any = boto3.client(
        "sqs",
        endpoint_url=sqs_server.url,
        region_name="eu-west-1",
        aws_access_key_id="test",
        aws_secret_access_key="test",
    )
    queue = client.create_queue(QueueName=uuid.uuid4().hex)["QueueUrl"]
    client.send_message(QueueUrl=queue, MessageBody="body")
    counts = []
    for _ in range(2):
        answer = client.receive_message(
            QueueUrl=queue, VisibilityTimeout=0, WaitTimeSeconds=1, MessageSystemAttributeNames=["All"]
        )
        counts.append(answer["Messages"][0]["Attributes"]["ApproximateReceiveCount"])
    client.close()
    assert counts == ["1", "2"]
