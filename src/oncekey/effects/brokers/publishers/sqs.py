"""Amazon SQS: `sqs://eu-west-1/queue`; without a queue in the address, the topic is the queue's name.

endpoint=http://127.0.0.1:4566   talks to another endpoint

Credentials are found as boto3 finds them. In a FIFO queue the message's id is its MessageDeduplicationId, and its key
the MessageGroupId. The id is in the attribute `oncekey-id` as well. What is no text travels as base64, and says so.
"""

from __future__ import annotations

import asyncio
import base64
import re
from typing import Any
from urllib.parse import urlsplit

import boto3
from botocore import exceptions as wrong
from botocore.config import Config

from oncekey.effects.brokers.publishers import address
from oncekey.effects.outbox.message import Outgoing
from oncekey.errors import BrokerUnavailable, ConfigurationError, MessageRefused

FIFO = ".fifo"
ENCODING = "oncekey-encoding"
MOST_ATTRIBUTES = 10
CONFIG = Config(connect_timeout=5, read_timeout=10, retries={"total_max_attempts": 1}, max_pool_connections=16)
# What no SQS body may hold: it is carried as XML.
_UNFIT = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
_NO_QUEUE = {"AWS.SimpleQueueService.NonExistentQueue", "QueueDoesNotExist", "QueueDeletedRecently"}
_UNFIT_CODES = {"InvalidParameterValue", "InvalidMessageContents", "MissingParameter", "InvalidAttributeValue"} | {
    "UnsupportedOperation"
}


class Sqs:
    """The queues of one region."""

    def __init__(self, url: str) -> None:
        parts = urlsplit(url)
        self.shown = address.shown(url)
        self._region = parts.hostname
        self._queue = address.path(url)
        self._endpoint = address.options(url, ("endpoint",)).get("endpoint")
        self._client: Any = None
        self._urls: dict[str, str] = {}

    async def open(self) -> None:
        if self._client is None:
            self._client = await asyncio.to_thread(self._made)

    async def publish(self, message: Outgoing) -> None:
        queue = self._queue or message.topic
        try:
            await asyncio.to_thread(self._send, queue, message)
        except wrong.ClientError as error:
            raise self._refused(queue, error) from error
        except wrong.ParamValidationError as error:
            raise MessageRefused(f"SQS cannot carry it ({address.plain(error)})", final=True) from error
        except wrong.BotoCoreError as error:
            raise self._unavailable(error) from error

    async def close(self) -> None:
        client, self._client = self._client, None
        if client is not None:
            await asyncio.to_thread(client.close)

    def _made(self) -> Any:
        try:
            return boto3.session.Session().client(
                "sqs", region_name=self._region, endpoint_url=self._endpoint, config=CONFIG
            )
        except wrong.BotoCoreError as error:
            raise self._unavailable(error) from error

    def _send(self, queue: str, message: Outgoing) -> None:
        if self._client is None:
            raise BrokerUnavailable(f"{self.shown} is not connected")
        body, attributes = _body(message), _attributes(message)
        if queue not in self._urls:
            self._urls[queue] = self._client.get_queue_url(QueueName=queue)["QueueUrl"]
        fifo = {"MessageGroupId": message.key or message.id, "MessageDeduplicationId": message.id}
        self._client.send_message(
            QueueUrl=self._urls[queue],
            MessageBody=body,
            MessageAttributes=attributes,
            **(fifo if queue.endswith(FIFO) else {}),
        )

    def _refused(self, queue: str, error: wrong.ClientError) -> Exception:
        code = str(error.response.get("Error", {}).get("Code", ""))
        if code in _NO_QUEUE:
            self._urls.pop(queue, None)
            return MessageRefused(f"there is no queue {queue} in {self.shown}: create it")
        if code in _UNFIT_CODES:
            return MessageRefused(f"SQS does not take it ({address.plain(error)})")
        return self._unavailable(error)

    def _unavailable(self, error: Exception) -> BrokerUnavailable:
        return BrokerUnavailable(f"SQS at {self.shown} does not serve us ({address.plain(error)})")


def _text(message: Outgoing) -> str | None:
    try:
        text = message.body.decode()
    except UnicodeDecodeError:
        return None
    return None if _UNFIT.search(text) or not text else text


def _body(message: Outgoing) -> str:
    text = _text(message)
    # An empty body is refused by SQS: it travels as base64 of nothing and one blank.
    return text if text is not None else base64.b64encode(message.body).decode() or " "


def _attributes(message: Outgoing) -> dict[str, Any]:
    encoding = "" if _text(message) is not None else "base64"
    named = {
        **message.named_headers,
        "oncekey-key": message.key or "",
        "oncekey-type": message.type,
        ENCODING: encoding,
    }
    kept = {name: {"DataType": "String", "StringValue": value} for name, value in named.items() if value}
    if len(kept) > MOST_ATTRIBUTES:
        raise MessageRefused(f"SQS carries {MOST_ATTRIBUTES} attributes, and it has {len(kept)} headers", final=True)
    return kept


def publisher(url: str) -> Sqs:
    """A publisher for the queues of a region."""
    if not urlsplit(url).hostname:
        raise ConfigurationError("the broker's address names no region: write it like sqs://eu-west-1/queue")
    return Sqs(url)
