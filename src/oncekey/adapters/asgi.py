"""OnceKey for any ASGI application: `OnceKeyMiddleware(app, store=..., scope=...)`.

Raw ASGI. What is not ours passes untouched: other methods, websocket, lifespan messages, requests without a key where
none is required. The work runs in a task of its own, so that a server that cancels when the client leaves cancels
nothing; its outcome is stored before the last byte of the answer goes out.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, MutableMapping
from typing import TYPE_CHECKING, Any

from oncekey.adapters.asgi_exchange import Responder, Upload
from oncekey.adapters.asgi_lifespan import lifespan
from oncekey.engine.aio import AsyncEngine
from oncekey.engine.tuning import Tuning
from oncekey.http.gate import Gate
from oncekey.http.messages import Reply, Request

if TYPE_CHECKING:
    from oncekey.engine.events import Sink
    from oncekey.stores.contract import AsyncStore

Scope = MutableMapping[str, Any]
Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
App = Callable[[Scope, Receive, Send], Awaitable[None]]


class OnceKeyMiddleware:
    """Makes the wrapped application's writes run at most once per key.

    `store` is a URL or an engine to share; the other options are those of `oncekey.http.gate.Gate`.
    """

    def __init__(
        self, app: App, store: str | AsyncStore | AsyncEngine, *, sinks: tuple[Sink, ...] = (), **choices: Any
    ) -> None:
        self.app = app
        self.gate = Gate(**choices)
        if isinstance(store, AsyncEngine):
            self.engine = store
        else:
            tuning = Tuning(store_for=self.gate.policy.store_for, waiting=self.gate.policy.waiting)
            self.engine = AsyncEngine(store, tuning, sinks)
        self.running: set[asyncio.Task[None]] = set()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one connection scope."""
        kind = scope["type"]
        if kind == "http":
            # A second installation on the same path finds the first one's mark and steps aside.
            if "oncekey" not in scope and self.gate.covers(scope["method"], scope["path"]):
                await self._guard(scope, receive, send)
                return
        elif kind == "lifespan":
            await lifespan(self, scope, receive, send)
            return
        await self.app(scope, receive, send)

    async def _guard(self, scope: Scope, receive: Receive, send: Send) -> None:
        gate = self.gate
        request = Request(scope["method"], scope["path"], scope["query_string"], scope["headers"])
        upload = Upload(receive, request, gate)
        early = gate.dialect.header is not None
        key = gate.key(request) if early else None
        if early and key is None:
            await self.app(scope, receive, send)
            return
        if isinstance(key, Reply):
            await reply(send, key)
            return
        refusal = await upload.read()
        if upload.gone:
            return
        if refusal is None and not early:
            key = gate.key(request)
            if key is None:
                await self.app(scope, upload.again, send)
                return
        if refusal is not None or isinstance(key, Reply):
            await reply(send, refusal or key)  # type: ignore[arg-type] # one of them is a Reply
            return
        await self._enter(scope, upload, send, request, key)  # type: ignore[arg-type] # a str by now

    async def _enter(self, scope: Scope, upload: Upload, send: Send, request: Request, key: str) -> None:
        exchange = self.gate.prepare(request, key)
        if isinstance(exchange, Reply):
            await reply(send, exchange)
            return
        responder = Responder(self, exchange, upload, send)
        decided = await responder.decide()
        if decided is not None:
            await reply(send, decided)
            return
        await responder.run(scope)


async def reply(send: Send, answer: Reply) -> None:
    """Send a whole answer."""
    await send({"type": "http.response.start", "status": answer.status, "headers": answer.headers})
    await send({"type": "http.response.body", "body": answer.body})
