"""OnceKey for any ASGI application: `OnceKeyMiddleware(app, store=..., scope=...)`.

Raw ASGI. What is not ours passes untouched: other methods, websocket, lifespan messages, requests without a key where
none is required. The work runs in a task of its own, so that a server that cancels when the client leaves cancels
nothing; its outcome is stored before the last byte of the answer goes out.
"""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable, MutableMapping
from typing import TYPE_CHECKING, Any, Unpack

from oncekey.adapters.asgi_answer import send_reply
from oncekey.adapters.asgi_lifespan import check, lifespan
from oncekey.adapters.asgi_shadow import AsgiShadow
from oncekey.adapters.asgi_upload import Upload, path_of
from oncekey.adapters.asgi_work import Work
from oncekey.core.decision import Execute
from oncekey.core.keys import key_ref
from oncekey.engine.aio import AsyncEngine
from oncekey.engine.attempt import Attempt
from oncekey.engine.common import give_back, say_recalled
from oncekey.engine.events import log
from oncekey.engine.tuning import Tuning
from oncekey.errors import OnceKeyError
from oncekey.http.gate import Choices, Gate
from oncekey.http.messages import Reply, Request
from oncekey.http.shadow import ShadowGate

if TYPE_CHECKING:
    from oncekey.engine.events import Sink
    from oncekey.http.exchange import Exchange
    from oncekey.stores.contract import AsyncStore

Scope = MutableMapping[str, Any]
Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
App = Callable[[Scope, Receive, Send], Awaitable[None]]


class OnceKeyMiddleware:
    """Makes the wrapped application's writes run at most once per key.

    `store` is a URL or an engine to share; the other options are those of `oncekey.http.gate.Gate`. With `shadow` no
    request is changed or refused: the sinks are told what would have become of it.
    """

    def __init__(
        self,
        app: App,
        store: str | AsyncStore | AsyncEngine,
        *,
        sinks: tuple[Sink, ...] = (),
        shadow: bool = False,
        **choices: Unpack[Choices],
    ) -> None:
        self.app = app
        self.gate = (ShadowGate if shadow else Gate)(**choices).on_its_own()
        tuning = Tuning(store_for=self.gate.policy.store_for, waiting=self.gate.policy.waiting)
        heard = () if shadow else sinks
        self._open = (lambda: AsyncEngine(store, tuning, heard)) if isinstance(store, str) else None
        self.engine = store if isinstance(store, AsyncEngine) else AsyncEngine(store, tuning, heard)
        self.running = self.engine.running
        self.checked = self.ending = False
        self.gate.keep_time_with(self.engine.now)
        self.shadow = AsgiShadow(self, store, sinks) if shadow else None

    def reopen(self) -> None:
        """Before a second start: a new engine on the same address, if a shutdown has closed the first one."""
        if self.engine.closed and self._open is not None:
            self.engine, self.checked = self._open(), False
            self.running = self.engine.running

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one connection scope."""
        if self.shadow is not None:
            await self.shadow(scope, receive, send)
            return
        kind = scope["type"]
        if kind == "http":
            # A second installation on the same path finds the first one's mark and steps aside.
            if "oncekey" not in scope and self.gate.covers(scope["method"], scope["path"]):
                if (tracer := self.engine.said.tracer) is None:
                    await self._guard(scope, receive, send)
                    return
                with tracer.during(scope["headers"]):
                    await self._guard(scope, receive, send)
                return
        elif kind == "lifespan":
            await lifespan(self, scope, receive, send)
            return
        await self.app(scope, receive, send)

    async def _guard(self, scope: Scope, receive: Receive, send: Send) -> None:
        gate = self.gate
        request = Request(scope["method"], path_of(scope), scope.get("query_string", b""), list(scope["headers"]), b"")
        upload = Upload(receive, request, gate)
        # A key in a header is looked at before the body is read; a key in the body cannot be.
        found = gate.key(request) if gate.dialect.header is not None else ""
        if found is None:
            await self.app(scope, receive, send)
            return
        if isinstance(found, str):
            refusal = await upload.read()
            if upload.gone:
                return
            found = refusal or found or gate.key(request)
        if found is None:
            await self.app(scope, upload.again, send)
        elif isinstance(found, Reply):
            await send_reply(send, found)
        else:
            await self._enter(gate.prepare(request, found), scope, upload, send)

    async def _enter(self, exchange: Exchange | Reply, scope: Scope, upload: Upload, send: Send) -> None:
        if isinstance(exchange, Reply):
            if exchange.replays:
                say_recalled(self.engine.said, exchange.replays, exchange.label)
            await send_reply(send, exchange)
            return
        policy, claim, started = self.gate.policy, exchange.claim, time.monotonic()
        try:
            if not self.checked:  # the server told us of no start-up, or of a shutdown
                await check(self)
            decision = await self.engine.enter(claim, exchange, self.gate.terms, policy.wait_for, late=exchange.late)
            taken = exchange.attempt(decision, started) if type(decision) is Execute else exchange.answer(decision)
        except OnceKeyError as error:
            give_back(self.engine.keeper, claim, error)
            log.warning("operation %s was refused: %s", key_ref(claim.id), error)
            await send_reply(send, exchange.refuse(error))
            return
        if isinstance(taken, Attempt):
            self.engine.keeper.keep(taken)
            await Work(self, exchange, taken, upload, send).run(scope)
        else:
            await send_reply(send, taken)
