"""Retries for httpx, in one line.

    client = httpx.Client(transport=RetryTransport())
    client = httpx.AsyncClient(transport=AsyncRetryTransport())

Each wraps any other transport. POST and PATCH get a key, one for all attempts; a key that you set yourself is kept.
"""

from __future__ import annotations

import httpx

from oncekey.client.aio import run_async
from oncekey.client.carriage import Carriage
from oncekey.client.exchange import Guard, Lost, Reply, Terms, hopeless, lower, run, streams
from oncekey.client.journal import Journal, Kept, Request
from oncekey.client.judging import Answer
from oncekey.client.machine import Retries, Sent

__all__ = ["AsyncRetryTransport", "RetryTransport"]

# The connection was not made: nothing can have arrived.
_NOT_SENT = (httpx.ConnectError, httpx.ConnectTimeout, httpx.PoolTimeout, httpx.ProxyError)
# The request itself is wrong: no attempt would differ.
_OURS = (httpx.UnsupportedProtocol, httpx.LocalProtocolError)
_ORIGIN = "oncekey.origin"
_KEY = "oncekey.key"
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
    if request.extensions.setdefault(_ORIGIN, origin) != origin:
        request.headers.pop(terms.carriage.header or "-", None)
        return None, request
    headers = tuple(request.headers.multi_items())
    known = request.extensions.get(_KEY, "")
    guard = Guard.of(terms, Request(request.method, str(request.url), headers, request.content), known)
    if guard is None:
        return None, request
    sent = httpx.Headers(list(guard.prepared.headers))
    if terms.carriage.member:
        sent["content-length"] = str(len(guard.prepared.body))
    made = httpx.Request(
        request.method, request.url, headers=sent, content=guard.prepared.body, extensions=request.extensions
    )
    # A redirect by the client copies the request that it holds: it must carry the same key.
    request.headers = made.headers
    return guard, made


def _lost(error: httpx.TransportError) -> Lost:
    if isinstance(error, _OURS) or hopeless(error):
        raise error
    return Lost(Sent.NO if isinstance(error, _NOT_SENT) else Sent.MAYBE, error)


def _reply(response: httpx.Response) -> Reply:
    body = b"" if streams(response.headers) else response.content
    return Reply(Answer(response.status_code, lower(list(response.headers.multi_items())), body), response)


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
        response: httpx.Response = run(guard, lambda: self._sent(made))
        return response

    def _sent(self, request: httpx.Request) -> Reply | Lost:
        try:
            response = self._inner.handle_request(request)
            response.request = request
            if not streams(response.headers):
                response.read()
        except httpx.TransportError as error:
            return _lost(error)
        return _reply(response)

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
        guard, made = _guard(self._terms, request)
        if guard is None:
            return await self._inner.handle_async_request(made)
        response: httpx.Response = await run_async(guard, lambda: self._sent(made))
        return response

    async def _sent(self, request: httpx.Request) -> Reply | Lost:
        try:
            response = await self._inner.handle_async_request(request)
            response.request = request
            if not streams(response.headers):
                await response.aread()
        except httpx.TransportError as error:
            return _lost(error)
        return _reply(response)

    async def aclose(self) -> None:
        await self._inner.aclose()
