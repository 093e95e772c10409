"""Amazon SQS, by boto3: standard queues, and FIFO queues with the order of their groups."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, Final

import boto3
import orjson
from botocore.exceptions import ClientError

from oncekey.effects.brokers.consumers.life import AnyHandler, within
from oncekey.effects.brokers.consumers.pulling import PullingConsumer, Received
from oncekey.effects.brokers.consumers.reading import id_in, texts
from oncekey.effects.inbox import Message
from oncekey.effects.link import Flow
from oncekey.engine.events import log

# What SQS allows: messages at once, seconds of waiting for one, seconds for which one may be hidden.
BATCH_MOST: Final = 10
WAIT_MOST: Final = 20
HIDDEN_MOST: Final = 43_200


class SqsConsumer(PullingConsumer):
    """Handle the messages of a queue: a batch in one transaction, or of a FIFO queue each group in its order.

    Received messages are hidden from others for `hidden_for` seconds, and longer while their handlers run. `wait_for`
    is for how long SQS is asked to wait for messages, and so how long `stop()` may take. `client` is boto3's.
    """

    def __init__(
        self,
        handler: AnyHandler,
        queue_url: str,
        *,
        batch: int = BATCH_MOST,
        hidden_for: int = 30,
        wait_for: int = 10,
        client: Any = None,
    ) -> None:
        super().__init__(handler, f"the queue {queue_url.rpartition('/')[2]!r} of SQS")
        self._url = queue_url
        self._batch = within("batch", batch, BATCH_MOST)
        self._hidden_for = within("hidden_for", hidden_for, HIDDEN_MOST)
        self._wait_for = within("wait_for", wait_for, WAIT_MOST)
        self._client = client
        self._grouped = queue_url.endswith(".fifo")
        self._named_by_content = False
        # Three times within the time after which it would be shown to others.
        self.keep_every = hidden_for / 3

    def open(self) -> None:
        if self._client is None:
            self._client = boto3.client("sqs")
        about = self._about(self._url)
        self._named_by_content = about.get("ContentBasedDeduplication") == "true"
        redrive = orjson.loads(about.get("RedrivePolicy", "{}"))
        self.horizon(int(about["MessageRetentionPeriod"]) + self._dead_letters(redrive.get("deadLetterTargetArn")))
        given_up_after = redrive.get("maxReceiveCount")
        self.patience(None if given_up_after is None else int(given_up_after))

    def _about(self, url: str) -> dict[str, str]:
        found: dict[str, str] = self._client.get_queue_attributes(QueueUrl=url, AttributeNames=["All"])["Attributes"]
        return found

    def _dead_letters(self, arn: str | None) -> int:
        """For how long the dead letters are kept: so much later a message may be moved back."""
        if arn is None:
            return 0
        *_, account, name = arn.split(":")
        try:
            url = self._client.get_queue_url(QueueName=name, QueueOwnerAWSAccountId=account)["QueueUrl"]
            return int(self._about(url)["MessageRetentionPeriod"])
        except ClientError as error:
            log.warning("the dead letters of %s cannot be looked at, so keep_for= is up to you: %s", self.broker, error)
            return 0

    def receive(self) -> Flow[list[Received]]:
        answer = yield self._client.receive_message(
            QueueUrl=self._url,
            MaxNumberOfMessages=self._batch,
            WaitTimeSeconds=self._wait_for,
            VisibilityTimeout=self._hidden_for,
            MessageAttributeNames=["All"],
            MessageSystemAttributeNames=["All"],
        )
        return [Received(self.message(raw), raw, self._group(raw)) for raw in answer.get("Messages", ())]

    def _group(self, raw: dict[str, Any]) -> str | None:
        found: str | None = raw["Attributes"].get("MessageGroupId") if self._grouped else None
        return found

    def close(self) -> None:
        """There is nothing to leave: what is hidden is shown to others in time."""

    def message(self, raw: dict[str, Any]) -> Message:
        """The message in our words; its id is our attribute, its own deduplication id, or what SQS named it."""
        about = raw["Attributes"]
        given = raw.get("MessageAttributes", {}).items()
        headers = texts((name, value.get("StringValue", value.get("BinaryValue"))) for name, value in given)
        # By content, two messages that say the same would be one.
        chosen = None if self._named_by_content else about.get("MessageDeduplicationId")
        return Message(
            self.source,
            raw["Body"].encode(),
            id_in(headers, chosen, raw["MessageId"]),
            headers,
            about.get("MessageGroupId"),
            int(about["SentTimestamp"]) / 1000,
            redelivered=int(about["ApproximateReceiveCount"]) > 1,
            raw=raw,
        )

    def beat(self, raws: Sequence[dict[str, Any]]) -> None:
        entries = [entry | {"VisibilityTimeout": self._hidden_for} for entry in _entries(raws)]
        _complain(self._client.change_message_visibility_batch(QueueUrl=self._url, Entries=entries))

    def acknowledge(self, raws: Sequence[dict[str, Any]]) -> None:
        _complain(self._client.delete_message_batch(QueueUrl=self._url, Entries=_entries(raws)))

    def put_back(self, raw: dict[str, Any], after: float) -> None:
        self._client.change_message_visibility(
            QueueUrl=self._url,
            ReceiptHandle=raw["ReceiptHandle"],
            VisibilityTimeout=min(math.ceil(after), HIDDEN_MOST // 2),
        )

    def give_up(self, raw: dict[str, Any], reason: str) -> None:
        """SQS moves it to its dead letters by itself, when it has come often enough."""
        self.put_back(raw, 0)


def _entries(raws: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    return [{"Id": str(number), "ReceiptHandle": raw["ReceiptHandle"]} for number, raw in enumerate(raws)]


def _complain(answer: dict[str, Any]) -> None:
    for failed in answer.get("Failed", ()):
        log.warning("SQS did not do as told, and a message will come again: %s", failed.get("Message", failed["Code"]))
