"""What transports do with answers that are no end: redirects, refused callers, and servers that have forgotten."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import aiohttp
import httpx
import pytest
import requests

from oncekey.client import GaveUp, IntentOver, Journal, Mismatch, OutcomeUnknown, Rejected, Retries, carriage, check
from oncekey.client.aiohttp import RetryMiddleware
from oncekey.client.httpx import AsyncRetryTransport, RetryTransport
from oncekey.client.requests import RetryAdapter
from oncekey.client.urllib3 import RetryPoolManager
from tests.client.scripted import CREATED, CUT_IN_BODY, DROP, reply
from tests.client.test_transports import QUICK, Serve, call, name, serve

__all__ = ["call", "name", "serve"]  # the fixtures of the transports

Call = Callable[..., Any]
ONE = Retries(attempts=1, budget=None)


@pytest.fixture
def journal(tmp_path: Path) -> Journal:
    return Journal(tmp_path / "intents.db")


@pytest.mark.parametrize(("status", "then"), [(307, "POST"), (308, "POST"), (303, "GET")])
def test_a_redirect_is_followed_with_a_journal(
    call: Call, serve: Serve, journal: Journal, status: int, then: str
) -> None:
    """The operation goes on at the other place, and ends there; what a POST has led to is another request."""
    server = serve(reply(status, Location="/there"), CREATED)
    with journal.intent("pay", 1):
        assert call(server, journal=journal).status == 201
    assert [(seen.method, seen.path) for seen in server.seen] == [("POST", "/pay"), (then, "/there")]
    assert server.keys[1] == (server.keys[0] if then == "POST" else None)
    assert journal.pending() == []


def test_a_key_in_the_body_survives_a_redirect(call: Call, serve: Serve) -> None:
    """One key for all requests of one operation, wherever it travels."""
    server = serve(reply(307, Location="/there"), CREATED)
    call(server, carriage=carriage("square"))
    first, second = (json.loads(seen.body)["idempotency_key"] for seen in server.seen)
    assert first == second


def test_a_key_in_the_body_is_not_for_strangers(call: Call, serve: Serve) -> None:
    """As a key in a header: another origin gets the body without it."""
    stranger = serve(CREATED)
    server = serve(reply(307, Location=stranger.url + "/there"))
    assert call(server, carriage=carriage("square")).status == 201
    assert [json.loads(seen.body) for seen in stranger.seen] == [{"amount": 10}]


def test_a_stranger_is_asked_once(call: Call, serve: Serve) -> None:
    """Without a key, a second attempt could be a second effect."""
    stranger = serve(DROP)
    server = serve(reply(307, Location=stranger.url + "/there"))
    with pytest.raises(Exception) as caught:
        call(server)
    assert not isinstance(caught.value, GaveUp)
    assert len(stranger.seen) == 1


def test_a_caller_who_is_not_let_in_may_come_back(call: Call, serve: Serve, journal: Journal) -> None:
    """A 401 is returned, and is not the answer of the intent: the same key, with other credentials."""
    server = serve(reply(401), CREATED)
    with journal.intent("pay", 1):
        assert call(server, journal=journal).status == 401
    [entry] = journal.pending()
    assert entry.trouble == "denied, with 401"
    with journal.intent("pay", 1):
        assert call(server, journal=journal).status == 201
    assert len(set(server.keys)) == 1
    assert journal.pending() == []


@pytest.mark.parametrize("refusal", [reply(401), reply(403), reply(412, Idempotency_Problem="request-too-old")])
def test_a_refusal_at_the_door_says_nothing_of_a_lost_attempt(call: Call, serve: Serve, refusal: bytes) -> None:
    """The first attempt may have been carried out: nobody may take the second one's refusal for its answer."""
    server = serve(DROP, refusal)
    with pytest.raises(OutcomeUnknown) as caught:
        call(server)
    assert caught.value.reason in {"denied", "age"}
    assert len(server.seen) == 2


def test_an_error_that_was_caught_leaves_the_intent_open(call: Call, serve: Serve, journal: Journal) -> None:
    """A block that ends well after its transport gave up knows no more than the transport."""
    server = serve(DROP)
    with journal.intent("pay", 1), pytest.raises(OutcomeUnknown):
        call(server, journal=journal, retries=ONE)
    assert [entry.identity for entry in journal.pending()] == [("1",)]


CHECKED = [
    (httpx.Response(422, headers={"Idempotency-Problem": "key-reused"}), Mismatch, "two share one"),
    (httpx.Response(402, json={"error": {"message": "no money"}}), Rejected, "no money"),
    (httpx.Response(401), Rejected, "other credentials, and send it again with the same key"),
    (httpx.Response(410, headers={"Idempotency-Problem": "answer-not-kept"}), IntentOver, "nor with a new one"),
    (httpx.Response(412, headers={"Idempotency-Problem": "request-too-old"}), OutcomeUnknown, "unresolved"),
    (httpx.Response(500), OutcomeUnknown, "a new key could do it twice"),
    (httpx.Response(429), GaveUp, "with the same key"),
]


@pytest.mark.parametrize(("response", "kind", "says"), CHECKED)
def test_check_never_advises_a_second_effect(response: httpx.Response, kind: type[Exception], says: str) -> None:
    """Only what is certainly not done is to be sent with a new key."""
    with pytest.raises(kind, match=says) as caught:
        check(response, "k-1")
    assert type(caught.value) is kind
    assert ("with a new key" in str(caught.value)) == (response.status_code == 402)


