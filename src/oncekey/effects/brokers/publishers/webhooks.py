"""Signed webhooks, as Standard Webhooks says: `https://host/path`, with the secret in ONCEKEY_WEBHOOK_SECRET.

Each message is a POST with `webhook-id` (the message's id), `webhook-timestamp` and `webhook-signature`. The receiver
checks the signature, and knows a message that comes again by its id. Any 2xx confirms; redirects are not followed.

Several secrets with spaces between them sign side by side, while a receiver changes over.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import os
import time
from collections.abc import Sequence
from http import HTTPStatus
from urllib.parse import urlsplit

import httpx

from oncekey.effects.brokers.publishers import address
from oncekey.effects.outbox.message import Outgoing
from oncekey.errors import BrokerUnavailable, ConfigurationError, MessageRefused

VARIABLE = "ONCEKEY_WEBHOOK_SECRET"
PREFIX = "whsec_"
CONNECTIONS = 16
# The endpoint is away or asks for time: any message would fare alike.
AWAY = {
    HTTPStatus.TOO_MANY_REQUESTS,
    HTTPStatus.BAD_GATEWAY,
    HTTPStatus.SERVICE_UNAVAILABLE,
    HTTPStatus.GATEWAY_TIMEOUT,
}
# What belongs to the connection, or says who we are: no message may set it.
_OURS = {"host", "content-length", "connection", "transfer-encoding", "webhook-id", "webhook-timestamp"} | {
    "webhook-signature"
}


class Webhooks:
    """One endpoint."""

    def __init__(self, url: str, secrets: Sequence[bytes]) -> None:
        self.shown = address.shown(url)
        self._url = url
        self._secrets = secrets
        self._client: httpx.AsyncClient | None = None

    async def open(self) -> None:
        if self._client is None:
            limits = httpx.Limits(max_connections=CONNECTIONS)
            # How long an answer may take is the relay's to say.
            self._client = httpx.AsyncClient(limits=limits, timeout=None, follow_redirects=False)  # noqa: S113

    async def publish(self, message: Outgoing) -> None:
        if self._client is None:
            raise BrokerUnavailable(f"{self.shown} is not connected")
        try:
            answer = await self._client.post(self._url, content=message.body, headers=self._headers(message))
        except httpx.TransportError as error:
            raise BrokerUnavailable(f"{self.shown} cannot be reached ({address.plain(error)})") from error
        if answer.is_success:
            return
        said = f"{self.shown} answered {answer.status_code}"
        if answer.status_code in AWAY:
            raise BrokerUnavailable(said, _seconds(answer.headers.get("retry-after", "")))
        raise MessageRefused(said, final=answer.status_code == HTTPStatus.GONE)

    async def close(self) -> None:
        client, self._client = self._client, None
        if client is not None:
            await client.aclose()

    def _headers(self, message: Outgoing) -> list[tuple[bytes, bytes]]:
        own = {name: value for name, value in message.named_headers.items() if name.lower() not in _OURS}
        about = {"oncekey-topic": message.topic, "oncekey-type": message.type}
        stamp = str(int(time.time()))
        signed = {
            "webhook-id": message.id,
            "webhook-timestamp": stamp,
            "webhook-signature": signature(self._secrets, message.id, stamp, message.body),
        }
        named = own | {name: value for name, value in about.items() if value} | signed
        return [(name.encode(), value.encode()) for name, value in named.items()]


def signature(secrets: Sequence[bytes], id_: str, stamp: str, body: bytes) -> str:
    """The value of webhook-signature: one for each secret."""
    content = f"{id_}.{stamp}.".encode() + body
    digests = (hmac.new(secret, content, hashlib.sha256).digest() for secret in secrets)
    return " ".join(f"v1,{base64.b64encode(digest).decode()}" for digest in digests)


def read_secrets(text: str) -> list[bytes]:
    """The keys behind `whsec_...`; refused without repeating them."""
    if not text.split():
        raise ConfigurationError(
            f"webhooks are signed: set {VARIABLE} to the secret that the receiver knows, whsec_..."
        )
    try:
        found = [base64.b64decode(one.removeprefix(PREFIX), validate=True) for one in text.split()]
    except binascii.Error:
        raise ConfigurationError(f"{VARIABLE} is no secret: write whsec_ and base64, as the receiver has it") from None
    if any(len(secret) < 16 for secret in found):  # noqa: PLR2004 - what nobody can guess
        raise ConfigurationError(f"{VARIABLE} is too short: take 24 random bytes or more, in base64")
    return found


def _seconds(text: str) -> float | None:
    return float(text) if text.isascii() and text.isdigit() else None


def publisher(url: str) -> Webhooks:
    """A publisher for an endpoint; its secret comes from the environment."""
    parts = urlsplit(url)
    if not parts.hostname or parts.username or parts.password:
        raise ConfigurationError("write the endpoint like https://host/path, without a user or a password in it")
    return Webhooks(url, read_secrets(os.environ.get(VARIABLE, "")))
