from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any, ClassVar

import boto3

from oncekey.effects.brokers.consumers.sqs import SqsConsumer
from tests.effects.brokers.rigs import Rig


def client(address: str) -> Any:
    """boto3's, pointed at the stand-in."""
    return boto3.client(
        "sqs", endpoint_url=address, region_name="eu-west-1", aws_access_key_id="test", aws_secret_access_key="test"
    )


class SqsRig(Rig):
    names_by_itself: ClassVar[bool] = True
    lapses_for: ClassVar[float] = 1.0

    async def create(self, **attributes: str) -> None:
        await asyncio.to_thread(client(self.address).create_queue, QueueName=self.queue, Attributes=attributes)

    @property
    def url(self) -> str:
        return f"{self.address}/123456789012/{self.queue}"

    async def publish(self, ids: Sequence[str | None], body: bytes = b"{}", **more: Any) -> None:
        for id_ in ids:
            named = {"oncekey-id": {"DataType": "String", "StringValue": id_}} if id_ else {}
            await asyncio.to_thread(
                client(self.address).send_message,
                QueueUrl=self.url,
                MessageBody=body.decode(),
                MessageAttributes=named,
                **more,
            )

    def consumer(self, handler: Any) -> Any:
        return SqsConsumer(handler, self.url, batch=4, hidden_for=1, wait_for=1, client=client(self.address))

    async def left(self) -> int:
        names = ["ApproximateNumberOfMessages", "ApproximateNumberOfMessagesNotVisible"]
        answer = await asyncio.to_thread(
            client(self.address).get_queue_attributes, QueueUrl=self.url, AttributeNames=names
        )
        return sum(int(value) for value in answer["Attributes"].values())