def test_answers_of_httpx_are_whole(serve: Serve) -> None:
    """They can be streamed raw and timed, as those of httpx without retries."""
    server = serve(CREATED)
    with httpx.Client(transport=RetryTransport(retries=QUICK)) as client:
        assert client.post(server.url + "/pay").elapsed.total_seconds() >= 0
        with client.stream("POST", server.url + "/pay") as response:
            assert b"".join(response.iter_raw()) == b'{"id":"a"}'


async def test_answers_of_async_httpx_are_whole(serve: Serve) -> None:
    """As above."""
    server = serve(CREATED)
    async with httpx.AsyncClient(transport=AsyncRetryTransport(retries=QUICK)) as client:
        assert (await client.post(server.url + "/pay")).elapsed.total_seconds() >= 0
        async with client.stream("POST", server.url + "/pay") as response:
            assert [part async for part in response.aiter_raw()] == [b'{"id":"a"}']


def test_answers_of_urllib3_and_requests_can_be_streamed(serve: Serve) -> None:
    """They were read to see whether they are whole; whoever wants to read them shall find them."""
    server = serve(CREATED)
    with RetryPoolManager() as http, requests.Session() as session:
        session.mount("http://", RetryAdapter())
        assert http.request("POST", server.url, preload_content=False).read() == b'{"id":"a"}'
        assert b"".join(http.request("POST", server.url, preload_content=False).stream(3)) == b'{"id":"a"}'
        assert http.request("POST", server.url, preload_content=False).json() == {"id": "a"}
        assert session.post(server.url, stream=True).raw.read() == b'{"id":"a"}'
        assert b"".join(session.post(server.url, stream=True).iter_content(3)) == b'{"id":"a"}'


async def test_streamed_bodies_are_sent_whole_and_again(serve: Serve) -> None:
    """A generator can be run once; the request is sent twice, framed by its length."""
    server = serve(DROP, CREATED, DROP, CREATED, DROP, CREATED, DROP, CREATED, DROP, CREATED)

    def parts() -> Iterator[bytes]:
        yield from (b"one ", b"two")

    async def later() -> AsyncIterator[bytes]:
        for part in parts():
            yield part

    def threads() -> None:
        with httpx.Client(transport=RetryTransport(retries=QUICK)) as client:
            assert client.post(server.url, content=parts()).status_code == 201
        with RetryPoolManager(retries_by=QUICK) as http, requests.Session() as session:
            assert http.request("POST", server.url, body=parts()).status == 201
            session.mount("http://", RetryAdapter(retries=QUICK))
            assert session.post(server.url, data=parts()).status_code == 201

    await asyncio.to_thread(threads)
    async with httpx.AsyncClient(transport=AsyncRetryTransport(retries=QUICK)) as client:
        assert (await client.post(server.url, content=later())).status_code == 201
    async with (
        aiohttp.ClientSession(middlewares=[RetryMiddleware(retries=QUICK)]) as session,
        session.post(server.url, data=later()) as response,
    ):
        assert response.status == 201
    assert [seen.body for seen in server.seen] == [b"one two"] * 10
    assert not any("transfer-encoding" in seen.headers for seen in server.seen)
    assert len(set(server.keys)) == 5


def test_a_key_in_a_body_that_is_empty(call: Call, serve: Serve) -> None:
    """The key is all of it then."""
    server = serve(CREATED)
    call(server, body=b"", carriage=carriage("square"))
    assert list(json.loads(server.seen[0].body)) == ["idempotency_key"]


async def test_a_redirect_that_is_not_followed_lends_its_key_to_nobody(serve: Serve) -> None:
    """The next request to that place is another operation."""
    server = serve(reply(307, Location="/there"), CREATED)
    async with aiohttp.ClientSession(middlewares=[RetryMiddleware(retries=QUICK)]) as session:
        for path, body in (("/pay", b"1"), ("/there", b"2")):
            async with session.post(server.url + path, data=body, allow_redirects=False):
                pass
    assert len(set(server.keys)) == 2


def test_a_client_is_shared_by_threads(serve: Serve, journal: Journal) -> None:
    """One client, one pool, one journal: each request of each thread has one key and its own answer."""
    server = serve(*([DROP, reply(503), CREATED, CUT_IN_BODY, CREATED] * 12), CREATED)
    stubborn = Retries(attempts=100, wait_for=0.001, longest_wait_for=0.002, budget=None)
    transport = RetryTransport(retries=stubborn, journal=journal)
    with httpx.Client(transport=transport) as client, ThreadPoolExecutor(8) as threads:
        answers = list(threads.map(lambda number: client.post(f"{server.url}/{number}").json(), range(24)))
    assert answers == [{"id": "a"}] * 24
    places = {(seen.path, key) for seen, key in zip(server.seen, server.keys, strict=True)}
    assert len(places) == len({key for _, key in places}) == 24
    assert journal.pending() == []


def test_a_digest_is_one_operation(serve: Serve, journal: Journal) -> None:
    """A challenge is answered with the same key; a wrong password is a refusal, for nothing was done."""
    challenge = reply(401, WWW_Authenticate='Digest realm="r", nonce="n", qop="auth"')
    for script, status in (((challenge, CREATED), 201), ((challenge, challenge), 401)):
        server = serve(*script)
        with httpx.Client(transport=RetryTransport(journal=journal), auth=httpx.DigestAuth("a", "b")) as client:
            assert client.post(server.url + "/pay").status_code == status
        assert len(set(server.keys)) == 1
    assert len(journal.pending()) == 1
