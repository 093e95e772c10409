"""One ASGI request: its upload, and the responder that stands between the application and the server."""

from __future__ import annotations

import asyncio
import sys
import time
from typing import TYPE_CHECKING, Any

from oncekey.core.commands import Settlement, Stale
from oncekey.core.decision import Execute
from oncekey.core.record import State
from oncekey.engine.attempt import Attempt
from oncekey.engine.events import log
from oncekey.engine.operation import AsyncOperation
from oncekey.errors import NotExecuted, OnceKeyError, OutcomeUnknown, StoreError
from oncekey.http.answer import refuse
from oncekey.http.exchange import STREAMED, TOO_LONG
from oncekey.http.messages import Reply, Request

if TYPE_CHECKING:
    from collections.abc import Coroutine

    from oncekey.adapters.asgi import Message, OnceKeyMiddleware, Receive, Scope, Send
    from oncekey.http.exchange import Exchange
    from oncekey.http.gate import Gate

# A handler that sends these lets bytes pass us by; on a guarded request they are not offered.
BYPASSES = frozenset(
    ("http.response.pathsend", "http.response.zerocopysend", "http.response.push", "http.response.trailers",
     "http.response.early_hint")
)  # fmt: skip
EVENT_STREAM = b"text/event-stream"


class Upload:
    """The request's body: read whole, up to a cap, before anything is claimed."""

    __slots__ = ("_gate", "_receive", "_request", "_unread", "ended", "gone")

    def __init__(self, receive: Receive, request: Request, gate: Gate) -> None:
        self._receive = receive
        self._request = request
        self._gate = gate
        self._unread = True
        self.gone = False
        self.ended: asyncio.Event | None = None

    async def read(self) -> Reply | None:
        """Read it all. A client that leaves before the last byte has sent nothing: then `gone` is set."""
        refusal = self._gate.too_large(declared(self._request))
        if refusal is not None:
            return refusal
        message = await self._receive()
        if message["type"] == "http.request" and not message.get("more_body", False):
            body = message.get("body", b"")
        else:
            chunks, size = [], 0
            while message["type"] == "http.request":
                chunk = message.get("body", b"")
                chunks.append(chunk)
                size += len(chunk)
                if (refusal := self._gate.too_large(size)) is not None:
                    return refusal
                if not message.get("more_body", False):
                    break
                message = await self._receive()
            else:
                self.gone = True
                return None
            body = b"".join(chunks)
        self._request.body = body
        return self._gate.too_large(len(body))

    async def again(self) -> Message:
        """What the application receives: the body in one piece, then whatever else comes."""
        if self._unread:
            self._unread = False
            return {"type": "http.request", "body": self._request.body, "more_body": False}
        return await self._receive()

    async def guarded(self) -> Message:
        """The same for work that must run on: that the client has left is told only when the answer is complete."""
        if not self._unread and self.ended is not None:
            await self.ended.wait()
        return await self.again()


def declared(request: Request) -> int:
    """The body's length by its header, 0 if it has none that can be read."""
    value = request.header(b"content-length")
    return int(value) if value.isdigit() else 0


