"""The request's half of an ASGI exchange: the body, read whole and up to a cap before anything is claimed."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from oncekey.errors import BodyIncomplete
from oncekey.http.answer import refuse
from oncekey.http.messages import Reply, Request

if TYPE_CHECKING:
    from oncekey.adapters.asgi import Message, Receive, Scope
    from oncekey.http.gate import Gate


class Upload:
    """Reads the body once and gives it to the application again."""

    __slots__ = ("_declared", "_gate", "_receive", "_request", "_unread", "_waiting", "ended", "gone")

    def __init__(self, receive: Receive, request: Request, gate: Gate) -> None:
        self._receive = receive
        self._request = request
        self._gate = gate
        self._unread = True
        self._declared = 0
        self.gone = False
        self.ended = False
        self._waiting: asyncio.Event | None = None

    async def read(self) -> Reply | None:
        """Read it all, or return the refusal. A client that leaves before the last byte has sent nothing: `gone`."""
        declared = self._request.header(b"content-length")
        if declared.isdigit():
            self._declared = int(declared.lstrip(b"0")[:19] or b"0")  # with more digits it is too large anyway
            if self._declared > self._gate.policy.max_body:
                return self._gate.too_large(self._declared)
        message = await self._receive()
        if message["type"] != "http.request" or message.get("more_body", False):
            return await self._read_on(message)
        return self._whole(bytes(message.get("body", b"")))

    def _whole(self, body: bytes) -> Reply | None:
        if len(body) > self._gate.policy.max_body:
            return self._gate.too_large(len(body))
        if len(body) < self._declared:
            short = f"the body has {len(body)} bytes of {self._declared} declared; nothing was done, send it again"
            return refuse(self._gate.dialect, BodyIncomplete(short))
        self._request.body = body
        return None

    async def _read_on(self, message: Message) -> Reply | None:
        chunks, size = [], 0
        while message["type"] == "http.request":
            chunk = bytes(message.get("body", b""))
            chunks.append(chunk)
            size += len(chunk)
            if (refusal := self._gate.too_large(size)) is not None:
                return refusal
            if not message.get("more_body", False):
                return self._whole(b"".join(chunks))
            message = await self._receive()
        # http.disconnect before the last chunk looks like an end and is none.
        self.gone = True
        return None

    async def again(self) -> Message:
        """What the application receives: the body in one piece, then whatever else comes."""
        if self._unread:
            self._unread = False
            return {"type": "http.request", "body": self._request.body, "more_body": False}
        return await self._receive()

    async def guarded(self) -> Message:
        """The same for work that must run on: that the client has left is told only when the answer is complete."""
        if self._unread:
            self._unread = False
            return {"type": "http.request", "body": self._request.body, "more_body": False}
        if not self.ended:
            if self._waiting is None:
                self._waiting = asyncio.Event()
            await self._waiting.wait()
        return await self._receive()

    def end(self) -> None:
        """The answer is complete, or flows freely: from now on the application hears what the server says."""
        self.ended = True
        if self._waiting is not None:
            self._waiting.set()


def path_of(scope: Scope) -> str:
    """The whole path. Where a framework takes a mount's part off, two mounts would pass for one endpoint."""
    path, root = str(scope["path"]), scope.get("root_path", "")
    if not root:
        return path
    root = str(root).rstrip("/")
    return path if not root or path == root or path.startswith(root + "/") else root + path
