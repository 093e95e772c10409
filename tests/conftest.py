"""Real servers for all tests, each started when the first test asks for it.

A `..._server` is shared by the whole run: pause it if you must, but leave it running and answering.
A test that kills a server makes its own: `with RedisServer(appendonly="yes") as server`.
A `..._url` is empty for each test. Brokers are shared and never emptied: name your own queues and topics.
"""

from __future__ import annotations

import os
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import NoReturn, TypeVar

import pytest
import redis

from tests.infra import (
    EngineMissing,
    KafkaMock,
    NatsServer,
    PostgresServer,
    RabbitServer,
    Redis62Server,
    RedisServer,
    Server,
    SqsServer,
    ValkeyServer,
)

AnyServer = TypeVar("AnyServer", bound=Server)


def on_missing(missing: EngineMissing) -> NoReturn:
    """Skip the test for want of an engine; where everything must be there (CI), fail it."""
    if os.environ.get("CI") and missing.obtainable:
        pytest.fail(str(missing), pytrace=False)
    pytest.skip(str(missing))


@contextmanager
def started(make: Callable[[], AnyServer]) -> Iterator[AnyServer]:
    """Run a server, or skip when its engine is missing."""
    server = make()
    try:
        server.start()
    except EngineMissing as missing:
        on_missing(missing)
    try:
        yield server
    finally:
        server.close()


@pytest.fixture(scope="session")
def postgres_server() -> Iterator[PostgresServer]:
    """PostgreSQL with fsync on."""
    with started(PostgresServer) as server:
        yield server


@pytest.fixture(scope="session")
def redis_server() -> Iterator[RedisServer]:
    """Debian's Redis."""
    with started(RedisServer) as server:
        yield server


@pytest.fixture(scope="session")
def valkey_server() -> Iterator[ValkeyServer]:
    """Valkey 9."""
    with started(ValkeyServer) as server:
        yield server


@pytest.fixture(scope="session")
def redis62_server() -> Iterator[Redis62Server]:
    """Redis 6.2, the oldest that we support."""
    with started(Redis62Server) as server:
        yield server


@pytest.fixture(scope="session")
def rabbitmq_server() -> Iterator[RabbitServer]:
    """Debian's RabbitMQ."""
    with started(RabbitServer) as server:
        yield server


@pytest.fixture(scope="session")
def nats_server() -> Iterator[NatsServer]:
    """NATS with JetStream."""
    with started(NatsServer) as server:
        yield server


@pytest.fixture(scope="session")
def kafka_mock() -> Iterator[KafkaMock]:
    """A stand-in for Kafka: librdkafka's mock cluster."""
    with started(KafkaMock) as server:
        yield server


@pytest.fixture(scope="session")
def sqs_server() -> Iterator[SqsServer]:
    """A stand-in for Amazon SQS: moto's server."""
    with started(SqsServer) as server:
        yield server


@pytest.fixture
def postgres_url(postgres_server: PostgresServer) -> Iterator[str]:
    """A database of this test's own."""
    with postgres_server.new_database(f"test_{uuid.uuid4().hex}") as url:
        yield url


@pytest.fixture
def redis_url(redis_server: RedisServer) -> str:
    """An empty Redis."""
    return emptied(redis_server)


@pytest.fixture
def valkey_url(valkey_server: ValkeyServer) -> str:
    """An empty Valkey."""
    return emptied(valkey_server)


@pytest.fixture
def redis62_url(redis62_server: Redis62Server) -> str:
    """An empty Redis 6.2."""
    return emptied(redis62_server)


def emptied(server: RedisServer) -> str:
    """Delete all keys and functions that an earlier test left."""
    with redis.Redis.from_url(server.url) as client:
        client.flushall()
        client.script_flush()
    return server.url
