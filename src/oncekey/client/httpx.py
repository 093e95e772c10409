"""Retries for httpx, in one line.

    client = httpx.Client(transport=RetryTransport())
    client = httpx.AsyncClient(transport=AsyncRetryTransport())

Each wraps any other transport. POST and PATCH get a key, one for all attempts; a key that you set yourself is kept.
"""

from __future__ import annotations

import asyncio
from functools import partial
from typing import Any

import httpx

from oncekey.client.aio import run_async
from oncekey.client.carriage import Carriage
from oncekey.client.exchange import Guard, Lost, Reply, Terms, hopeless, lower, run, streams, unframed, within
from oncekey.client.journal import Journal, Kept, Request
from oncekey.client.judging import Answer
from oncekey.client.machine import Retries, Sent

__all__ = ["AsyncRetryTransport", "RetryTransport"]

# The connection was not made: nothing can have arrived.
_NOT_SENT = (httpx.ConnectError, httpx.ConnectTimeout, httpx.PoolTimeout, httpx.ProxyError)
# The request itself is wrong: no attempt would differ.
_OURS = (httpx.UnsupportedProtocol, httpx.LocalProtocolError)
# In the extensions of a request that follows from another: where that one went, and its guard.
_BEGAN = "oncekey.began"
_KEY = "oncekey.key"
_NO_LIMITS: dict[str, float | None] = dict.fromkeys(("connect", "read", "write", "pool"))
# Decoded already when the journal kept it.
_UNKEPT = frozenset({"content-encoding", "content-length", "transfer-encoding"})


def _rebuilt(kept: Kept) -> httpx.Response:
    headers = [(name, value) for name, value in kept.headers if name not in _UNKEPT]
    return httpx.Response(kept.status, headers=headers, content=kept.body, extensions={"oncekey": "journal"})


def _terms(retries: Retries | None, carriage: Carriage | None, journal: Journal | None) -> Terms:
    return Terms(retries or Retries(), carriage or Carriage(), journal, httpx.TransportError, _rebuilt)


def _guard(terms: Terms, request: httpx.Request) -> tuple[Guard | None, httpx.Request]:
    """The guard, and the request to send. A redirect to another origin loses the key: it is not for strangers."""
    origin = (request.url.scheme, request.url.host, request.url.port)
    began, earlier = request.extensions.get(_BEGAN, (origin, None))
    carriage = terms.carriage
    if began != origin or (earlier is not None and request.method != earlier.prepared.method):
        return None, _stripped(carriage, request)
    headers = tuple(request.headers.multi_items())
    asked = Request(request.method, str(request.url), headers, request.content)
    guard = earlier.onward(asked) if earlier else Guard.of(terms, asked, request.extensions.get(_KEY, ""))
    if guard is None:
        return None, request
    sent = httpx.Headers(list(guard.prepared.headers))
    if carriage.member or sent.pop("transfer-encoding", ""):
        sent["content-length"] = str(len(guard.prepared.body))
    made = httpx.Request(
        request.method, request.url, headers=sent, content=guard.prepared.body, extensions=request.extensions
    )
    # The client makes a redirect of the request that it holds, and copies these: it must carry the same key.
    request.extensions = {**request.extensions, _BEGAN: (origin, guard)}
    return guard, made


def _stripped(carriage: Carriage, request: httpx.Request) -> httpx.Request:
    """Without the key, which is not for strangers, nor for what a POST has led to."""
    headers, body = request.headers.copy(), request.content
    headers.pop(carriage.header or "-", None)
    if carriage.member and body:
        body = carriage.key_out_of(body)
        headers["content-length"] = str(len(body))
    return httpx.Request(request.method, request.url, headers=headers, content=body, extensions=request.extensions)


def _lost(error: httpx.TransportError) -> Lost:
    if isinstance(error, _OURS) or hopeless(error):
        raise error
    return Lost(Sent.NO if isinstance(error, _NOT_SENT) else Sent.MAYBE, error)


