"""Consumers that ask for messages, a few at a time: receive, handle in one transaction, settle each.

A broker's own file gives `receive`, `beat`, `acknowledge`, `put_back` and `give_up`; what they return is awaited under
asyncio.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from itertools import groupby
from typing import Any, Final, NamedTuple

from oncekey.effects.brokers.consumers.life import AsyncConsumer, Consumer, ThreadConsumer
from oncekey.effects.inbox import GivenUp, Handled, Later, Message, Verdict
from oncekey.effects.link import Flow

# It comes again together with the one before it, which the broker holds back.
BEHIND: Final = Later(0, "a message before it waits")


class Settling(Consumer):
    """What a verdict means to a broker."""

    @abstractmethod
    def acknowledge(self, raws: Sequence[Any]) -> Any:
        """The broker may forget these."""

    @abstractmethod
    def put_back(self, raw: Any, after: float) -> Any:
        """It is to come again, not sooner than in so many seconds."""

    @abstractmethod
    def give_up(self, raw: Any, reason: str) -> Any:
        """It is to go to the broker's dead letters."""

    def settle(self, raw: Any, verdict: Verdict) -> Any:
        """Do what the inbox has decided. Its transaction is over by now."""
        if isinstance(verdict, Handled):
            return self.acknowledge([raw])
        if isinstance(verdict, GivenUp):
            return self.give_up(raw, verdict.reason)
        return self.put_back(raw, verdict.after)


class Received(NamedTuple):
    """A message as it was received. Those of one `group` are handled in order, and none behind one that waits."""

    message: Message
    raw: Any
    group: str | None = None


class Pulling(Settling):
    """A consumer that asks. `keep_every` is how often the broker must be told that a message is still being handled."""

    keep_every: float

    @abstractmethod
    def receive(self) -> Flow[list[Received]]:
        """Ask for some messages, and wait a moment if there are none."""

    @abstractmethod
    def beat(self, raws: Sequence[Any]) -> Any:
        """Tell the broker that these are still being handled."""

    def step(self) -> Any:
        return self.drive(self._step())

    def _step(self) -> Flow[None]:
        received = yield from self.receive()
        if not received:
            return
        raws = [one.raw for one in received]
        keeper = self.keeper(self.keep_every, lambda: self.beat(raws))
        try:
            verdicts = yield from self._handle(received)
        except BaseException:
            yield keeper.end()
            raise
        yield keeper.end()
        settled = list(zip(raws, verdicts, strict=True))
        done = [raw for raw, verdict in settled if isinstance(verdict, Handled)]
        if done:
            yield self.acknowledge(done)
        for raw, verdict in settled:
            if not isinstance(verdict, Handled):
                yield self.settle(raw, verdict)

    def _handle(self, received: Sequence[Received]) -> Flow[list[Verdict]]:
        verdicts: dict[int, Verdict] = {}
        numbered = sorted(enumerate(received), key=lambda each: each[1].group or "")
        for group, members in groupby(numbered, key=lambda each: each[1].group):
            together = list(members)
            messages = [one.message for _, one in together]
            found = yield from (self._in_turn(messages) if group else self._at_once(messages))
            verdicts.update(zip((number for number, _ in together), found, strict=True))
        return [verdicts[number] for number in range(len(received))]

    def _at_once(self, messages: list[Message]) -> Flow[list[Verdict]]:
        return (yield self.ask(self.handler.deliver_many, messages))  # type: ignore[no-any-return]

    def _in_turn(self, messages: list[Message]) -> Flow[list[Verdict]]:
        verdicts: list[Verdict] = []
        for message in messages:
            if verdicts and isinstance(verdicts[-1], Later):
                verdicts.append(BEHIND)
            else:
                verdicts.append((yield self.ask(self.handler.deliver, message)))
        return verdicts


class PullingConsumer(ThreadConsumer, Pulling):
    """One that blocks its thread."""


class AsyncPullingConsumer(AsyncConsumer, Pulling):
    """One on an event loop."""
