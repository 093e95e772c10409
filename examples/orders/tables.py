"""Makes the tables and the queue: `DATABASE=postgresql://... BROKER=amqp://... python -m examples.orders.tables`."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path

import aio_pika
import psycopg

from examples.orders import warehouse
from oncekey import Outbox
from oncekey.stores.open import open_store


def make(database: str, broker: str) -> None:
    """All that the services need to begin. In production this belongs to your migrations."""
    store = open_store(database)
    store.migrate()
    store.close()
    with psycopg.connect(database) as connection:
        connection.execute((Path(__file__).with_name("tables.sql")).read_bytes())
        Outbox().migrate(connection)
    warehouse.inbox.migrate()
    asyncio.run(_queue(broker))


async def _queue(broker: str) -> None:
    async with await aio_pika.connect(broker) as connection, await connection.channel() as channel:
        await channel.declare_queue(warehouse.QUEUE, durable=True)


if __name__ == "__main__":
    make(os.environ["DATABASE"], os.environ["BROKER"])