def _reply(request: httpx.Request, response: httpx.Response, raw: bytes | None) -> Reply | Lost:
    """What has come, as it came: the client shall be able to read, stream and time it."""
    body = b"" if raw is not None or streams(response.headers) else response.content
    headers = lower(list(response.headers.multi_items()))
    if raw is not None:
        how: dict[str, Any] = {"headers": response.headers, "extensions": response.extensions, "request": request}
        try:
            body = httpx.Response(response.status_code, content=raw, **how).content
        except httpx.DecodingError as error:
            return Lost(Sent.MAYBE, error)
        response = httpx.Response(response.status_code, stream=httpx.ByteStream(raw), **how)
        if response.http_version != "HTTP/2" and unframed(response.status_code, headers, body):
            return Lost(Sent.MAYBE, httpx.RemoteProtocolError("the answer was cut"))
    return Reply(Answer(response.status_code, headers, body), response)


def _limits(request: httpx.Request) -> dict[str, float | None]:
    found: dict[str, float | None] = request.extensions.get("timeout", {})
    return found


def _as_it_is(response: httpx.Response) -> bool:
    """An endless answer is handed on as it comes, and that of a stand-in has been read already."""
    return response.is_stream_consumed or streams(response.headers)


class RetryTransport(httpx.BaseTransport):
    """Give each POST and PATCH one key, and send it until there is a definite answer.

    What is definite is returned, whatever its status. What is not is raised: NothingSent, GaveUp or OutcomeUnknown,
    each of which is also an `httpx.TransportError`. Answers are read whole, so that a cut one is noticed.
    """

    def __init__(
        self,
        transport: httpx.BaseTransport | None = None,
        *,
        retries: Retries | None = None,
        carriage: Carriage | None = None,
        journal: Journal | None = None,
    ) -> None:
        self._inner = transport or httpx.HTTPTransport()
        self._terms = _terms(retries, carriage, journal)

    def handle_request(self, request: httpx.Request) -> httpx.Response:
        request.read()
        guard, made = _guard(self._terms, request)
        if guard is None:
            return self._inner.handle_request(made)
        response: httpx.Response = run(guard, partial(self._sent, made))
        return response

    def _sent(self, request: httpx.Request, left: float | None) -> Reply | Lost:
        timeout = {name: within(limit, left) for name, limit in (_NO_LIMITS | _limits(request)).items()}
        request.extensions = {**request.extensions, "timeout": timeout}
        try:
            response = self._inner.handle_request(request)
            response.request = request
            raw = None if _as_it_is(response) else b"".join(response.iter_raw())
        except httpx.TransportError as error:
            return _lost(error)
        return _reply(request, response, raw)

    def close(self) -> None:
        self._inner.close()


class AsyncRetryTransport(httpx.AsyncBaseTransport):
    """RetryTransport for `httpx.AsyncClient`."""

    def __init__(
        self,
        transport: httpx.AsyncBaseTransport | None = None,
        *,
        retries: Retries | None = None,
        carriage: Carriage | None = None,
        journal: Journal | None = None,
    ) -> None:
        self._inner = transport or httpx.AsyncHTTPTransport()
        self._terms = _terms(retries, carriage, journal)

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        await request.aread()
        # In a thread, for it may look into the journal.
        guard, made = await asyncio.to_thread(_guard, self._terms, request)
        if guard is None:
            return await self._inner.handle_async_request(made)
        response: httpx.Response = await run_async(guard, lambda: self._sent(made))
        return response

    async def _sent(self, request: httpx.Request) -> Reply | Lost:
        try:
            response = await self._inner.handle_async_request(request)
            response.request = request
            raw = None if _as_it_is(response) else b"".join([part async for part in response.aiter_raw()])
        except httpx.TransportError as error:
            return _lost(error)
        return _reply(request, response, raw)

    async def aclose(self) -> None:
        await self._inner.aclose()
