"""What the hooks of all clients share: which requests are calls, what they are named, and what an answer says.

A request that only reads, or that is made while no operation is at hand, passes untouched. Any other is a call of its
own; within `operation.external(...)` it is that call, and gets its key.
"""

from __future__ import annotations

import contextlib
import hashlib
from collections.abc import AsyncIterator, MutableMapping
from typing import NamedTuple

from oncekey.core.providers import Provider, provider_at, provider_of
from oncekey.engine import current
from oncekey.engine.external import AsyncExternal, External, ThreadExternal
from oncekey.engine.operation import AsyncOperation, ThreadOperation
from oncekey.errors import ConfigurationError

# Names the call; it is taken off before the request leaves.
STEP_HEADER = "OnceKey-Step"
SAFE = frozenset({"GET", "HEAD", "OPTIONS", "TRACE", "CONNECT"})
# Answers that leave it open what the call did, or whether it was looked at.
UNCLEAR = frozenset({408, 409, 425, 429})


class Asked(NamedTuple):
    """A request as hooks see it. `url` has no query, which may hold secrets; `body` is None where it is a stream."""

    method: str
    url: str
    host: str
    headers: MutableMapping[str, str]
    body: bytes | None


class Hook:
    """The choices of one client. `provider` is a name, or found by the host of each request if it is not given.

    A request that brings a key of its own keeps it, and that is what is noted; with `replace_keys` it gets ours, for
    SDKs that make a random one for every call.
    """

    def __init__(self, provider: str | Provider | None = None, *, replace_keys: bool = False) -> None:
        self._provider = provider_of(provider) if provider is not None else None
        self._replace = replace_keys

    def thread_call(self, request: Asked) -> ThreadExternal | None:
        """For a client that blocks: the call to make around this request, or None. Its key is in the headers then."""
        operation = current.OPERATION.get()
        call = self._call(request, operation.from_thread() if isinstance(operation, AsyncOperation) else operation)
        return call if isinstance(call, ThreadExternal) else None

    def call(self, request: Asked) -> External | None:
        """For an async client."""
        return self._call(request, current.OPERATION.get())

    def _call(self, request: Asked, operation: AsyncOperation | ThreadOperation | None) -> External | None:
        method, url, host, headers, body = request
        step = headers.pop(STEP_HEADER, "")
        if operation is None or method in SAFE:
            return None
        whom = self._provider or provider_at(host)
        target = f"{method} {url}"
        same = hashlib.sha256(body).digest() if body is not None else None
        around = current.CALL.get()
        if around is not None and around.belongs_to(operation):
            self._put(headers, whom, around.key, f"operation.external({around.step!r}, key=...)")
            around.sends(target, same)
            return None
        if whom.header is None:
            raise ConfigurationError(
                f"{whom.name} wants its key in the body, where no hook can put it: make the call in "
                f"operation.external('...', provider={whom.name!r}) and write call.key into idempotency_key"
            )
        own = None if self._replace else headers.get(whom.header)
        call = operation.external(
            step or operation._unnamed(target, same),  # noqa: SLF001 - the hook speaks for the handler
            provider=whom,
            target=target,
            key=own,
        )
        headers[whom.header] = call.key
        return call

    def _put(self, headers: MutableMapping[str, str], whom: Provider, key: str, how: str) -> None:
        if whom.header is None:
            return
        own = headers.get(whom.header, key)
        if own != key and not self._replace:
            raise ConfigurationError(
                f"the request carries a key of its own, and the call around it has another: leave the header out, "
                f"write {how}, or make the hook with replace_keys=True"
            )
        headers[whom.header] = key


def answered(call: External, status: int) -> None:
    """What a status says of a call: below 500 it was answered, and what that means only the handler knows."""
    if status >= 500 or status in UNCLEAR:  # noqa: PLR2004 - server errors
        call.unclear()


@contextlib.asynccontextmanager
async def entered(call: External) -> AsyncIterator[None]:
    """The block around a request of an async client, whatever the gateway that runs it."""
    if isinstance(call, AsyncExternal):
        async with call:
            yield
    elif isinstance(call, ThreadExternal):
        with call:
            yield
