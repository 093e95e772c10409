"""Kafka under asyncio, by aiokafka."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Iterable, Mapping
from typing import Any, Final

from aiokafka import AIOKafkaConsumer, ConsumerRebalanceListener, ConsumerRecord, TopicPartition
from aiokafka.admin import AIOKafkaAdminClient
from aiokafka.admin.config_resource import ConfigResource, ConfigResourceType
from aiokafka.errors import KafkaError, for_code

from oncekey.effects.brokers.consumers.lanes import ASK_FOR, BATCH, Lane, Partitioned, begin_at, kept_for
from oncekey.effects.brokers.consumers.life import AnyHandler, AsyncConsumer
from oncekey.effects.brokers.consumers.reading import id_in, text, texts
from oncekey.effects.inbox import Message
from oncekey.errors import ConfigurationError

# What a connection for administration takes of a consumer's settings.
ADMIN: Final = frozenset(inspect.signature(AIOKafkaAdminClient.__init__).parameters) - {"self", "loop", "client_id"}


class AioKafkaConsumer(Partitioned, AsyncConsumer):
    """Handle the messages of a topic, as a member of a group. `settings` are those of AIOKafkaConsumer.

    Of each partition `batch` messages are handled in one transaction; all of them together must take less than
    max_poll_interval_ms. In ordered mode a partition begins where the database is, whatever Kafka remembers.
    """

    def __init__(self, handler: AnyHandler, topic: str, *, batch: int = BATCH, **settings: Any) -> None:
        super().__init__(handler, topic, batch)
        if not settings.get("group_id"):
            raise ConfigurationError("a consumer of Kafka is a member of a group: write group_id=")
        if settings.get("enable_auto_commit"):
            raise ConfigurationError(
                "enable_auto_commit tells Kafka of messages that were not handled yet: leave it out, and offsets are "
                "committed after the database's commit"
            )
        # Its own defaults would begin at the end, and hand out what a producer took back.
        defaults = {"auto_offset_reset": "earliest", "isolation_level": "read_committed"}
        self._settings = defaults | settings | {"enable_auto_commit": False}
        self._client: AIOKafkaConsumer | None = None
        self._working = asyncio.Lock()
        self._wrong: Exception | None = None
        self._asked: asyncio.Future[dict[str, str | None]] | None = None

    async def open(self) -> None:
        self._wrong = None
        if not self.handler.rules.ordered:
            self._asked = asyncio.ensure_future(self._ask())
        if self.must_compare:
            await self._compare()
        self._client = AIOKafkaConsumer(**self._settings)
        self._client.subscribe([self.topic], listener=_Listener(self))
        await self._client.start()

    async def _ask(self) -> dict[str, str | None]:
        """The topic's settings. They may take a while, and are awaited only where they are needed to begin."""
        admin = AIOKafkaAdminClient(**{name: value for name, value in self._settings.items() if name in ADMIN})
        try:
            await admin.start()
            (answer,) = await admin.describe_configs([ConfigResource(ConfigResourceType.TOPIC, self.topic)])
            ((code, _, _, _, entries),) = answer.resources
            if code:
                raise for_code(code)
            return {entry[0]: entry[1] for entry in entries}
        finally:
            await admin.close()

    async def _compare(self) -> None:
        asked, self._asked = self._asked, None
        if asked is None:
            return
        try:
            async with asyncio.timeout(ASK_FOR):
                found = await asked
        except (KafkaError, ValueError, TimeoutError) as error:
            self.unreadable(error)
        else:
            self.horizon(kept_for(found))

    async def step(self) -> None:
        if self._asked is not None and self._asked.done():
            await self._compare()
        fetched = await self._joined().getmany(timeout_ms=round(self.poll_for() * 1000), max_records=self.batch)
        async with self._working:
            if self._wrong is not None:
                raise self._wrong
            await self.drive(self.handle(self._messages(fetched)))

    def _messages(self, fetched: Mapping[TopicPartition, list[Any]]) -> dict[int, list[Message]]:
        """What has come, by partition. The client fetches before `take` is done: then it is asked to do so again."""
        client, found = self._joined(), {}
        for one, records in fetched.items():
            if one.partition in self.lanes:
                found[one.partition] = [self.message(raw) for raw in records]
            elif one in client.assignment():
                client.seek(one, records[0].offset)
        return found

    async def close(self) -> None:
        if self._asked is not None:
            self._asked.cancel()
        client = self._client
        if client is None:
            return
        try:
            await self.drive(self.tell())
        finally:
            self._client = None
            self.lanes.clear()
            await client.stop()

    def message(self, raw: ConsumerRecord[Any, Any]) -> Message:
        """The message in our words; its id is our header."""
        headers = texts(raw.headers)
        return Message(
            self.source,
            raw.value or b"",
            id_in(headers),
            headers,
            None if raw.key is None else text(raw.key),
            raw.timestamp / 1000 if raw.timestamp > 0 else None,
            place=(raw.partition, raw.offset),
            raw=raw,
        )

    async def pause(self, partition: int) -> None:
        self._joined().pause(TopicPartition(self.topic, partition))

    async def resume(self, partition: int) -> None:
        self._joined().resume(TopicPartition(self.topic, partition))

    async def commit(self, offsets: Mapping[int, int]) -> None:
        wanted = {TopicPartition(self.topic, partition): reached for partition, reached in offsets.items()}
        await self._joined().commit(wanted)

    async def take(self, partitions: Iterable[TopicPartition]) -> None:
        """These are ours from now on. What goes wrong here would be logged and forgotten, so it is kept for `step`."""
        try:
            for one in partitions:
                lane = Lane(self.batch)
                if self.handler.rules.ordered:
                    await self._seek(one, lane)
                self.lanes[one.partition] = lane
        except Exception as error:  # noqa: BLE001 - as above
            self._wrong = error

    async def _seek(self, one: TopicPartition, lane: Lane) -> None:
        client = self._joined()
        low, high = await client.beginning_offsets([one]), await client.end_offsets([one])
        place = await self.place(one.partition)
        begin = begin_at(place, low[one], high[one], f"partition {one.partition} of {self.broker}")
        if begin is not None:
            client.seek(one, begin)
            lane.reached = begin  # which Kafka is told, too

    async def let_go(self, partitions: Iterable[TopicPartition]) -> None:
        """Finish what was begun, say so, and let go of what waits."""
        async with self._working:
            await self.drive(self.tell())
            self.lost([one.partition for one in partitions])

    def _joined(self) -> AIOKafkaConsumer:
        if self._client is None:
            raise ConnectionError("not connected")
        return self._client


class _Listener(ConsumerRebalanceListener):  # type: ignore[misc]  # aiokafka has no types
    def __init__(self, consumer: AioKafkaConsumer) -> None:
        self._consumer = consumer

    async def on_partitions_revoked(self, revoked: Iterable[TopicPartition]) -> None:
        await self._consumer.let_go(revoked)

    async def on_partitions_assigned(self, assigned: Iterable[TopicPartition]) -> None:
        await self._consumer.take(assigned)
