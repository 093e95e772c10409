"""The answer's half of an ASGI exchange: it stands in for the server's `send`.

Nothing reaches the client before the outcome is stored: not even the status line. An answer that cannot be kept (a
stream, or longer than the cap) is settled as such, and flows from then on.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

from oncekey.core.commands import Settlement, Stale
from oncekey.core.keys import key_ref
from oncekey.engine.events import log
from oncekey.errors import NotExecuted, OnceKeyError, OutcomeUnknown
from oncekey.http.exchange import STREAMED, TOO_LONG
from oncekey.http.messages import Headers, Reply

if TYPE_CHECKING:
    from oncekey.adapters.asgi import Message, Send
    from oncekey.adapters.asgi_upload import Upload
    from oncekey.engine.aio import AsyncEngine
    from oncekey.engine.attempt import Attempt
    from oncekey.http.exchange import Exchange

START, BODY = "http.response.start", "http.response.body"
EVENT_STREAM = b"text/event-stream"


class Answering:
    """Collects one answer, settles it at its last byte, and lets it go."""

    def __init__(self, engine: AsyncEngine, exchange: Exchange, attempt: Attempt, upload: Upload, send: Send) -> None:
        self._engine = engine
        self._exchange = exchange
        self._attempt = attempt
        self._upload = upload
        self._send = send
        self._start: Message | None = None
        self._headers: Headers = []
        self._chunks: list[bytes] = []
        self._size = 0
        self._flows = False
        self._ended = False
        self.settled = False

    async def send(self, message: Message) -> None:
        """What the application calls."""
        kind = message["type"]
        if kind != BODY:
            self._begin(kind, message)
            return
        if self._start is None or self._ended:
            when = "after its end" if self._ended else "before its start"
            raise RuntimeError(f"the application sent a response body {when}")
        # A copy, if it is a buffer: the application may fill it again before the answer is let go.
        body, more = bytes(message.get("body", b"")), message.get("more_body", False)
        self._ended = not more
        if self._flows:
            await self._send(message)
        elif more:
            await self._part(body)
        else:
            if self._chunks:
                body = b"".join((*self._chunks, body))
            whole = len(body) <= self._exchange.gate.policy.max_kept
            if await self._commit(body if whole else None, TOO_LONG):
                await self._send({"type": BODY, "body": body})

    def _begin(self, kind: str, message: Message) -> None:
        if kind != START:
            # It may be an answer, and past us it would be out before it is stored.
            raise RuntimeError(f"the application sent {kind}, which it was not offered")
        if self._start is not None or self._ended:
            when = "after its end" if self._ended else "twice"
            raise RuntimeError(f"the application started its response {when}")
        # Copies, if they are buffers; nearly all are bytes, of which there need be none.
        self._headers = [
            (name if type(name) is bytes else bytes(name), value if type(value) is bytes else bytes(value))
            for name, value in message.get("headers", ())
        ]
        self._start = message

    async def _part(self, body: bytes) -> None:
        self._chunks.append(body)
        self._size += len(body)
        limit = self._exchange.gate.policy.max_kept
        if self._size > limit or self._is_event_stream():
            await self._let_flow(TOO_LONG if self._size > limit else STREAMED)

    def _is_event_stream(self) -> bool:
        return len(self._chunks) == 1 and any(
            value.startswith(EVENT_STREAM) and name.lower() == b"content-type" for name, value in self._headers
        )

    async def _let_flow(self, reason: str) -> None:
        chunk = b"".join(self._chunks)
        self._chunks.clear()
        if not await self._commit(None, reason):
            self._ended = True
            raise NotExecuted("another attempt has taken over; this answer is not given")
        self._flows = True
        await self._send({"type": BODY, "body": chunk, "more_body": True})

    async def _commit(self, body: bytes | None, lack: str) -> bool:
        """Store the outcome, then send the head. False if another answer had to be given instead."""
        start, headers = cast("Message", self._start), self._headers
        answered = self._exchange.answered(self._attempt, start["status"], headers, body, lack)
        overruled = await self.settle(answered.settlement)
        self._upload.end()
        if overruled is not None:
            await self.reply(overruled)
            return False
        self._exchange.stored(answered)
        await self._send({**start, "headers": headers + answered.marks})
        return True

    async def settle(self, settlement: Settlement) -> Reply | None:
        """Store an outcome; a Reply means that another answer must be given instead."""
        self.settled = True
        try:
            written = await self._engine.settle(self._attempt, settlement)
        except OnceKeyError as error:
            log.error("the outcome of operation %s is not stored yet: %s", key_ref(self._attempt.id), error)
            return self._exchange.refuse(OutcomeUnknown())
        return self._exchange.overruled(written) if isinstance(written, Stale) else None

    def end(self) -> None:
        """The application has had its say: what a task of its own still sends is an error there."""
        self._ended = True

    async def reply(self, answer: Reply) -> None:
        """Send a whole answer of our own, unless something has already been sent."""
        if not self._flows:
            self._ended = True
            await send_reply(self._send, answer)


async def send_reply(send: Send, answer: Reply) -> None:
    """A whole answer in two messages."""
    # ASGI wants names in lower case; an answer that was stored under WSGI may have others.
    headers = [(name.lower(), value) for name, value in answer.headers]
    await send({"type": START, "status": answer.status, "headers": headers})
    await send({"type": BODY, "body": answer.body})
