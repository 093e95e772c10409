"""The consumer of NATS JetStream, on a real server."""

from __future__ import annotations

from typing import ClassVar

import pytest

from tests.effects.brokers.scenarios import LapsingConsumer
from tests.infra import NatsServer


@pytest.fixture
def address(nats_server: NatsServer) -> str:
    return nats_server.url


class TestNats(LapsingConsumer):
    """Every scenario."""

    name: ClassVar[str] = "nats"
