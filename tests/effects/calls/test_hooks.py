from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Iterator
from typing import Any

import aiohttp
import httpx
import pytest
import requests

from oncekey import ConfigurationError, NotExecuted, Policy
from oncekey.core.journal import CallState
from oncekey.core.record import State
from oncekey.effects.calls.on_aiohttp import keyed
from oncekey.effects.calls.on_httpx import AsyncKeyedTransport, KeyedTransport
from oncekey.effects.calls.on_requests import install
from tests.effects.calls.web import Provider, provider
from tests.infra.process import free_port
from tests.latch.gateways import Colour, Gateway

Post = Callable[..., Awaitable[int]]
REPEATED = Policy(latch=True, guarantee="deduplicated_downstream")


@pytest.fixture
def web() -> Iterator[Provider]:
    with provider() as found:
        yield found


async def in_httpx(url: str, method: str = "POST", *, headers: Any = None, data: Any = b"{}", **choices: Any) -> int:
    async with httpx.AsyncClient(transport=AsyncKeyedTransport(**choices)) as client:
        return (await client.request(method, url, headers=headers, content=data)).status_code


async def in_aiohttp(url: str, method: str = "POST", *, headers: Any = None, data: Any = b"{}", **choices: Any) -> int:
    async with (
        aiohttp.ClientSession(middlewares=[keyed(**choices)]) as client,
        client.request(method, url, headers=headers, data=data) as response,
    ):
        return response.status


def httpx_threads(url: str, method: str = "POST", *, headers: Any = None, data: Any = b"{}", **choices: Any) -> int:
    with httpx.Client(transport=KeyedTransport(**choices)) as client:
        return client.request(method, url, headers=headers, content=data).status_code


def requests_threads(url: str, method: str = "POST", *, headers: Any = None, data: Any = b"{}", **choices: Any) -> int:
    with install(requests.Session(), **choices) as client:
        return client.request(method, url, headers=headers, data=data).status_code


def blocking(post: Callable[..., int], *, lent: bool) -> Post:
    """Under WSGI where it is; under asyncio in a worker thread, as frameworks run plain functions."""

    async def ask(*args: Any, **choices: Any) -> int:
        return await asyncio.to_thread(post, *args, **choices) if lent else post(*args, **choices)

    return ask


CLIENTS: dict[str, tuple[Colour, Post]] = {
    "httpx": ("asgi", in_httpx),
    "aiohttp": ("asgi", in_aiohttp),
    "httpx-wsgi": ("wsgi", blocking(httpx_threads, lent=False)),
    "requests-wsgi": ("wsgi", blocking(requests_threads, lent=False)),
    "httpx-lent": ("asgi", blocking(httpx_threads, lent=True)),
    "requests-lent": ("asgi", blocking(requests_threads, lent=True)),
}
everyone = pytest.mark.parametrize(("colour", "post"), CLIENTS.values(), ids=CLIENTS)
ERRORS = (httpx.TransportError, aiohttp.ClientError, requests.ConnectionError)


@everyone
def test_a_request_is_a_call_without_a_word(colour: Colour, post: Post, web: Provider) -> None:
    """The latch is set, the intent stored, the key sent: and the next attempt sends the same one."""
    seen: list[Any] = []

    async def work(op: Any) -> None:
        await post(f"{web.url}/201?card=4242")
        seen.append((gateway.state, gateway.journal.calls))
        if op.attempt == 1:
            raise NotExecuted

    with Gateway(colour, work, policy=REPEATED) as gateway:
        assert [gateway.ask()[0] for _ in range(2)] == [503, 201]
    (state, [call]), _ = seen
    assert (state, call.target) == (State.EXECUTING, f"POST {web.url}/201")
    assert web.keys == [call.key] * 2
    assert len(call.key) == 36
    assert [sent.body for sent in web.sent] == [b"{}"] * 2


