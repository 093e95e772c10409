"""While the handler runs: the client leaves, half-closes, or sends its request again, here or to another worker."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import pytest

from oncekey.core.record import State
from tests.servers.client import Connection, request
from tests.servers.gateways import Pair


@pytest.mark.parametrize("how", ["leave", "crash"])
def test_client(pair: Pair, key: str, how: str) -> None:
    """A client that leaves during the work cancels nothing: the outcome is stored and given to its retry."""
    with Connection(pair.first.port) as connection:
        connection.send(request("/slow", key, body=key.encode()))
        pair.ledger.until(key)
        getattr(connection, how)()
    assert pair.second.ask("/slow", key).problem == "in-progress"
    pair.ledger.release(key)
    retry = pair.second.final("/slow", key)
    assert (retry.status, retry.replayed) == (201, True)
    assert (pair.ledger.count(key, "ended"), pair.effects(key)) == (1, 1)


def test_half_close(pair: Pair, key: str) -> None:
    """One that stops sending and goes on listening may or may not be answered; the outcome is stored all the same."""
    with Connection(pair.first.port) as connection:
        connection.send(request("/slow", key, body=key.encode()))
        pair.ledger.until(key)
        connection.half_close()
        assert pair.second.ask("/slow", key).problem == "in-progress"
        pair.ledger.release(key)
        said = connection.read_to_end()
    retry = pair.second.final("/slow", key)
    assert (retry.status, retry.replayed, pair.effects(key)) == (201, True, 1)
    assert not said or retry.body in said


def test_duplicate(pair: Pair, key: str) -> None:
    """409 at once with a truthful Retry-After; the connection is good for the next request, and for the retry."""
    with Connection(pair.first.port) as working, Connection(pair.second.port) as duplicate:
        working.send(request("/slow", key, body=key.encode()))
        pair.ledger.until(key)
        busy = duplicate.ask("/slow", key, body=key.encode())
        other = duplicate.ask("/quick", f"{key}-2", body=f"{key}-2".encode())
        opened = duplicate.opened
        pair.ledger.release(key)
        first = working.receive()
        again = duplicate.ask("/slow", key, body=key.encode())
    assert (busy.status, busy.problem, other.status) == (409, "in-progress", 201)
    assert 1 <= int(busy.all("retry-after")[0]) <= pair.first.lease_for + 3
    assert (again.body, again.replayed, pair.effects(key)) == (first.body, True, 1)
    if pair.kind.keeps_alive:
        assert opened == 1


@pytest.mark.parametrize("turn", range(5))
def test_same_instant(pair: Pair, key: str, turn: int) -> None:
    """What a proxy doubles arrives at two workers at once: one effect, the other is told to wait or gets the answer."""
    whole = request("/quick", key, body=key.encode())
    with Connection(pair.first.port) as one, Connection(pair.second.port) as two, ThreadPoolExecutor(2) as threads:
        for connection in (one, two):
            connection.send(whole[:-1])
        list(threads.map(lambda connection: connection.send(whole[-1:]), (one, two)))
        answers = [one.receive(), two.receive()]
    finals = [answer for answer in answers if answer.status == 201]
    assert [answer.problem for answer in answers if answer not in finals] in ([], ["in-progress"])
    assert sum(not answer.replayed for answer in finals) == 1
    assert len({answer.body for answer in finals}) == pair.effects(key) == 1


def test_late_retry_after_success(pair: Pair, key: str) -> None:
    """Whoever asks after the first client saw its answer gets that answer, from any worker, at once."""
    first = pair.first.ask("/quick", key)
    record = pair.record("/quick", key)
    assert record is not None
    assert record.state is State.COMPLETED
    assert [gateway.ask("/quick", key).body for gateway in (pair.second, pair.first)] == [first.body] * 2
