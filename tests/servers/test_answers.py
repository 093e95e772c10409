"""What goes back: the first answer, its replays, streams, broken answers, and requests that are not ours."""

from __future__ import annotations

import base64
import os

import pytest

from oncekey.core.record import State
from tests.servers.client import Connection, ask, head, request
from tests.servers.gateways import ASGI, Pair
from tests.servers.settings import MAX_KEPT, PIECE

only_asgi = pytest.mark.parametrize("pair", ASGI, ids=lambda kind: kind.name, indirect=True)


def test_replay(pair: Pair, key: str) -> None:
    """The same status, bytes and repeated headers in order, from another process; cookies go to the first alone."""
    first, again = pair.first.ask("/quick", key), pair.second.ask("/quick", key)
    assert (first.status, again.status, first.body) == (201, 201, again.body)
    assert [first.all("x-part"), again.all("x-part")] == [["1", "2"], ["1", "2"]]
    assert [first.all("set-cookie"), again.all("set-cookie")] == [["s=1", "t=2"], []]
    assert [first.replayed, again.replayed, pair.effects(key)] == [False, True, 1]
    assert len(again.all("date")) == 1


def test_pieces(pair: Pair, key: str) -> None:
    """An answer in pieces, by a generator where the interface has them, is stored whole; the generator is closed."""
    first, again = pair.first.ask("/generator", key), pair.second.ask("/generator", key)
    assert first.body.startswith(PIECE * 2)
    assert (again.body, again.replayed, pair.effects(key)) == (first.body, True, 1)
    if pair.kind.interface == "wsgi":
        assert pair.ledger.count(key, "closed") == 1


def test_long(pair: Pair, key: str) -> None:
    """An answer longer than is kept flows, and goes out whole; the retry is told that it was done, and runs nothing."""
    ended = []

    def pause() -> None:
        ended.append(pair.ledger.count(key, "ended"))
        pair.ledger.release(key)

    with Connection(pair.first.port) as connection:
        connection.send(request("/long", key, body=key.encode()))
        first = connection.receive(pause_at=MAX_KEPT, pause=pause)
    assert ended == [0]
    assert (first.status, len(first.body) > 2 * MAX_KEPT) == (201, True)
    again = pair.second.ask("/long", key)
    assert (again.status, again.problem, pair.effects(key)) == (410, "answer-not-kept", 1)
    if pair.kind.interface == "wsgi":
        pair.ledger.until(key, "closed")
        assert pair.ledger.count(key, "closed") == 1


def test_long_left(pair: Pair, key: str) -> None:
    """A client that leaves in the midst of such an answer changes nothing; the application is closed all the same."""
    with Connection(pair.first.port) as connection:
        connection.send(request("/long", key, body=key.encode()))
        connection.read(1000)
        connection.crash()
    pair.ledger.release(key)
    assert pair.second.final("/long", key).status == 410
    if pair.kind.interface == "wsgi":
        pair.ledger.until(key, "closed")
        assert pair.ledger.count(key, "closed") == 1
    assert pair.effects(key) == 1


@pytest.mark.parametrize("path", ["/raise", "/twice"])
def test_broken(pair: Pair, key: str, path: str) -> None:
    """An application that fails after its effect: the client is told that nobody knows, and so is every retry."""
    answers = [pair.first.ask(path, key), pair.second.ask(path, key)]
    assert [answer.problem for answer in answers] == ["outcome-unknown"] * 2
    assert [answer.status for answer in answers] == [409, 409]
    record = pair.record(path, key)
    assert record is not None
    assert (record.state, pair.effects(key)) == (State.UNKNOWN, 1)


@only_asgi
def test_after_the_answer(pair: Pair, key: str) -> None:
    """Work after the answer neither holds it back nor changes it, though it fails."""
    with Connection(pair.first.port) as connection:
        connection.send(request("/later", key, body=key.encode()))
        first = connection.receive()
        assert pair.second.ask("/later", key).body == first.body
        assert pair.ledger.count(key, "ended") == 0
        pair.ledger.release(key)
        pair.ledger.until(key, "ended")
    again = pair.first.ask("/later", key)
    assert (again.body, again.replayed, pair.effects(key)) == (first.body, True, 1)