@everyone
@pytest.mark.parametrize(
    ("path", "state", "known"),
    [
        ("refused", State.FAILED_RETRYABLE, CallState.NOT_EXECUTED),
        ("/drop", State.UNKNOWN, CallState.BEGUN),
        ("/503", State.UNKNOWN, CallState.BEGUN),
        ("/429", State.UNKNOWN, CallState.BEGUN),
        ("/402", State.UNKNOWN, CallState.RETURNED),
    ],
)
def test_what_is_known_of_a_call_that_failed(
    colour: Colour, post: Post, web: Provider, path: str, state: State, known: CallState
) -> None:
    """Nobody listened there: nothing left. A connection that broke, or a 503, leaves it open. A 402 was an answer."""

    async def work(op: Any) -> None:
        url = f"http://127.0.0.1:{free_port()}/" if path == "refused" else web.url + path
        await post(url)
        raise RuntimeError("the handler knows no better")

    with Gateway(colour, work) as gateway:
        gateway.ask()
        assert (gateway.state, [call.state for call in gateway.journal.calls]) == (state, [known])


@everyone
def test_what_only_reads_or_belongs_to_no_operation_passes(colour: Colour, post: Post, web: Provider) -> None:
    """No key, no write: GET and HEAD, and requests that are made outside of any operation."""

    async def work(op: Any) -> None:
        await post(f"{web.url}/200", "GET", headers={"OnceKey-Step": "look"})
        await post(f"{web.url}/200", "HEAD")
        assert gateway.journal.calls == ()

    with Gateway(colour, work) as gateway:
        assert gateway.ask()[0] == 201
    asyncio.run(post(f"{web.url}/201"))  # type: ignore[arg-type]
    assert len(web.sent) == 3
    assert all("oncekey-step" not in sent.headers and not sent.key for sent in web.sent)


@everyone
def test_two_calls_to_one_place_have_two_keys_and_a_repetition_one(colour: Colour, post: Post, web: Provider) -> None:
    """After a call that came back the next one is another; after one that broke off the same body is the same call."""

    async def work(op: Any) -> None:
        with contextlib.suppress(*ERRORS):
            await post(f"{web.url}/once", data=b"a")
        await post(f"{web.url}/once", data=b"a")
        await post(f"{web.url}/once", data=b"a")
        for data in (b"a", b"b"):
            with contextlib.suppress(*ERRORS):
                await post(f"{web.url}/drop", data=data)

    with Gateway(colour, work) as gateway:
        assert gateway.ask()[0] == 201
    first, again, second, third, fourth = web.keys
    assert first == again
    assert len({first, second, third, fourth}) == 4


@everyone
def test_a_call_may_be_named(colour: Colour, post: Post, web: Provider) -> None:
    """By a header that is taken off, or by the block around it, whose key it then carries."""

    async def work(op: Any) -> None:
        await post(f"{web.url}/201", headers={"OnceKey-Step": "psp.charge"})
        async with op.external("psp.refund") as call:
            await post(f"{web.url}/201")
            with pytest.raises(ConfigurationError, match="second request"):
                await post(f"{web.url}/201", data=b"other")
            with pytest.raises(ConfigurationError, match="key of its own"):
                await post(f"{web.url}/201", headers={"Idempotency-Key": "mine"})
            call.reference = "re_1"
        seen.extend(gateway.journal.calls)

    seen: list[Any] = []
    with Gateway(colour, work) as gateway:
        assert gateway.ask()[0] == 201
    assert [call.step for call in seen] == ["psp.charge", "psp.refund"]
    assert web.keys == [call.key for call in seen]
    assert all("oncekey-step" not in sent.headers for sent in web.sent)


@everyone
@pytest.mark.parametrize("replace", [False, True])
def test_a_key_that_is_there_is_kept_and_noted_unless_it_shall_be_replaced(
    colour: Colour, post: Post, web: Provider, *, replace: bool
) -> None:
    """What is noted is what was sent, whoever made it."""
    seen: list[str] = []

    async def work(op: Any) -> None:
        await post(f"{web.url}/201", headers={"Idempotency-Key": "mine"}, replace_keys=replace)
        seen.extend(call.key for call in gateway.journal.calls)

    with Gateway(colour, work) as gateway:
        assert gateway.ask()[0] == 201
    assert web.keys == seen
    assert (seen == ["mine"]) is not replace


