"""Answers that no server should give: each ends in an answer, or in an error that says what to do."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import aiohttp
import httpx
import pytest
import requests
import urllib3

from oncekey.client import ClientError, Journal, OutcomeUnknown, Retries
from tests.client.callers import CALLERS
from tests.client.scripted import CREATED, Scripted, reply

ONE = Retries(attempts=1, budget=None)
CHUNKED = (
    b"HTTP/1.1 201 Created\r\nContent-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\n"
    b'4\r\n{"id\r\n6;x=y\r\n":"a"}\r\n0\r\n\r\n'
)
GARBAGE = {
    "no HTTP": b"SSH-2.0-OpenSSH_9.2\r\n\r\n",
    "a status that is none": b"HTTP/1.1 abc Thing\r\nContent-Length: 0\r\n\r\n",
    "a status of 99999": b"HTTP/1.1 99999 Thing\r\nContent-Length: 0\r\n\r\n",
    "a header without a colon": b"HTTP/1.1 201 Created\r\nContent-Length: 2\r\nnonsense\r\n\r\n{}",
    "bytes in a header": b"HTTP/1.1 201 Created\r\nX-\xff: \xfe\xfd\r\nContent-Length: 2\r\n\r\n{}",
    "a NUL in a header": b"HTTP/1.1 201 Created\r\nX-A: a\0b\r\nContent-Length: 2\r\n\r\n{}",
    "a length below zero": b"HTTP/1.1 201 Created\r\nContent-Length: -1\r\n\r\n{}",
    "two lengths": b"HTTP/1.1 201 Created\r\nContent-Length: 2\r\nContent-Length: 3\r\n\r\n{}",
    "a long header": b"HTTP/1.1 201 Created\r\nX-A: " + b"a" * 200_000 + b"\r\nContent-Length: 2\r\n\r\n{}",
    "a thousand headers": b"HTTP/1.1 201 Created\r\n" + b"X-A: a\r\n" * 1000 + b"Content-Length: 2\r\n\r\n{}",
    "a chunk that is none": b"HTTP/1.1 201 Created\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n{}\r\n0\r\n\r\n",
    "broken gzip": b"HTTP/1.1 201 Created\r\nContent-Encoding: gzip\r\nContent-Length: 4\r\n\r\nabcd",
    "an unknown charset": reply(500, "{}", Content_Type="application/json; charset=no-such"),
    "bytes in a problem": b"HTTP/1.1 409 C\r\nContent-Type: application/json\r\nContent-Length: 2\r\n\r\n\xff\xfe",
    "a redirect without a place": reply(307),
    "only an early answer": b"HTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\r\n",
    "switching": b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: x\r\nConnection: upgrade\r\n\r\n",
}


@pytest.fixture(params=CALLERS)
def name(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def server() -> Iterator[Scripted]:
    made = Scripted([CREATED], hang_up=True)
    yield made
    made.close()


@pytest.mark.parametrize("garbage", GARBAGE.values(), ids=GARBAGE)
def test_garbage(garbage: bytes, name: str, server: Scripted) -> None:
    """What is no answer is an unknown outcome that names its key; the libraries' own words are behind it."""
    server.script = [garbage]
    said = ""
    try:
        CALLERS[name]("POST", server.url + "/pay", b"{}", {"Idempotency-Key": "mine"}, retries=ONE)
    except ClientError as error:
        said = str(error)
    assert not said or "'mine'" in said


@pytest.mark.parametrize("where", ["http://[::bad", "/pay", "ftp://127.0.0.1/x"])
def test_a_redirect_to_nowhere_leaves_it_open(where: str, name: str, server: Scripted, tmp_path: Path) -> None:
    """The library says what is wrong with the redirect; the journal still has the operation."""
    server.script = [reply(307, Location=where)]
    journal = Journal(tmp_path / "intents.db")
    with suppress(
        ValueError,
        httpx.HTTPError,
        httpx.InvalidURL,
        requests.RequestException,
        urllib3.exceptions.HTTPError,
        aiohttp.ClientError,
    ):
        CALLERS[name]("POST", server.url + "/pay", b"{}", {}, retries=ONE, journal=journal)
    assert [entry.done for entry in journal.pending()] == [False]


@pytest.mark.parametrize("whole", [CHUNKED, reply(201, '{"id":"a"}', Content_Type="application/json")])
def test_cut_at_each_byte(whole: bytes, name: str, server: Scripted) -> None:
    """However much of a success has come: unless it is whole, it is none. And the next attempt has the same key."""
    head = whole.index(b"\r\n\r\n")
    end = len(whole) - (6 if whole is CHUNKED else 0)  # behind the last chunk nothing is missing
    places = [*range(1, head, 11), *range(head - 2, end, 2), end - 1]
    for place in places:
        server.script = [whole[:place]]
        with pytest.raises(OutcomeUnknown):
            CALLERS[name]("POST", server.url + "/pay", b"{}", {}, retries=ONE)
