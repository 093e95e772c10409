"""What both consumers of Kafka do: partitions, each a lane of its own, and offsets that follow the database.

A lane's messages are handled in order, a batch in one transaction. What fails waits in its lane, which is paused
meanwhile. Offsets are told to Kafka after the commit; the database's word is what counts, so a lost one does no harm.
"""

from __future__ import annotations

import time
from abc import abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final

from oncekey.effects.brokers.consumers.life import AnyHandler, Consumer, within
from oncekey.effects.inbox import GivenUp, Handled, Later, Message, Verdict
from oncekey.effects.link import Flow
from oncekey.engine.events import log
from oncekey.errors import ConfigurationError

POLL_FOR: Final = 0.3
BATCH: Final = 50
BATCH_MOST: Final = 10_000
# What is asked of Kafka besides messages is answered in this time, or counts as trouble.
ASK_FOR: Final = 10.0
# Offsets that were not taken are told again after this long.
TELL_AGAIN_AFTER: Final = 1.0


@dataclass(slots=True)
class Lane:
    """A partition that is ours. Its first `doubtful` messages, a batch, may have been in the hands of one that died."""

    doubtful: int
    waiting: list[Message] = field(default_factory=list)
    due_at: float = 0.0
    reached: int = -1
    told: int = -1
    end: int = -1

    def marked(self, messages: Sequence[Message]) -> list[Message]:
        """The messages, those that may have been begun before marked as redelivered: Kafka does not say."""
        first = [replace(message, redelivered=True) for message in messages[: self.doubtful]]
        return [*first, *messages[self.doubtful :]]

    def took(self, messages: Sequence[Message], verdicts: Sequence[Verdict], now: float) -> None:
        """Remember what became of them: what waits, until when, and up to where all is done."""
        later = [verdict for verdict in verdicts if isinstance(verdict, Later)]
        known = sum(isinstance(verdict, Handled) and verdict.how == "duplicate" for verdict in verdicts)
        self.doubtful = max(0, self.doubtful - (len(verdicts) - known))
        self.waiting = [
            replace(message, redelivered=True)
            for message, verdict in zip(messages, verdicts, strict=True)
            if isinstance(verdict, Later)
        ]
        self.due_at = now + max((verdict.after for verdict in later), default=0.0)
        self.end = max(self.end, offset(messages[-1]) + 1)
        self.reached = offset(self.waiting[0]) if self.waiting else self.end


def offset(message: Message) -> int:
    """A message's place in its partition."""
    return -1 if message.place is None else message.place[1]


def begin_at(place: int | None, low: int, high: int, partition: str) -> int | None:
    """Ordered mode: where to begin, by the database. None: as Kafka says."""
    if place is None:
        return None
    if place >= high:
        raise ConfigurationError(
            f"{partition} ends before offset {high}, and offset {place} was handled: the topic was made anew, or has "
            f"lost messages, and what comes would pass for duplicates; call inbox.forget_places(...) to begin anew"
        )
    if place + 1 < low:
        log.error(
            "%s begins at offset %d, and only those up to %d were handled: the rest is gone", partition, low, place
        )
    return max(low, place + 1)


def kept_for(configs: Mapping[str, str | None]) -> float | None:
    """For how long a topic keeps messages, by its settings; a segment is deleted as a whole, some time later."""
    milliseconds = int(configs.get("retention.ms") or -1)
    if milliseconds < 0 or "delete" not in (configs.get("cleanup.policy") or "delete"):
        return None
    return (milliseconds + int(configs.get("segment.ms") or 0)) / 1000


class Partitioned(Consumer):
    """A consumer of one topic in a group."""

    has_places = True

    def __init__(self, handler: AnyHandler, topic: str, batch: int) -> None:
        super().__init__(handler, f"the topic {topic!r} of Kafka")
        if topic.startswith("^"):
            raise ConfigurationError(
                f"{topic!r} is a pattern, and offsets are those of one topic: write a consumer for each"
            )
        self.topic = topic
        self.batch = within("batch", batch, BATCH_MOST)
        self.lanes: dict[int, Lane] = {}
        self._tell_at = 0.0

    @property
    def must_compare(self) -> bool:
        """Whether nothing can be handled before the topic's retention is known: nobody has said for how long."""
        return not (self.handler.rules.ordered or self.handler.inbox.choices.compared)

    @abstractmethod
    def pause(self, partition: int) -> Any:
        """Fetch nothing more of a partition."""

    @abstractmethod
    def resume(self, partition: int) -> Any:
        """Fetch of it again."""

    @abstractmethod
    def commit(self, offsets: Mapping[int, int]) -> Any:
        """Tell Kafka where each partition's next owner is to begin."""

    def poll_for(self) -> float:
        """How long to wait for messages: not beyond the next attempt that is due."""
        due = [lane.due_at for lane in self.lanes.values() if lane.waiting]
        return max(0.0, min(POLL_FOR, min(due, default=float("inf")) - time.monotonic()))

    def handle(self, fetched: Mapping[int, list[Message]]) -> Flow[None]:
        """See to what was fetched, and to what is due again."""
        now = time.monotonic()
        due = {at: lane.waiting for at, lane in self.lanes.items() if lane.waiting and lane.due_at <= now}
        for partition, messages in (dict(fetched) | due).items():
            lane = self.lanes.get(partition)
            if lane is not None:
                yield from self._in_lane(partition, lane, messages)
        if time.monotonic() >= self._tell_at:
            yield from self.tell()

    def _in_lane(self, partition: int, lane: Lane, messages: list[Message]) -> Flow[None]:
        held = bool(lane.waiting)
        verdicts = yield self.ask(self.handler.deliver_many, lane.marked(messages))
        if self.lanes.get(partition) is not lane:
            return  # somebody else's by now, and so are its offsets
        lane.took(messages, verdicts, time.monotonic())
        for verdict in verdicts:
            if isinstance(verdict, GivenUp):
                log.error("a message of %s was given up: %s", self.broker, verdict.reason)
        if lane.waiting and not held:
            yield self.pause(partition)
        elif held and not lane.waiting:
            yield self.resume(partition)

    def tell(self) -> Flow[None]:
        """Tell Kafka what is new. If it does not want to hear, the next one will hear it, or it is another's by now."""
        new = {at: lane.reached for at, lane in self.lanes.items() if lane.reached > lane.told}
        if not new:
            return
        try:
            yield self.commit(new)
        except Exception as error:  # noqa: BLE001 - what comes again because of it is recognised
            log.info("%s did not take offsets: %s", self.broker, error)
            self._tell_at = time.monotonic() + TELL_AGAIN_AFTER
        else:
            for partition, reached in new.items():
                if partition in self.lanes:
                    self.lanes[partition].told = reached

    def lost(self, partitions: Sequence[int]) -> None:
        """These are another's now. What waited in them is dropped; it is in Kafka."""
        for partition in partitions:
            self.lanes.pop(partition, None)

    def place(self, partition: int) -> Any:
        """Ordered mode: how far the database is."""
        return self.ask(self.handler.inbox.place, self.source, partition)

    def unreadable(self, error: Exception) -> None:
        """Say that the retention is not known. The window is then up to the user, and is asked for."""
        log.warning("the retention of %s cannot be read, so it is not compared with keep_for=: %s", self.broker, error)