@pytest.mark.parametrize("method", ["GET", "HEAD", "OPTIONS", "PUT", "DELETE"])
def test_other_methods(pair: Pair, key: str, method: str) -> None:
    """A key changes nothing for methods that are not ours: the application answers each time."""
    with Connection(pair.first.port) as connection:
        answers = [connection.ask(f"/any?{key}", key, body=b"", method=method) for _ in range(2)]
    assert [answer.status for answer in answers] == [200, 200]
    assert [answer.body for answer in answers] == [b"" if method == "HEAD" else b"got"] * 2
    assert [answer.all("x-method") for answer in answers] == [[method]] * 2
    assert (pair.ledger.count(key, method), pair.record(f"/any?{key}", key)) == (2, None)


def test_other_stream(pair: Pair, key: str) -> None:
    """A stream that is not ours flows: its first piece is there before its last one is made."""
    with Connection(pair.first.port) as connection:
        connection.send(request(f"/stream?{key}", method="GET"))
        assert b" 200 " in connection.read_until(b"first")
        assert pair.ledger.count(key, "ended") == 0
        pair.ledger.release(key)
        assert connection.read_until(b"last").endswith(b"last")


@only_asgi
def test_websocket(pair: Pair, key: str) -> None:
    """A websocket passes, key or no key."""
    nonce = base64.b64encode(os.urandom(16)).decode()
    upgrade = (
        f"Upgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Key: {nonce}\r\n"
    )
    mask = b"mask"
    masked = bytes(letter ^ mask[at % 4] for at, letter in enumerate(key.encode()))
    with Connection(pair.first.port) as connection:
        opening = head("/ws", key, length=0, method="GET").replace(b"Content-Length: 0\r\n", upgrade.encode())
        connection.send(opening)
        assert b" 101 " in connection.read_until(b"\r\n\r\n")
        connection.send(bytes([0x81, 0x80 | len(masked)]) + mask + masked)
        assert connection.read(2 + len(masked)) == bytes([0x81, len(masked)]) + key.encode()


def test_lifespan(pair: Pair) -> None:
    """The application behind us hears of its start, once in each process (ASGI)."""
    starts = pair.ledger.count("lifespan", "startup")
    assert starts == (2 if pair.kind.interface == "asgi" else 0)


def test_one_connection(pair: Pair, key: str) -> None:
    """A connection stays usable after a first answer, a replay, a refusal; an unread upload may end it."""
    body, bulky = key.encode(), key.encode() + b"\n" + bytes(200_000)
    with Connection(pair.first.port) as connection:
        first = connection.ask("/quick", key, body=body)
        again = connection.ask("/quick", key, body=body)
        mismatch = connection.ask("/quick", key, body=bulky)
        opened = connection.opened
        keyless = connection.ask("/quick", body=bulky)
        other = connection.ask_or_reopen("/quick", f"{key}-2", body=body + b"-2")
    assert [a.status for a in (first, again, mismatch, keyless, other)] == [201, 201, 422, 400, 201]
    assert (again.body, mismatch.problem, pair.effects(key)) == (first.body, "key-reused", 1)
    if pair.kind.keeps_alive:
        assert opened == 1


def test_two_callers(pair: Pair, key: str) -> None:
    """One caller's key means nothing for another."""
    mine = pair.first.ask("/quick", key)
    theirs = request("/quick", key, body=f"{key}-theirs".encode()).replace(b"alice", b"carol")
    with Connection(pair.second.port) as connection:
        connection.send(theirs)
        other = connection.receive()
    nobody = request("/quick", key, body=b"x").replace(b"Authorization", b"X-Ignored")
    with Connection(pair.second.port) as connection:
        connection.send(nobody)
        assert connection.receive().status == 401
    assert (other.status, other.replayed, mine.body != other.body) == (201, False, True)


def test_ask_twice_by_head(pair: Pair, key: str) -> None:
    """A HEAD on a path that has a record runs as ever, and shows nothing of it."""
    posted = pair.first.ask("/quick", key)
    looked = ask(pair.first.port, f"/quick?{key}", key, body=b"", method="HEAD")
    assert (looked.status, looked.all("x-part"), looked.replayed) == (200, [], False)
    assert posted.status == 201
