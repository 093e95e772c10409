"""Kafka under threads, by confluent-kafka."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from confluent_kafka import Consumer as Client
from confluent_kafka import KafkaException, TopicPartition
from confluent_kafka import Message as Raw
from confluent_kafka.admin import AdminClient, ConfigResource  # type: ignore[attr-defined]

from oncekey.effects.brokers.consumers.lanes import ASK_FOR, BATCH, Lane, Partitioned, begin_at, kept_for
from oncekey.effects.brokers.consumers.life import AnyHandler, ThreadConsumer
from oncekey.effects.brokers.consumers.reading import id_in, text, texts
from oncekey.effects.inbox import Message
from oncekey.errors import ConfigurationError


class KafkaConsumer(Partitioned, ThreadConsumer):
    """Handle the messages of a topic, as a member of a group. `settings` are those of librdkafka.

    Of each partition `batch` messages are handled in one transaction; all of them together must take less than
    max.poll.interval.ms. In ordered mode a partition begins where the database is, whatever Kafka remembers.
    """

    def __init__(self, handler: AnyHandler, topic: str, settings: Mapping[str, Any], *, batch: int = BATCH) -> None:
        super().__init__(handler, topic, batch)
        if not settings.get("group.id"):
            raise ConfigurationError("a consumer of Kafka is a member of a group: write 'group.id' into its settings")
        if str(settings.get("enable.auto.commit", "false")).lower() == "true":
            raise ConfigurationError(
                "'enable.auto.commit' tells Kafka of messages that were not handled yet: leave it out, and offsets are "
                "committed after the database's commit"
            )
        self._settings = {"auto.offset.reset": "earliest", **settings, "enable.auto.commit": False}
        assignors = str(settings.get("partition.assignment.strategy", ""))
        self._little_by_little = "cooperative" in assignors or settings.get("group.protocol") == "consumer"
        self._client: Client | None = None
        self._asked: tuple[Any, Any] | None = None

    def open(self) -> None:
        if not self.handler.rules.ordered:
            self._ask()
        if self.must_compare:
            self._compare()
        self._client = Client(self._settings)
        self._client.subscribe([self.topic], on_assign=self._assigned, on_revoke=self._revoked, on_lost=self._lost)

    def _ask(self) -> None:
        """Ask for the topic's settings. They may take a while, and are awaited only where they are needed to begin."""
        known = {name: value for name, value in self._settings.items() if not callable(value)}
        admin = AdminClient(known | {"log_level": 3})
        topic = ConfigResource(ConfigResource.Type.TOPIC, self.topic)
        (answer,) = admin.describe_configs([topic], request_timeout=ASK_FOR).values()
        self._asked = admin, answer  # without its client there is no answer

    def _compare(self) -> None:
        if self._asked is None:
            return
        _, answer = self._asked
        try:
            found = answer.result(ASK_FOR)
        except (KafkaException, TimeoutError) as error:
            self.unreadable(error)
        else:
            self.horizon(kept_for({name: entry.value for name, entry in found.items()}))
        self._asked = None

    def step(self) -> None:
        if self._asked is not None and self._asked[1].done():
            self._compare()
        fetched: dict[int, list[Message]] = {}
        for raw in self._joined().consume(self.batch, self.poll_for()):
            error = raw.error()
            if error is not None:
                raise KafkaException(error)
            message = self.message(raw)
            fetched.setdefault(raw.partition() or 0, []).append(message)
        self.drive(self.handle(fetched))

    def close(self) -> None:
        client, self._client, self._asked = self._client, None, None
        if client is not None:
            try:
                client.close()  # leaves the group; our callback commits first
            finally:
                self.lanes.clear()

    def message(self, raw: Raw) -> Message:
        """The message in our words; its id is our header."""
        given: Any = raw.headers() or ()
        headers = texts(given)
        key, (kind, stamp) = raw.key(), raw.timestamp()
        return Message(
            self.source,
            raw.value() or b"",
            id_in(headers),
            headers,
            None if key is None else text(key),
            stamp / 1000 if kind else None,
            place=(raw.partition() or 0, raw.offset() or 0),
            raw=raw,
        )

    def pause(self, partition: int) -> None:
        self._joined().pause([TopicPartition(self.topic, partition)])

    def resume(self, partition: int) -> None:
        self._joined().resume([TopicPartition(self.topic, partition)])

    def commit(self, offsets: Mapping[int, int]) -> None:
        wanted = [TopicPartition(self.topic, partition, reached) for partition, reached in offsets.items()]
        for told in self._joined().commit(offsets=wanted, asynchronous=False) or ():
            if told.error is not None:
                raise KafkaException(told.error)

    # ---- rebalance: called from inside consume() and close(), so never while messages are being handled -------------

    def _assigned(self, client: Client, partitions: list[TopicPartition]) -> None:
        for one in partitions:
            lane = self.lanes[one.partition] = Lane(self.batch)
            begin = self._begin(client, one) if self.handler.rules.ordered else None
            if begin is not None:
                one.offset = lane.reached = begin  # which Kafka is told, too
        if self._little_by_little:
            client.incremental_assign(partitions)
        else:
            client.assign(partitions)

    def _begin(self, client: Client, one: TopicPartition) -> int | None:
        low, high = client.get_watermark_offsets(one, timeout=ASK_FOR)
        return begin_at(self.place(one.partition), low, high, f"partition {one.partition} of {self.broker}")

    def _revoked(self, client: Client, partitions: list[TopicPartition]) -> None:
        """All that was begun is finished: say so, and let go of what waits."""
        self._client, before = client, self._client  # close() has taken it away already
        try:
            self.drive(self.tell())
        finally:
            self._client = before
        self._lost(client, partitions)

    def _lost(self, client: Client, partitions: list[TopicPartition]) -> None:
        """They are another's already: nothing may be said of them."""
        self.lost([one.partition for one in partitions])

    def _joined(self) -> Client:
        if self._client is None:
            raise ConnectionError("not connected")
        return self._client
