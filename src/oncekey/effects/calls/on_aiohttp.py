"""The hook for aiohttp: a client middleware (aiohttp 3.12 and later), which sees request, answer and error alike."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import aiohttp
from aiohttp.payload import BytesPayload

from oncekey.core.providers import Provider
from oncekey.effects.calls.hook import Asked, Hook, answered, entered

# No byte of the request has left.
NEVER_SENT = (aiohttp.ClientConnectorError, aiohttp.ConnectionTimeoutError)

Handler = Callable[[aiohttp.ClientRequest], Awaitable[aiohttp.ClientResponse]]
Middleware = Callable[[aiohttp.ClientRequest, Handler], Awaitable[aiohttp.ClientResponse]]


def keyed(provider: str | Provider | None = None, *, replace_keys: bool = False) -> Middleware:
    """A middleware by which requests that change something are calls of the operation at hand.

    Put it last: a middleware behind it that repeats requests would hide that an earlier one was sent. The rest is as in
    hook.Hook.
    """
    hook = Hook(provider, replace_keys=replace_keys)

    async def send(request: aiohttp.ClientRequest, handler: Handler) -> aiohttp.ClientResponse:
        call = hook.call(await _asked(request))
        if call is None:
            return await handler(request)
        async with entered(call):
            try:
                response = await handler(request)
            except NEVER_SENT:
                call.not_executed()
                raise
            answered(call, response.status)
        return response

    return send


async def _asked(request: aiohttp.ClientRequest) -> Asked:
    body = request.body
    if isinstance(body, BytesPayload):
        known: bytes | None = await body.as_bytes()
    else:
        known = body if isinstance(body, bytes) else None
    url = request.url.with_query(None).with_fragment(None).with_user(None)
    return Asked(request.method, str(url), url.host or "", request.headers, known)


__all__ = ["keyed"]
