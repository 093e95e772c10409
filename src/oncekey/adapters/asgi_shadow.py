"""Shadow mode for ASGI: the application is served untouched, and a task beside it finds out what would have been."""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING

from oncekey.adapters.asgi_answer import BODY, START
from oncekey.adapters.asgi_upload import path_of
from oncekey.core.decision import Execute
from oncekey.engine.aio import AsyncEngine
from oncekey.engine.events import Events
from oncekey.http.messages import Request
from oncekey.http.shadow import MOST, TOO_MANY, Ended, Watch, attempt_of, settlement_of, watching

if TYPE_CHECKING:
    from oncekey.adapters.asgi import Message, OnceKeyMiddleware, Receive, Scope, Send
    from oncekey.engine.events import Sink
    from oncekey.http.exchange import Exchange
    from oncekey.stores.contract import AsyncStore

# How long shadows may still be written down at shutdown.
GRACE_FOR = 5.0


class AsgiShadow:
    """What an installation in shadow mode does."""

    def __init__(
        self, installed: OnceKeyMiddleware, store: str | AsyncStore | AsyncEngine, sinks: tuple[Sink, ...]
    ) -> None:
        self.installed = installed
        self._owned = not isinstance(store, AsyncEngine)
        if isinstance(store, AsyncEngine):
            sinks = sinks or store.said.sinks
            # One of its own on the same store: what it does is told by the watch alone.
            installed.engine = AsyncEngine(store.store, store.tuning)
            installed.running = installed.engine.running
        self.said = Events(sinks)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one connection scope."""
        installed = self.installed
        if scope["type"] == "lifespan":
            receive = self._living(receive)
        elif scope["type"] == "http" and scope["method"] in installed.gate.methods:
            headers = [(name.lower(), value) for name, value in scope["headers"]]
            request = Request(scope["method"], path_of(scope), scope.get("query_string", b""), headers, b"")
            watch = watching(installed.gate, self.said, request, scope["path"])
            if watch is not None:
                await _Beside(self, watch, receive, send).serve(scope)
                return
        await installed.app(scope, receive, send)

    def _living(self, receive: Receive) -> Receive:
        async def told() -> Message:
            message = await receive()
            if message["type"] == "lifespan.startup":
                self.installed.reopen()
            elif message["type"] == "lifespan.shutdown":
                await self._drain()
            return message

        return told

    async def _drain(self) -> None:
        running = self.installed.running
        if running:
            _, late = await asyncio.wait(running, timeout=GRACE_FOR)
            for task in late:
                task.cancel()
        if self._owned:
            await self.installed.engine.close()


class _Beside:
    """One request."""

    def __init__(self, shadow: AsgiShadow, watch: Watch, receive: Receive, send: Send) -> None:
        self._shadow = shadow
        self._watch = watch
        self._receive = receive
        self._send = send
        self._end: asyncio.Future[Ended] = asyncio.get_running_loop().create_future()
        self._answer = Ended()

    async def serve(self, scope: Scope) -> None:
        """Let the application answer, by the server's own receive and send, and look on."""
        if self._watch.bodiless:
            self._find_out()
        try:
            await self._shadow.installed.app(scope, self.receive, self.send)
        except BaseException as error:
            self._ended(Ended(error=error))
            raise
        else:
            self._ended(Ended())

    async def receive(self) -> Message:
        """What the application calls."""
        message = await self._receive()
        if message["type"] == "http.request":
            self._watch.take(message.get("body", b""))
            if not message.get("more_body", False):
                self._find_out()
        return message

    async def send(self, message: Message) -> None:
        """What the application calls."""
        if message["type"] == START:
            if not isinstance(given := message.get("headers", ()), list | tuple):
                message = {**message, "headers": (given := list(given))}  # it can be read but once
            self._answer = Ended(message["status"], [(bytes(name), bytes(value)) for name, value in given])
        elif message["type"] == BODY and not message.get("more_body", False):
            self._ended(self._answer)
        await self._send(message)

    def _ended(self, how: Ended) -> None:
        if not self._end.done():
            self._watch.over()
            self._end.set_result(how)

    def _find_out(self) -> None:
        if not self._watch.whole():
            return
        running = self._shadow.installed.running
        if len(running) >= MOST:
            self._watch.skip(TOO_MANY)
            return
        task = asyncio.get_running_loop().create_task(self._beside(), name="oncekey-shadow")
        running.add(task)
        task.add_done_callback(running.discard)

    async def _beside(self) -> None:
        try:
            exchange = self._watch.exchange()
            if exchange is not None:
                await self._follow(exchange)
        except Exception as error:  # noqa: BLE001 - nothing that goes wrong here may reach the request
            self._watch.failed(error)

    async def _follow(self, exchange: Exchange) -> None:
        engine, started = self._shadow.installed.engine, time.monotonic()
        decision = await engine.enter(exchange.claim, exchange, self._shadow.installed.gate.terms, late=exchange.late)
        self._watch.decided(exchange, decision)
        if isinstance(decision, Execute):
            attempt = attempt_of(exchange, decision, started)
            engine.keeper.keep(attempt)
            await engine.settle(attempt, settlement_of(exchange, attempt, await self._end))
