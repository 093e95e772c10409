"""Servers that end in the midst of the work: politely, at once, or by their own timeout. Never a second run."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Self

import pytest

from oncekey.core.record import State
from tests.servers.client import Connection, request
from tests.servers.gateways import KINDS, Kind, Pair, gunicorn

LEASE_FOR = 1.0


class Stopping(Pair):
    """Only its first server runs, with a short lease."""

    def __init__(self, kind: Kind, shared: Path) -> None:
        super().__init__(kind, shared, LEASE_FOR)

    def __enter__(self) -> Self:
        self.first.start()
        return self

    def holds(self, *refs: str) -> list[Connection]:
        """Requests whose handlers have begun and wait."""
        connections = []
        for ref in refs:
            connection = Connection(self.first.port)
            connection.send(request("/slow", ref, body=ref.encode()))
            connections.append(connection)
            self.ledger.until(ref)
        return connections

    def told(self, ref: str) -> None:
        """The retry gets the stored answer if the work came to its end, and a refusal if nobody knows; nothing runs."""
        retry = self.first.final("/slow", ref)
        record = self.record("/slow", ref)
        assert record is not None
        assert self.effects(ref) == 1
        if record.state is State.COMPLETED:
            assert (retry.status, retry.replayed, self.ledger.count(ref, "ended")) == (201, True, 1)
        else:
            assert (retry.problem, record.state) == ("outcome-unknown", State.UNKNOWN)


@pytest.fixture(params=KINDS, ids=lambda kind: kind.name)
def server(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stopping]:
    """One server of each kind."""
    with Stopping(request.param, tmp_path_factory.mktemp(request.param.name)) as server:
        yield server


def test_ends(server: Stopping) -> None:
    """SIGTERM with work that ends soon and work that does not, then SIGKILL: after each the record tells the truth."""
    refs = ["soon", "late"] if server.kind.concurrent else ["soon"]
    connections = server.holds(*refs)
    server.first.end_with(lambda: server.ledger.release("soon"))
    server.first.start()
    connections += server.holds("killed")
    server.first.kill()
    server.first.start()
    for ref in (*refs, "killed"):
        server.told(ref)
    killed = server.record("/slow", "killed")
    assert killed is not None
    assert killed.state is State.UNKNOWN
    for connection in connections:
        connection.leave()


def test_workers_timeout(tmp_path: Path) -> None:
    """A gunicorn worker that is over its time gets SystemExit in the handler: unknown, said so in the record."""
    kind = Kind("gunicorn-timeout", "wsgi", gunicorn("sync", "--timeout", "1"), concurrent=False, keeps_alive=False)
    with Stopping(kind, tmp_path) as server:
        [connection] = server.holds("long")
        connection.read_to_end()
        connection.leave()
        server.told("long")
        record = server.record("/slow", "long")
        assert record is not None
        assert (record.state, record.note) == (State.UNKNOWN, "SystemExit: 1")
