"""FastStream: a middleware in which each message is handled once. For RabbitMQ and NATS JetStream, with an AsyncInbox.

FastStream acknowledges when its middlewares have ended, and ours ends after our commit. A handler finds the connection
of the transaction in FastStream's context, under `connection`.
"""

from __future__ import annotations

import asyncio
import importlib
import time
from collections.abc import Callable
from typing import Any, Final, NamedTuple

from faststream import BaseMiddleware
from faststream.exceptions import AckMessage, NackMessage, RejectMessage
from faststream.middlewares import AckPolicy

from oncekey.effects.brokers.consumers.life import TIDY_EVERY
from oncekey.effects.inbox import AsyncHandler, AsyncInbox, GivenUp, Later, Message, Verdict
from oncekey.effects.inbox.message import id_of
from oncekey.effects.inbox.rules import reason_of
from oncekey.engine.events import log
from oncekey.errors import BadMessage, ConfigurationError

# Acknowledged before the handler runs, or by the handler itself: either is before the commit.
TOO_EARLY: Final = {AckPolicy.ACK_FIRST, AckPolicy.MANUAL}
# RabbitMQ gives a message back at once, so it is held until its next attempt is due; not for as long as it allows.
HOLD_MOST: Final = 900.0
# The inbox itself could not be used: the message waits for it.
AWAY_FOR: Final = 30.0
# The broker's module of FastStream -> ours, which reads its messages into our words.
READERS: Final = {"rabbit": "rabbitmq", "nats": "nats"}


class Delivery(NamedTuple):
    """What is behind a message: FastStream's own, and the rest of its middlewares with the handler at their end."""

    message: Any
    proceed: Callable[[Any], Any]
    context: Any


class OnceMiddleware:
    """Handle each message of a broker's, or of a router's, subscribers once.

    RabbitRouter(middlewares=[OnceMiddleware(inbox)]). Each subscriber is a source, named by its queue or subject.
    """

    def __init__(self, inbox: AsyncInbox, *, id: Callable[[Any], object] = id_of) -> None:  # noqa: A002 - as in once
        if not inbox.awaited:
            raise ConfigurationError("FastStream is for asyncio: give it an AsyncInbox")
        if not inbox.choices.compared:
            raise ConfigurationError(
                "FastStream does not tell for how long the broker keeps messages: write redelivery_for=, in seconds, "
                "with all replays from dead letters in it; or keep_for=None, which forgets nothing"
            )
        self.inbox = inbox
        self._id = id
        self._handlers: dict[Any, AsyncHandler] = {}
        self._tidy_at = 0.0

    def __call__(self, msg: Any, *, context: Any) -> _Once:
        made = _Once(msg, context=context)
        made.once = self
        return made

    async def check(self, broker: Any) -> None:
        """Refuse to begin without tables, or with subscribers that acknowledge before the commit. Call it at start."""
        for subscriber in broker.subscribers:
            if self in subscriber._broker_middlewares:  # noqa: SLF001 - nothing else tells which are ours
                self.handler(subscriber)
        await self.inbox.check()

    def handler(self, subscriber: Any) -> AsyncHandler:
        """The handler of the inbox behind a subscriber."""
        if subscriber not in self._handlers:
            source = _source(subscriber)
            if subscriber.ack_policy in TOO_EARLY:
                raise ConfigurationError(
                    f"the subscriber of {source!r} has ack_policy={subscriber.ack_policy.name}, which acknowledges "
                    f"before the commit: leave it out"
                )

            async def work(message: Message, connection: Any) -> Any:
                return await _proceed(message, connection)

            work.__qualname__ = f"{work.__qualname__}.{id(subscriber)}"
            self._handlers[subscriber] = self.inbox.once(source, id=self._id)(work)
        return self._handlers[subscriber]

    async def deliver(self, proceed: Callable[[Any], Any], message: Any, context: Any) -> Any:
        """Handle a message, and tell FastStream what is to become of it."""
        subscriber = context.get("handler_")
        broker = _broker(subscriber)
        try:
            verdict = await self._verdict(subscriber, broker, Delivery(message, proceed, context))
        except Exception as error:  # noqa: BLE001 - whatever it is, the message must not be lost
            log.exception("the inbox of a subscriber cannot be used")
            verdict = Later(AWAY_FOR, reason_of(error), error)
        await self._tidy()
        if isinstance(verdict, Later):
            raise await _put_back(broker, verdict)
        if isinstance(verdict, GivenUp):
            raise RejectMessage
        if verdict.how != "done":
            raise AckMessage  # and nothing is published for it again
        return verdict.value

    async def _verdict(self, subscriber: Any, broker: str, delivery: Delivery) -> Verdict:
        handler, message = self.handler(subscriber), delivery.message
        if isinstance(message.raw_message, list):
            raise ConfigurationError("a batch has no id: let the subscriber take messages one by one")
        reader = importlib.import_module(f"oncekey.effects.brokers.consumers.{READERS[broker]}")
        made: Message = reader.message_of(message.raw_message, handler.rules.source, delivery)
        return await handler.deliver(made)

    async def _tidy(self) -> None:
        now = time.monotonic()
        if now < self._tidy_at:
            return
        self._tidy_at = now + TIDY_EVERY
        try:
            while (await self.inbox.purge()).more:
                pass
        except Exception as error:  # noqa: BLE001 - the database is away: another time
            log.warning("the inbox could not be tidied: %s", reason_of(error))


class _Once(BaseMiddleware[Any, Any]):
    once: OnceMiddleware

    async def consume_scope(self, call_next: Any, msg: Any) -> Any:
        return await self.once.deliver(call_next, msg, self.context)


async def _proceed(message: Message, connection: Any) -> Any:
    if not isinstance(message.raw, Delivery):
        raise BadMessage("FastStream cannot be asked to run it again: publish it anew, and discard it here")
    theirs, proceed, context = message.raw
    with context.scope("connection", connection):
        return await proceed(theirs)


async def _put_back(broker: str, verdict: Later) -> Exception:
    if broker == "nats":
        return NackMessage(delay=verdict.after)
    await asyncio.sleep(min(verdict.after, HOLD_MOST))
    return NackMessage()


def _broker(subscriber: Any) -> str:
    """Whose subscriber it is: `faststream.rabbit...`, `faststream.nats...`."""
    found = type(subscriber).__module__.split(".")[1]
    if found not in READERS:
        raise ConfigurationError(
            f"OnceMiddleware knows RabbitMQ and NATS JetStream, and this is a subscriber of {found}: for it there is "
            f"a consumer in oncekey.effects.brokers.consumers"
        )
    return found


def _source(subscriber: Any) -> str:
    if _broker(subscriber) == "rabbit":
        return str(subscriber.routing())
    if getattr(subscriber, "stream", None) is None:
        raise ConfigurationError(
            "this subscriber of NATS has no stream, and what it misses is lost: give it stream= and durable="
        )
    return str(subscriber._resolved_subject_string)  # noqa: SLF001 - what FastStream shows in its own logs
