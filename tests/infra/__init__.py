"""Throw-away real servers for tests: one context manager per engine.

with RedisServer(appendonly="yes") as server:
    use(server.url)
    server.kill()       # SIGKILL to all its processes
    server.start()      # the same port and data again

Each runs as a direct child on a free loopback port, keeps its data in a temporary folder, and ends with this process,
however this process ends.
"""

from tests.infra.kafka import KafkaMock
from tests.infra.nats import NatsServer
from tests.infra.postgres import PostgresServer
from tests.infra.process import EngineMissing, Server, ServerFailed
from tests.infra.prometheus import PrometheusServer
from tests.infra.rabbitmq import RabbitServer
from tests.infra.redis import Redis62Server, RedisServer, ValkeyServer
from tests.infra.sqs import SqsServer

__all__ = [
    "EngineMissing",
    "KafkaMock",
    "NatsServer",
    "PostgresServer",
    "PrometheusServer",
    "RabbitServer",
    "Redis62Server",
    "RedisServer",
    "Server",
    "ServerFailed",
    "SqsServer",
    "ValkeyServer",
]
