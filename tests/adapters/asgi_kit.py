"""A client for ASGI applications that plays event scripts, and small applications to put behind OnceKey."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from oncekey import OnceKeyMiddleware, by_header
from oncekey.core.record import Record, Seen, State
from oncekey.stores.memory import AsyncMemoryStore, MemoryStore

START, BODY = "http.response.start", "http.response.body"
DISCONNECT = {"type": "http.disconnect"}


@dataclass
class Answer:
    status: int
    headers: list[tuple[bytes, bytes]]
    body: bytes

    def __getitem__(self, name: bytes) -> bytes | None:
        return next((value for found, value in self.headers if found.lower() == name), None)


def http(key: bytes | None = b"key-1", **changes: Any) -> dict[str, Any]:
    headers = [(b"authorization", b"Bearer alice"), (b"content-type", b"application/json")]
    if key is not None:
        headers.append((b"idempotency-key", key))
    scope = {
        "type": "http",
        "method": "POST",
        "path": "/pay",
        "query_string": b"",
        "headers": headers,
        "extensions": {},
    }
    return scope | changes


def chunks(*parts: bytes, complete: bool = True) -> list[dict[str, Any]]:
    """An upload in parts; not complete, the client goes away after the last one."""
    last = len(parts) - 1
    sent = [
        {"type": "http.request", "body": part, "more_body": number < last or not complete}
        for number, part in enumerate(parts)
    ]
    return sent if complete else [*sent, DISCONNECT]


class Wire:
    """The server's side of one request: plays the given events, then keeps silent; keeps what was sent."""

    def __init__(self, events: Iterable[dict[str, Any]] = ()) -> None:
        self.events = list(events) or chunks(b'{"a":1}')
        self.sent: list[Any] = []
        self.silent = asyncio.Event()

    async def receive(self) -> dict[str, Any]:
        if self.events:
            return self.events.pop(0)
        await self.silent.wait()
        return dict(DISCONNECT)

    async def send(self, message: Any) -> None:
        self.sent.append(message)

    @property
    def answer(self) -> Answer:
        start = self.sent[0]
        body = b"".join(message.get("body", b"") for message in self.sent[1:])
        return Answer(start["status"], list(start["headers"]), body)


async def call(app: Any, scope: dict[str, Any] | None = None, events: Iterable[dict[str, Any]] = ()) -> Answer:
    wire = Wire(events)
    await app(scope or http(), wire.receive, wire.send)
    return wire.answer


class Shop:
    """An application that counts its effects and answers as it is told."""

    def __init__(self, *messages: dict[str, Any]) -> None:
        self.effects: list[bytes] = []
        self.scopes: list[Any] = []
        self.messages = messages

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        self.scopes.append(scope)
        if scope["type"] != "http":
            await send({"type": f"{scope['type']}.seen"})
            return
        body, more = b"", True
        while more:
            message = await receive()
            body, more = body + message.get("body", b""), message.get("more_body", False)
        self.effects.append(body)
        for message in self.messages or answer(201, b'{"n":%d}' % len(self.effects)):
            await send(message)
        await self.after()

    async def after(self) -> None:
        """What happens when the answer is out."""


def answer(status: int, body: bytes, *headers: tuple[bytes, bytes]) -> list[dict[str, Any]]:
    head = [(b"content-type", b"application/json"), (b"content-length", b"%d" % len(body)), *headers]
    return [{"type": START, "status": status, "headers": head}, {"type": BODY, "body": body}]


class Guarded:
    """An application behind OnceKey over a memory store, and that store."""

    def __init__(self, app: Any, store: Any = None, **choices: Any) -> None:
        self.store = MemoryStore()
        self.app = OnceKeyMiddleware(
            app,
            store or AsyncMemoryStore(self.store),
            scope=choices.pop("scope", by_header("authorization")),
            **choices,
        )

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        await self.app(scope, receive, send)

    @property
    def records(self) -> list[Record]:
        return self.store.scan(list(State)).records

    @property
    def state(self) -> State | None:
        return self.records[0].state if self.records else None

    def seen(self) -> Seen:
        found = self.store.get(self.records[0].id)
        assert found is not None
        return found
