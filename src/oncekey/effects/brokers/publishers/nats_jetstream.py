"""NATS JetStream: `nats://user:password@host:4222`; the topic is the subject, which a stream must have.

The message's id is in the header `Nats-Msg-Id`: within its duplicate window the stream drops what comes twice.
"""

from __future__ import annotations

from typing import Any
from urllib.parse import urlsplit

import nats
from nats import errors as wrong
from nats.aio.client import Client
from nats.js import errors as js_wrong

from oncekey.effects.brokers.publishers import address
from oncekey.effects.outbox.message import Outgoing
from oncekey.errors import BrokerUnavailable, ConfigurationError, MessageRefused

MSG_ID = "Nats-Msg-Id"
ONE_TRY: dict[str, Any] = {"allow_reconnect": False, "max_reconnect_attempts": 1, "reconnect_time_wait": 0.1} | {
    "connect_timeout": 5
}


class JetStream:
    """A server, or a cluster behind its address."""

    def __init__(self, url: str) -> None:
        self.shown = address.shown(url)
        address.options(url, ())
        self._url = url
        self._client: Client | None = None
        self._stream: Any = None

    async def open(self) -> None:
        if self._client is not None and self._client.is_connected:
            return
        await self.close()
        try:
            # The relay connects anew by itself, and waits in between.
            self._client = await nats.connect(self._url, error_cb=_silent, **ONE_TRY)
        except (wrong.Error, OSError) as error:
            raise self._unavailable(error) from error
        self._stream = self._client.jetstream()

    async def publish(self, message: Outgoing) -> None:
        if any(char.isspace() for char in message.topic):
            raise MessageRefused("the topic has a space in it, which no subject of NATS may have", final=True)
        if self._stream is None:
            raise BrokerUnavailable(f"{self.shown} is not connected")
        headers = {**message.named_headers, MSG_ID: message.id}
        headers |= {"oncekey-key": message.key} if message.key is not None else {}
        headers |= {"oncekey-type": message.type} if message.type else {}
        try:
            # An answer of `duplicate` is a confirmation: the stream has it.
            await self._stream.publish(message.topic, message.body, headers=headers, timeout=60)
        except (wrong.MaxPayloadError, wrong.BadSubjectError, wrong.BadHeaderError) as error:
            raise MessageRefused(f"NATS cannot carry it ({address.plain(error)})", final=True) from error
        except js_wrong.NoStreamResponseError as error:
            raise MessageRefused(f"no stream has the subject {message.topic}: add one") from error
        except js_wrong.ServiceUnavailableError as error:
            raise self._unavailable(error) from error
        except js_wrong.APIError as error:
            raise MessageRefused(f"the stream does not take it ({error.description})") from error
        except wrong.TimeoutError:
            raise TimeoutError from None
        except (wrong.Error, OSError) as error:
            raise self._unavailable(error) from error

    async def close(self) -> None:
        client, self._client, self._stream = self._client, None, None
        if client is not None:
            await client.close()

    def _unavailable(self, error: Exception) -> BrokerUnavailable:
        if isinstance(error, wrong.AuthorizationError):
            return BrokerUnavailable(f"NATS at {self.shown} refuses user or password of the address")
        return BrokerUnavailable(f"NATS at {self.shown} cannot be reached ({address.plain(error)}); is it running?")


async def _silent(error: Exception) -> None:
    """What goes wrong is said by whoever publishes."""


def publisher(url: str) -> JetStream:
    """A publisher for a NATS address."""
    if not urlsplit(url).hostname:
        raise ConfigurationError("the broker's address names no host: write it like nats://user:password@host:4222")
    return JetStream(url)
