"""What a client sends: cut short, slowly, too much, or with a key that is none. The verdict is that of all servers."""

from __future__ import annotations

import pytest

from tests.servers.client import Connection, ask, head, request
from tests.servers.gateways import Pair
from tests.servers.settings import MAX_BODY

PADDING = b"\n" + b"." * 3000

CUTS = {"no body": 0, "first byte": 1, "middle": 1500, "last byte missing": -1}


@pytest.mark.parametrize("cut", CUTS)
def test_cut(pair: Pair, key: str, cut: str) -> None:
    """An upload that ends early, by its length, is never executed and claims nothing; the whole one then runs."""
    body = key.encode() + PADDING
    with Connection(pair.first.port) as connection:
        connection.send(head("/quick", key, length=len(body)) + body[: CUTS[cut]])
        connection.half_close()
        said = connection.read_to_end()
    assert b" 201 " not in said
    assert (pair.record("/quick", key), pair.effects(key)) == (None, 0)
    whole = pair.first.ask("/quick", key, body)
    assert (whole.status, whole.replayed, pair.effects(key)) == (201, False, 1)


CHUNKS = {
    "no chunk": b"",
    "half a chunk": b"100\r\nabc",
    "no last chunk": b"3\r\nabc\r\n",
    "no end": b"3\r\nabc\r\n0\r\n",
}


@pytest.mark.parametrize("sent", CHUNKS)
def test_cut_in_chunks(pair: Pair, key: str, sent: str) -> None:
    """The same for an upload in chunks: without the end of its last one it has not arrived."""
    with Connection(pair.first.port) as connection:
        connection.send(head("/quick", key) + CHUNKS[sent])
        connection.half_close()
        said = connection.read_to_end()
    assert b" 201 " not in said
    assert (pair.record("/quick", key), pair.effects("abc"), pair.effects(key)) == (None, 0, 0)


def test_reset(pair: Pair, key: str) -> None:
    """A connection that is reset in mid-upload is no end of a body either."""
    body = key.encode() + PADDING
    for at in (len(key) + 1, -1):
        with Connection(pair.first.port) as connection:
            connection.send(head("/quick", key, length=len(body)) + body[:at])
            connection.crash()
    whole = pair.first.ask("/quick", key, body)
    assert (whole.status, whole.replayed, pair.effects(key)) == (201, False, 1)


def test_chunks(pair: Pair, key: str) -> None:
    """A whole upload in chunks runs, and its retry with a length is the same request."""
    with Connection(pair.first.port) as connection:
        connection.send(head("/quick", key) + b"%x\r\n%b\r\n0\r\n\r\n" % (len(key), key.encode()))
        first = connection.receive()
    again = pair.second.ask("/quick", key)
    assert (first.status, again.body, again.replayed, pair.effects(key)) == (201, first.body, True, 1)


def test_drip(pair: Pair, key: str) -> None:
    """A slow upload holds no claim: another one overtakes it, and its own end is then a retry."""
    body = key.encode() + PADDING
    with Connection(pair.first.port) as slow:
        slow.send(head("/quick", key, length=len(body)) + body[:-1])
        overtaking = pair.second.ask("/quick", key, body)
        slow.send(body[-1:])
        late = slow.receive()
    assert (overtaking.status, overtaking.replayed, late.replayed) == (201, False, True)
    assert (late.body, pair.effects(key)) == (overtaking.body, 1)


@pytest.mark.parametrize("framing", ["length", "chunks"])
def test_too_long(pair: Pair, key: str, framing: str) -> None:
    """413 for a body over the cap, by its length before it was sent or by counting; nothing is claimed."""
    with Connection(pair.first.port) as connection:
        if framing == "length":
            sent = bytes(MAX_BODY + 1) if pair.kind.buffers else b""
            connection.send(head("/quick", key, length=MAX_BODY + 1) + sent)
        else:
            size = MAX_BODY + 10
            connection.send(head("/quick", key) + b"%x\r\n%b\r\n0\r\n\r\n" % (size, bytes(size)))
        assert connection.receive().status == 413
    assert (pair.record("/quick", key), pair.effects(key)) == (None, 0)


BAD_KEYS = {
    "none": [],
    "two lines": ["a", "b"],
    "two equal lines": ["a", "a"],
    "two quoted lines": ['"a"', '"b"'],
    "a list": ["a, b"],
    "empty": [""],
    "space": ["a b"],
    "non-ascii": ["k\xe9y"],
    "unfinished quote": ['"a'],
    "text after the quote": ['"a" b'],
    "256 characters": ["k" * 256],
}


@pytest.mark.parametrize("which", BAD_KEYS)
def test_bad_key(pair: Pair, key: str, which: str) -> None:
    """A missing, repeated or malformed key gets 400 from every server, and nothing runs."""
    refused = ask(pair.first.port, "/quick", *BAD_KEYS[which], body=key.encode())
    assert (refused.status, pair.effects(key)) == (400, 0)
    if which != "non-ascii":  # some servers refuse it before we do
        expected = {"none": "key-missing"}.get(which, "key-repeated" if which.startswith(("two", "a list")) else "")
        assert refused.problem == (expected or "key-invalid")


def test_spelling(pair: Pair, key: str) -> None:
    """Bare, quoted, quoted with a parameter, with spaces around: one key, on any worker."""
    spellings = [key, f'"{key}"', f'"{key}"; a=1', f"  {key}  "]
    answers = [ask(pair.first.port, "/quick", spelling, body=key.encode()) for spelling in spellings]
    assert {answer.body for answer in answers} == {answers[0].body}
    assert ([answer.replayed for answer in answers], pair.effects(key)) == ([False, True, True, True], 1)


def test_underscored_name(pair: Pair, key: str) -> None:
    """`Idempotency_Key` is another header: alone it is no key, beside the real one it changes nothing."""
    line = b"Idempotency_Key: %b\r\n" % key.encode()
    bare = request("/quick", body=key.encode()).replace(b"Host", line + b"Host", 1)
    both = request("/quick", key, body=key.encode()).replace(b"Host", line.replace(b": ", b": x") + b"Host", 1)
    with Connection(pair.first.port) as connection:
        connection.send(bare)
        assert connection.receive().problem == "key-missing"
        connection.send(both)
        assert connection.receive().status == 201
    assert pair.effects(key) == 1
