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

GROUP_WAITS_FOR = 100  # milliseconds
# Made by librdkafka's own functions: through confluent-kafka, a new group would wait three seconds for more members.
MOCK = f"""
import ctypes, glob, os, time
import confluent_kafka
(library,) = glob.glob(os.path.dirname(confluent_kafka.__file__) + ".libs/librdkafka*.so*")
kafka = ctypes.CDLL(library)
pointer = ctypes.c_void_p
kafka.rd_kafka_new.restype = kafka.rd_kafka_mock_cluster_new.restype = pointer
kafka.rd_kafka_mock_cluster_bootstraps.restype = ctypes.c_char_p
reason = ctypes.create_string_buffer(512)
client = pointer(kafka.rd_kafka_new(0, None, reason, len(reason)))
cluster = pointer(kafka.rd_kafka_mock_cluster_new(client, 1))
kafka.rd_kafka_mock_group_initial_rebalance_delay_ms(cluster, {GROUP_WAITS_FOR})
with open("address.new", "wb") as file:
    file.write(kafka.rd_kafka_mock_cluster_bootstraps(cluster))
os.rename("address.new", "address")
while True:
    time.sleep(60)
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
