"""A pair of servers of each kind, started once for all scenarios."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.servers.gateways import KINDS, Pair


@pytest.fixture(scope="session", params=KINDS, ids=lambda kind: kind.name)
def pair(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Pair]:
    """Two servers of one kind on one store. Whatever the scenarios did: no operation had two effects."""
    with Pair(request.param, tmp_path_factory.mktemp(request.param.name)) as pair:
        yield pair
        assert pair.ledger.doubled() == []


@pytest.fixture
def key(request: pytest.FixtureRequest) -> str:
    """A key of this test's own; it is the reference in the ledger too."""
    name, _, parameters = request.node.name.removeprefix("test_").partition("[")
    return f"{name}-{parameters.rstrip(']')}".replace(" ", "_")
