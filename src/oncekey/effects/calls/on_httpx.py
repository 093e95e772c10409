"""The hook for httpx: a transport around the client's own, the one place that sees request, answer and error alike."""

from __future__ import annotations

import httpx

from oncekey.core.providers import Provider
from oncekey.effects.calls.hook import Asked, Hook, answered, entered

# No byte of the request has left; sure only of httpx's own transports, for others may have tried before.
NEVER_SENT = (httpx.ConnectError, httpx.ConnectTimeout, httpx.PoolTimeout, httpx.UnsupportedProtocol)
OWN = (httpx.HTTPTransport, httpx.AsyncHTTPTransport)


class KeyedTransport(httpx.BaseTransport):
    """`httpx.Client(transport=KeyedTransport())`: requests that change something are calls of the operation at hand.

    `transport` is what sends them, `httpx.HTTPTransport()` if it is not given; the client's own options for connections
    (verify, http2, proxy) then belong to that. The rest is as in oncekey.effects.calls.hook.Hook.
    """

    def __init__(
        self,
        transport: httpx.BaseTransport | None = None,
        *,
        provider: str | Provider | None = None,
        replace_keys: bool = False,
    ) -> None:
        self._inner = transport or httpx.HTTPTransport()
        self._sure = type(self._inner) in OWN
        self._hook = Hook(provider, replace_keys=replace_keys)

    def handle_request(self, request: httpx.Request) -> httpx.Response:
        """Send one request."""
        keyed = _copied(request)
        call = self._hook.thread_call(_asked(keyed))
        if call is None:
            return self._inner.handle_request(keyed)
        with call:
            try:
                response = self._inner.handle_request(keyed)
            except NEVER_SENT:
                if self._sure:
                    call.not_executed()
                raise
            answered(call, response.status_code)
        return response

    def close(self) -> None:
        self._inner.close()


class AsyncKeyedTransport(httpx.AsyncBaseTransport):
    """`httpx.AsyncClient(transport=AsyncKeyedTransport())`: as KeyedTransport."""

    def __init__(
        self,
        transport: httpx.AsyncBaseTransport | None = None,
        *,
        provider: str | Provider | None = None,
        replace_keys: bool = False,
    ) -> None:
        self._inner = transport or httpx.AsyncHTTPTransport()
        self._sure = type(self._inner) in OWN
        self._hook = Hook(provider, replace_keys=replace_keys)

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        """Send one request."""
        keyed = _copied(request)
        call = self._hook.call(_asked(keyed))
        if call is None:
            return await self._inner.handle_async_request(keyed)
        async with entered(call):
            try:
                response = await self._inner.handle_async_request(keyed)
            except NEVER_SENT:
                if self._sure:
                    call.not_executed()
                raise
            answered(call, response.status_code)
        return response

    async def aclose(self) -> None:
        await self._inner.aclose()


def _copied(request: httpx.Request) -> httpx.Request:
    """The request as it leaves: a key in the caller's own would be taken for theirs when they send it again."""
    headers = httpx.Headers(request.headers)
    return httpx.Request(
        request.method, request.url, headers=headers, stream=request.stream, extensions=request.extensions
    )


def _asked(request: httpx.Request) -> Asked:
    url = request.url.copy_with(query=None, fragment=None, username=None, password=None)
    body = b"".join(request.stream) if isinstance(request.stream, httpx.ByteStream) else None
    return Asked(request.method, str(url), url.host, request.headers, body)


__all__ = ["AsyncKeyedTransport", "KeyedTransport"]
