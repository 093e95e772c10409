"""One batch on its way: what is sent side by side, what one after the other, and what became of each. No database."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Protocol

from oncekey.effects.outbox.message import Outgoing
from oncekey.engine.events import log
from oncekey.errors import BrokerUnavailable, MessageRefused


class Publisher(Protocol):
    """A broker that messages are sent to. `publish` returns when the broker has confirmed that it keeps the message.

    It raises MessageRefused for what is this message's fault, and BrokerUnavailable where any message would fare alike.
    Several may be published at once; those of one key never are.
    """

    shown: str

    async def open(self) -> None:
        """Connect, if not connected. Called before every batch."""
        ...

    async def publish(self, message: Outgoing) -> None:
        """Send one message, and wait for the confirmation."""
        ...

    async def close(self) -> None:
        """Let go of the connection; a later `open` makes a new one."""
        ...


@dataclass(slots=True)
class Fates:
    """What became of a batch. `down` is set when the broker cannot be reached; what is in no list was not tried."""

    sent: list[Outgoing] = field(default_factory=list)
    refused: list[tuple[Outgoing, MessageRefused]] = field(default_factory=list)
    silent: list[Outgoing] = field(default_factory=list)
    down: BrokerUnavailable | None = None

    def untried(self, messages: Sequence[Outgoing]) -> list[Outgoing]:
        """Those of which nothing is to be written down."""
        known = {message.id for message in (*self.sent, *(refused for refused, _ in self.refused))}
        return [message for message in messages if message.id not in known]


def lanes(messages: Sequence[Outgoing]) -> list[list[Outgoing]]:
    """The messages of one topic and key after one another, everything else side by side."""
    found: dict[object, list[Outgoing]] = {}
    for message in messages:
        lane = message.id if message.key is None else (message.topic, message.key)
        found.setdefault(lane, []).append(message)
    return list(found.values())


async def send(
    publisher: Publisher, messages: Sequence[Outgoing], fates: Fates, *, publish_for: float, batch_for: float
) -> None:
    """Send a batch and note the fates. What is not confirmed in time may have arrived: it is sent again."""
    ends_at = asyncio.get_running_loop().time() + batch_for
    fates.down = await _opened(publisher, publish_for)
    if fates.down:
        return
    async with asyncio.TaskGroup() as group:
        for lane in lanes(messages):
            group.create_task(_send_lane(publisher, lane, fates, publish_for, ends_at))
    _judge_silence(publisher, fates, publish_for)


async def _opened(publisher: Publisher, publish_for: float) -> BrokerUnavailable | None:
    """Connect, and say why that was not possible."""
    try:
        async with asyncio.timeout(publish_for):
            await publisher.open()
    except BrokerUnavailable as error:
        return error
    except TimeoutError:
        return BrokerUnavailable(f"{publisher.shown} did not answer within {publish_for:g} s")
    except Exception as error:  # noqa: BLE001 - a relay lives on, whatever a broker's library raises
        log.exception("connecting to %s failed in a way that nobody foresaw", publisher.shown)
        return BrokerUnavailable(f"{publisher.shown}: {type(error).__name__}: {error}")
    return None


async def _send_lane(
    publisher: Publisher, lane: Sequence[Outgoing], fates: Fates, publish_for: float, ends_at: float
) -> None:
    """Nothing of a key overtakes what has failed before it, and nothing is begun that could outlive the lease."""
    for message in lane:
        late = asyncio.get_running_loop().time() + publish_for > ends_at
        if late or fates.down or not await _send_one(publisher, message, fates, publish_for):
            return


async def _send_one(publisher: Publisher, message: Outgoing, fates: Fates, publish_for: float) -> bool:
    try:
        async with asyncio.timeout(publish_for):
            await publisher.publish(message)
    except MessageRefused as error:
        fates.refused.append((message, error))
    except BrokerUnavailable as error:
        fates.down = error
    except TimeoutError:
        fates.silent.append(message)
    except Exception as error:  # noqa: BLE001 - one message that breaks a publisher must not keep the others
        log.exception("publishing to %s failed in a way that nobody foresaw", publisher.shown)
        fates.refused.append((message, MessageRefused(f"{type(error).__name__}: {error}")))
    else:
        fates.sent.append(message)
        return True
    return False


def _judge_silence(publisher: Publisher, fates: Fates, publish_for: float) -> None:
    """A message that got no answer is held against the broker, unless the broker answered others meanwhile."""
    said = f"{publisher.shown} did not confirm it within {publish_for:g} s"
    if fates.silent and not fates.sent and not fates.down:
        fates.down = BrokerUnavailable(said)
    elif fates.sent and not fates.down:
        fates.refused += [(message, MessageRefused(said)) for message in fates.silent]