@everyone
def test_the_provider_says_where_the_key_goes(colour: Colour, post: Post, web: Provider) -> None:
    """In PayPal's header; and for Square, who wants it in the body, the handler must put it there."""

    async def work(op: Any) -> None:
        await post(f"{web.url}/201", provider="paypal")
        with pytest.raises(ConfigurationError, match=r"call\.key into idempotency_key"):
            await post(f"{web.url}/201", provider="square")
        async with op.external("pay", provider="square") as call:
            await post(f"{web.url}/201", provider="square", data=call.key.encode())

    with Gateway(colour, work) as gateway:
        assert gateway.ask()[0] == 201
    assert [len(sent.headers.get("paypal-request-id", "")) for sent in web.sent] == [38, 0]
    assert len(web.sent[1].body) == 45


def test_a_blocking_client_on_the_event_loop_is_refused(web: Provider) -> None:
    """It would wait for the loop that it blocks."""

    async def work(op: Any) -> None:
        with pytest.raises(ConfigurationError, match="use an async client"):
            httpx_threads(f"{web.url}/201")

    with Gateway("asgi", work) as gateway:
        assert gateway.ask()[0] == 201
    assert web.sent == []


def test_an_async_client_under_threads_is_served(web: Provider) -> None:
    """A handler of WSGI may run a loop of its own."""

    def app(op: Any) -> Any:
        with asyncio.Runner() as runner:
            runner.run(in_httpx(f"{web.url}/201"))

        async def nothing() -> None:
            assert [call.state for call in gateway.journal.calls] == [CallState.BEGUN]

        return nothing()

    with Gateway("wsgi", app) as gateway:
        assert gateway.ask()[0] == 201
    assert len(web.keys[0]) == 36


def test_retries_below_the_hook_leave_it_open_whether_one_was_sent(web: Provider) -> None:
    """An adapter that has tried before may end with a refused connection: that says nothing of the first try."""
    session = requests.Session()
    session.mount("http://", requests.adapters.HTTPAdapter(max_retries=1))
    install(session)

    def app(op: Any) -> Any:
        session.post(f"http://127.0.0.1:{free_port()}/")

    with Gateway("wsgi", app) as gateway:
        gateway.ask()
        assert (gateway.state, gateway.journal.calls[0].state) == (State.UNKNOWN, CallState.BEGUN)


def test_a_stream_that_broke_off_must_be_named(web: Provider) -> None:
    """Whether it is sent once more or is another one cannot be told."""

    def pieces() -> Iterator[bytes]:
        yield b"a"

    def app(op: Any) -> Any:
        with pytest.raises(httpx.TransportError):
            httpx_threads(f"{web.url}/drop", data=pieces(), headers={"content-length": "1"})
        with pytest.raises(ConfigurationError, match="OnceKey-Step"):
            httpx_threads(f"{web.url}/drop", data=pieces(), headers={"content-length": "1"})
        raise NotExecuted

    with Gateway("wsgi", app) as gateway:
        gateway.ask()
        assert gateway.state is State.UNKNOWN
    assert len(web.sent) == 1


def test_stripes_own_sdk_gets_a_key_that_lasts(web: Provider) -> None:
    """It makes a random key for every call; through the hook both attempts send ours, in full length."""
    stripe = pytest.importorskip("stripe")
    session = install(requests.Session(), provider="stripe", replace_keys=True)
    client = stripe.StripeClient(
        "sk_test", base_addresses={"api": web.url}, http_client=stripe.RequestsClient(session=session)
    )

    def app(op: Any) -> Any:
        client.v1.charges.create({"amount": 5, "currency": "eur", "source": "tok_visa"})
        if op.attempt == 1:
            raise NotExecuted

    with Gateway("wsgi", app, policy=REPEATED) as gateway:
        assert [gateway.ask()[0] for _ in range(2)] == [503, 201]
        assert len(set(web.keys)) == 1
    assert (len(web.sent), len(web.keys[0])) == (2, 64)
