"""Retries for aiohttp, in one line.

    session = aiohttp.ClientSession(middlewares=[RetryMiddleware()])

POST and PATCH get a key, one for all attempts; a key that you set yourself is kept. Limit single attempts with
`ClientTimeout(sock_connect=..., sock_read=...)`: `total` covers all attempts together, and cancels them.
"""

from __future__ import annotations

import asyncio
from contextvars import ContextVar
from typing import Any, NamedTuple

import aiohttp

from oncekey.client.aio import run_async
from oncekey.client.carriage import Carriage
from oncekey.client.exchange import Guard, Lost, Reply, Terms, hopeless, lower, streams
from oncekey.client.journal import Journal, Request
from oncekey.client.judging import Answer
from oncekey.client.machine import Retries, Sent

__all__ = ["RetryMiddleware"]

_NOT_SENT = (aiohttp.ClientConnectorError, aiohttp.ConnectionTimeoutError)
# ClientResponseError: what has come is no HTTP.
_TROUBLE = (
    *(aiohttp.ClientConnectionError, aiohttp.ClientPayloadError, aiohttp.ClientResponseError, asyncio.TimeoutError),
)
_REDIRECTS = frozenset({301, 302, 303, 307, 308})


class _Hop(NamedTuple):
    """A redirect that the session is about to follow."""

    to: Any  # a yarl.URL, which is aiohttp's business
    guard: Guard
    same_origin: bool


_HOP: ContextVar[_Hop | None] = ContextVar("oncekey_aiohttp", default=None)


async def _put(request: aiohttp.ClientRequest, body: bytes) -> None:
    """The body in memory, with its length: a generator that was read would send nothing."""
    request.chunked = None
    for name in ("Transfer-Encoding", "Content-Length"):
        request.headers.popall(name, None)
    await request.update_body(body)


class RetryMiddleware:
    """Give each POST and PATCH one key, and send it until there is a definite answer.

    What is definite is returned, whatever its status. What is not is raised: NothingSent, GaveUp or OutcomeUnknown,
    each of which is also an `aiohttp.ClientConnectionError`. Answers are read whole, so that a cut one is noticed.
    """

    def __init__(
        self, *, retries: Retries | None = None, carriage: Carriage | None = None, journal: Journal | None = None
    ) -> None:
        self._terms = Terms(retries or Retries(), carriage or Carriage(), journal, aiohttp.ClientConnectionError)

    async def __call__(
        self, request: aiohttp.ClientRequest, handler: aiohttp.ClientHandlerType
    ) -> aiohttp.ClientResponse:
        guard = await self._guard(request)
        if guard is None:
            return await handler(request)
        response: aiohttp.ClientResponse = await run_async(guard, lambda: self._sent(request, handler))
        self._expect_hop(response, guard)
        return response

    async def _guard(self, request: aiohttp.ClientRequest) -> Guard | None:
        """A redirect to another origin, or one that has become a GET, loses the key: it is not for strangers."""
        hop = _HOP.get()
        _HOP.set(None)
        carriage = self._terms.carriage
        body = await request.body.as_bytes() if request.body else b""
        goes_on = hop is not None and request.method == hop.guard.prepared.method
        if hop is not None and (hop.to != request.url or (goes_on and body != hop.guard.prepared.body)):
            hop = None  # it was not followed: this is another request
        if hop is not None and not (hop.same_origin and goes_on):
            request.headers.popall(carriage.header or "-", None)
            if carriage.member and body:
                await _put(request, carriage.key_out_of(body))
            return None
        carried = request.method.upper() in carriage.methods
        if not carried and (not carriage.header or carriage.header not in request.headers):
            return None
        headers = tuple((str(name), value) for name, value in request.headers.items())
        asked = Request(request.method, str(request.url), headers, body)
        # In a thread, for it may look into the journal.
        guard = hop.guard.onward(asked) if hop else await asyncio.to_thread(Guard.of, self._terms, asked)
        if guard is not None:
            request.headers.update(dict(guard.prepared.headers))
            if guard.prepared.body:
                await _put(request, guard.prepared.body)
        return guard

    @staticmethod
    async def _sent(request: aiohttp.ClientRequest, handler: aiohttp.ClientHandlerType) -> Reply | Lost:
        try:
            response = await handler(request)
            headers = lower({str(name): value for name, value in response.headers.items()})
            body = b"" if streams(headers) else await response.read()
        except _TROUBLE as error:
            if hopeless(error):
                raise
            return Lost(Sent.NO if isinstance(error, _NOT_SENT) else Sent.MAYBE, error)
        return Reply(Answer(response.status, headers, body), response)

    @staticmethod
    def _expect_hop(response: aiohttp.ClientResponse, guard: Guard) -> None:
        where = response.headers.get("Location") or response.headers.get("URI")
        if response.status in _REDIRECTS and where:
            try:
                to = response.url.join(type(response.url)(where))
            except ValueError:
                return  # aiohttp says what is wrong with it
            _HOP.set(_Hop(to, guard, to.origin() == response.url.origin()))
