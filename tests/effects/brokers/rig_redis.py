from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar

import redis

from oncekey.effects.brokers.consumers.redis import AsyncRedisConsumer, RedisConsumer
from tests.effects.brokers.rigs import Rig


class RedisRig(Rig):
    names_by_itself: ClassVar[bool] = True
    lapses_for: ClassVar[float] = 0.3

    async def create(self) -> None:
        """A consumer makes its stream and its group."""

    async def publish(self, ids: Sequence[str | None], body: bytes = b"{}") -> None:
        with redis.Redis.from_url(self.address) as client:
            for id_ in ids:
                fields: dict[Any, Any] = {"body": body} | ({"oncekey-id": id_} if id_ else {})
                client.xadd(self.queue, fields)

    def consumer(self, handler: Any) -> Any:
        return RedisConsumer(handler, self.address, self.queue, "workers", batch=4, idle_for=0.3)

    async def left(self) -> int:
        with redis.Redis.from_url(self.address) as client:
            (group,) = client.xinfo_groups(self.queue)
            return int(group["pending"]) + int(group["lag"])


class AsyncRedisRig(RedisRig):
    def consumer(self, handler: Any) -> Any:
        return AsyncRedisConsumer(handler, self.address, self.queue, "workers", batch=4, idle_for=0.3)
