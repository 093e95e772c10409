"""The few things that a small ASGI application needs: a table of routes, a body read whole, an answer sent whole."""

from __future__ import annotations

import json
import re
from collections.abc import Awaitable, Callable, Iterable, MutableMapping
from typing import Any, Generic, NamedTuple, TypeVar

from oncekey.http.messages import Headers, Reply

Scope = MutableMapping[str, Any]
Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
App = Callable[[Scope, Receive, Send], Awaitable[None]]

Target = TypeVar("Target")
JSON = b"application/json"
PROBLEM = b"application/problem+json"
_PLACE = re.compile(r"\{\w+\}")


class Found(NamedTuple, Generic[Target]):
    """What a table knows of a path: its target, what stands at its {place}, or the methods that it would allow."""

    target: Target | None
    place: str
    allowed: tuple[str, ...]


class Table(Generic[Target]):
    """Targets by method and path; a path may have one {place}, which stands for anything without a slash."""

    def __init__(self) -> None:
        self._paths: dict[str, dict[str, Target]] = {}
        self._patterns: list[tuple[re.Pattern[str], dict[str, Target]]] = []

    def add(self, method: str, path: str, target: Target) -> None:
        """Put a target in its place."""
        if path not in self._paths:
            self._paths[path] = {}
            if _PLACE.search(path):
                before, after = _PLACE.split(path)
                pattern = re.compile(re.escape(before) + "([^/]+)" + re.escape(after))
                self._patterns.append((pattern, self._paths[path]))
        self._paths[path][method] = target
        if method == "GET":
            self._paths[path]["HEAD"] = target

    def find(self, method: str, path: str) -> Found[Target]:
        """The target of a request."""
        place, methods = "", self._paths.get(path)
        if methods is None:
            for pattern, candidates in self._patterns:
                found = pattern.fullmatch(path)
                if found is not None:
                    place, methods = found[1], candidates
                    break
        if methods is None:
            return Found(None, "", ())
        return Found(methods.get(method), place, tuple(sorted(methods)))


async def whole_body(receive: Receive, most: int) -> bytes | int | None:
    """The body; its length as far as it was read, if that is over `most`; None if the client left before its end."""
    chunks, size = [], 0
    while True:
        message = await receive()
        if message["type"] != "http.request":
            return None
        chunk = message.get("body", b"")
        chunks.append(chunk)
        size += len(chunk)
        if size > most:
            return size
        if not message.get("more_body", False):
            return b"".join(chunks)


def again(body: bytes, receive: Receive) -> Receive:
    """A `receive` that gives a body that was read already, then whatever else comes."""
    given = False

    async def receive_again() -> Message:
        nonlocal given
        if given:
            return await receive()
        given = True
        return {"type": "http.request", "body": body, "more_body": False}

    return receive_again


async def respond(send: Send, reply: Reply) -> None:
    """Send a whole answer."""
    await send({"type": "http.response.start", "status": reply.status, "headers": reply.headers})
    await send({"type": "http.response.body", "body": reply.body})


def answered(status: int, media: bytes, body: bytes, more: Iterable[tuple[bytes, bytes]] = ()) -> Reply:
    """An answer with its content type and length."""
    headers: Headers = [(b"content-type", media), (b"content-length", b"%d" % len(body)), *more]
    return Reply(status, headers, body)


def json_answer(status: int, value: Any, more: Iterable[tuple[bytes, bytes]] = (), media: bytes = JSON) -> Reply:
    """An answer in JSON, in pure ASCII so that no text can make it fail."""
    return answered(status, media, json.dumps(value, separators=(",", ":")).encode(), more)


def problem(status: int, title: str, detail: str, more: Iterable[tuple[bytes, bytes]] = ()) -> Reply:
    """A refusal that has nothing to do with idempotency (RFC 9457)."""
    value = {"type": "about:blank", "title": title, "status": status, "detail": detail}
    return json_answer(status, value, more, PROBLEM)
