"""The warehouse: ships each order once. The name of its message and the shipment are one transaction.

Runs by itself: `DATABASE=postgresql://... BROKER=amqp://... python -m examples.orders.warehouse`
"""

from __future__ import annotations

import asyncio
import os
from typing import Any

import psycopg

from oncekey import Inbox
from oncekey.effects.brokers.consumers.rabbitmq import RabbitConsumer
from oncekey.effects.inbox import Message, Patience

QUEUE = os.environ.get("QUEUE", "orders")


def connect() -> psycopg.Connection[Any]:
    """A connection for one message; a pool's `connection` would do as well."""
    return psycopg.connect(os.environ["DATABASE"])


inbox = Inbox(
    connect,
    consumer="warehouse",
    # An order may be sent again for a week: names of messages are kept for longer than that.
    redelivery_for=7 * 86_400,
    keep_for=14 * 86_400,
    # Killing us often does not make an order poison.
    patience=Patience(attempts=50),
)


@inbox.once(QUEUE)
def ship(message: Message, connection: Any) -> None:
    """Write a shipment. The table would take two for one order: it is the inbox that does not let it happen."""
    connection.execute("INSERT INTO shipments (order_number) VALUES (%s)", (message.json()["number"],))


async def main() -> None:
    """Ship until SIGTERM."""
    await RabbitConsumer(ship, os.environ["BROKER"], QUEUE).run()


if __name__ == "__main__":
    asyncio.run(main())
