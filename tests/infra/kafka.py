"""A stand-in for Kafka: librdkafka's mock cluster, in a process of its own.

It speaks the protocol, with groups, idempotent producers and transactions, to any client. It has no disk and no
replicas: it proves what a client does, not what a broker keeps. Topics are made when first used, with four partitions.
"""

from __future__ import annotations

import contextlib
import socket
import sys
from typing import ClassVar

from tests.infra.process import Server

MOCK = """
import os
from confluent_kafka import Producer
producer = Producer({"test.mock.num.brokers": 1})
(broker,) = producer.list_topics(timeout=20).brokers.values()
with open("address.new", "w") as file:
    file.write(f"{broker.host}:{broker.port}")
os.rename("address.new", "address")
while True:
    producer.poll(1)
"""


class KafkaMock(Server):
    """A mock cluster of one broker. It chooses its port, and after a kill starts empty on another one."""

    name: ClassVar[str] = "the Kafka mock cluster"

    @property
    def bootstrap(self) -> str:
        """Where clients connect, as `bootstrap.servers` wants it."""
        return (self.folder / "address").read_text()

    @property
    def url(self) -> str:
        return f"kafka://{self.bootstrap}"

    def command(self) -> list[str]:
        return [sys.executable, "-c", MOCK]

    def start(self) -> None:
        if self.port and not self.running:
            (self.folder / "address").unlink(missing_ok=True)
        super().start()

    def answers(self) -> bool:
        with contextlib.suppress(OSError):
            host, _, port = self.bootstrap.partition(":")
            with socket.create_connection((host, int(port)), timeout=1):
                return True
        return False