class Responder:
    """Stands in for the server's `send` while the application answers; settles before the last byte goes out."""

    def __init__(self, installed: OnceKeyMiddleware, exchange: Exchange, upload: Upload, send: Send) -> None:
        self.installed = installed
        self.engine = installed.engine
        self.exchange = exchange
        self.upload = upload
        self.real_send = send
        self.start: Message | None = None
        self.chunks: list[bytes] = []
        self.size = 0
        self.settled = False
        self.through = False
        self.ended = False
        self.attempt: Attempt

    async def decide(self) -> Reply | None:
        """Claim the key; None means that the work is ours to run."""
        gate, claim = self.exchange.gate, self.exchange.claim
        started = time.monotonic()
        try:
            decision = await self.engine.enter(claim, self.exchange, gate.terms, gate.policy.wait_for)
            if type(decision) is not Execute:
                return self.exchange.answer(decision)
        except OnceKeyError as error:
            log.warning("operation %s was refused: %s", claim.id.hex()[:12], error)
            return refuse(gate.dialect, error)
        self.attempt = Attempt(decision, started, gate.policy.lease_for, gate.policy.cap_for, claim.state)
        self.engine.keeper.keep(self.attempt)
        return None

    async def run(self, scope: Scope) -> None:
        """Run the application in a task of its own and wait for it; being cancelled here cancels nothing there."""
        own = dict(scope)
        own["oncekey"] = AsyncOperation(self.engine, self.attempt, self.exchange.key)
        if scope.get("extensions"):
            own["extensions"] = {n: v for n, v in scope["extensions"].items() if n not in BYPASSES}
        self.upload.ended = asyncio.Event()
        task = spawn(self._work(own))
        if not task.done():
            running = self.installed.running
            running.add(task)
            task.add_done_callback(running.discard)
            await asyncio.shield(task)
        else:
            task.result()

    async def _work(self, scope: Scope) -> None:
        try:
            await self.installed.app(scope, self.upload.guarded, self.send)
        except BaseException as error:
            await self._failed(error)
            if not isinstance(error, NotExecuted | OutcomeUnknown):
                raise
        else:
            if not self.settled:
                await self._failed(None)
        finally:
            self.upload.ended.set()  # type: ignore[union-attr] # made in run()

    async def send(self, message: Message) -> None:
        """What the application sends. Nothing reaches the client before the outcome is stored."""
        kind = message["type"]
        if kind == "http.response.start":
            if self.start is not None:
                raise RuntimeError("the application started its response twice")
            self.start = message
        elif kind == "http.response.body":
            if self.start is None or self.ended:
                when = "after its end" if self.ended else "before its start"
                raise RuntimeError(f"the application sent a response body {when}")
            await self._body(message)
        else:
            await self.real_send(message)

    async def _body(self, message: Message) -> None:
        body, more = message.get("body", b""), message.get("more_body", False)
        if self.through:
            self.ended = not more
            await self.real_send(message)
            return
        if more:
            self.chunks.append(body)
            self.size += len(body)
            reason = self._unkeepable()
            if reason is not None:
                await self._let_through(reason)
            return
        self.ended = True
        if self.chunks:
            body = b"".join((*self.chunks, body))
        await self._finish(body)

    def _unkeepable(self) -> str | None:
        if self.size > self.exchange.gate.policy.max_kept:
            return TOO_LONG
        if len(self.chunks) == 1 and any(
            n.lower() == b"content-type" and v.startswith(EVENT_STREAM) for n, v in self._start["headers"]
        ):
            return STREAMED
        return None

    @property
    def _start(self) -> dict[str, Any]:
        start = dict(self.start or {})
        start.setdefault("headers", [])
        return start

    async def _finish(self, body: bytes) -> None:
        """The application's last byte: store the outcome, then let the answer go."""
        start, exchange = self._start, self.exchange
        headers = [(bytes(n), bytes(v)) for n, v in start["headers"]]
        if len(body) > exchange.gate.policy.max_kept:
            settlement = exchange.not_kept(start["status"], TOO_LONG)
        else:
            settlement = exchange.completed(start["status"], headers, body)
        overruled = await self._settle(settlement)
        if overruled is not None:
            await self._reply(overruled)
            return
        start["headers"] = headers + exchange.gate.dialect.echo(exchange.key)
        await self.real_send(start)
        await self.real_send({"type": "http.response.body", "body": body})

    async def _let_through(self, reason: str) -> None:
        """Too long to keep, or a stream: a tombstone is stored, and the bytes flow from now on."""
        overruled = await self._settle(self.exchange.not_kept(self._start["status"], reason))
        if overruled is not None:
            self.ended = True
            await self._reply(overruled)
            raise NotExecuted("the answer was overruled")
        self.through = True
        if self.upload.ended is not None:
            self.upload.ended.set()
        await self.real_send(self._start)
        await self.real_send({"type": "http.response.body", "body": b"".join(self.chunks), "more_body": True})
        self.chunks.clear()

    async def _settle(self, settlement: Settlement) -> Reply | None:
        """Store the outcome; a Reply means that another answer must be given instead."""
        self.settled = True
        try:
            written = await self.engine.settle(self.attempt, settlement)
        except StoreError as error:
            log.error("the outcome of operation %s is not stored yet: %s", self.attempt.id.hex()[:12], error)
            unknown = OutcomeUnknown("the operation ran, but its outcome could not be stored yet")
            return refuse(self.exchange.gate.dialect, unknown)
        return self.exchange.overruled(written) if isinstance(written, Stale) else None

    async def _failed(self, error: BaseException | None) -> None:
        """The application ended without a whole answer: record what that means, and tell the client."""
        if self.settled:
            return
        settlement = self.exchange.failed(self.attempt, error)
        overruled = await self._settle(settlement)
        if settlement.target is State.UNKNOWN and error is None:
            log.error("operation %s ended without an answer", self.attempt.id.hex()[:12])
        if isinstance(error, asyncio.CancelledError | GeneratorExit | SystemExit | KeyboardInterrupt):
            return
        self.ended = True
        await self._reply(overruled or self.exchange.failure(settlement, error))

    async def _reply(self, answer: Reply) -> None:
        await self.real_send({"type": "http.response.start", "status": answer.status, "headers": answer.headers})
        await self.real_send({"type": "http.response.body", "body": answer.body})


def spawn(work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
    """A task for the work; where Python can, it starts at once and may be over without ever being scheduled."""
    loop = asyncio.get_running_loop()
    if sys.version_info >= (3, 12):
        return asyncio.Task(work, loop=loop, eager_start=True)
    return loop.create_task(work)
