"""The ASGI application under test. `python -m uvicorn tests.servers.asgi_app:app` and its like serve it."""

from __future__ import annotations

import asyncio
import os
import time
from typing import Any

from oncekey import OnceKeyMiddleware
from tests.servers.ledger import HELD_FOR, NAP_FOR, Ledger
from tests.servers.settings import PIECE, PIECES, installed

ledger = Ledger.ours()
START, BODY = "http.response.start", "http.response.body"
HEADERS = [
    (b"content-type", b"text/plain"),
    (b"x-part", b"1"),
    (b"set-cookie", b"s=1"),
    (b"set-cookie", b"t=2"),
    (b"x-part", b"2"),
]


async def plain(scope: Any, receive: Any, send: Any) -> None:
    if scope["type"] == "lifespan":
        await lifespan(receive, send)
    elif scope["type"] == "websocket":
        await echo(receive, send)
    elif scope["method"] == "POST":
        await post(scope["path"], receive, send)
    else:
        await get(scope, send)


async def lifespan(receive: Any, send: Any) -> None:
    while True:
        word = (await receive())["type"].rpartition(".")[2]
        ledger.note("lifespan", word)
        await send({"type": f"lifespan.{word}.complete"})
        if word == "shutdown":
            return


async def echo(receive: Any, send: Any) -> None:
    await receive()
    await send({"type": "websocket.accept"})
    message = await receive()
    await send({"type": "websocket.send", "text": message["text"]})
    await send({"type": "websocket.close"})


async def get(scope: Any, send: Any) -> None:
    ref = scope["query_string"].decode()
    ledger.note(ref, scope["method"])
    await send({"type": START, "status": 200, "headers": [(b"x-method", scope["method"].encode())]})
    if scope["path"] == "/stream":
        await send({"type": BODY, "body": b"first", "more_body": True})
        await held(ref)
        await send({"type": BODY, "body": b"last"})
    else:
        await send({"type": BODY, "body": b"" if scope["method"] == "HEAD" else b"got"})


async def held(ref: str) -> None:
    end = time.monotonic() + HELD_FOR
    while not ledger.released(ref) and time.monotonic() < end:
        await asyncio.sleep(NAP_FOR)
    ledger.note(ref, "ended")


async def post(path: str, receive: Any, send: Any) -> None:
    body, more = b"", True
    while more:
        message = await receive()
        body, more = body + message.get("body", b""), message.get("more_body", False)
    ref = body.split(b"\n", 1)[0].decode()
    ledger.note(ref, "effect")
    if path == "/slow":
        await held(ref)
    if path == "/raise":
        raise RuntimeError("after the effect")
    await send({"type": START, "status": 201, "headers": HEADERS})
    if path == "/twice":
        await send({"type": START, "status": 200, "headers": []})
    if path in {"/long", "/generator"}:
        for _ in range(PIECES if path == "/long" else 2):
            await send({"type": BODY, "body": PIECE, "more_body": True})
    if path == "/long":
        await held(ref)
    await send({"type": BODY, "body": os.urandom(8).hex().encode()})
    if path == "/later":
        await held(ref)
        raise RuntimeError("after the answer")


app = OnceKeyMiddleware(plain, **installed())
