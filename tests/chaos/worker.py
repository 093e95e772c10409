"""The application under test: a payments handler behind OnceKey, as one uvicorn process of several serves it."""

from __future__ import annotations

import json
import os
from typing import Any

from oncekey import NotExecuted, OnceKeyMiddleware, OutcomeUnknown, by_header
from oncekey.engine.aio import AsyncEngine
from oncekey.engine.events import Event
from oncekey.engine.tuning import Tuning
from tests.chaos import mutants, speech, versions
from tests.chaos.payment import Header, payment, short
from tests.chaos.settings import (
    KEEP_FOR,
    LEASE_FOR,
    NOTES,
    PAYMENTS,
    PROVIDER_WITHIN,
    STORE_FOR,
    Settings,
    policy,
    sealer,
)
from tests.chaos.trace import Trace

CALLER = b"authorization"
OK, BUSY, GONE = 200, 503, 410
TOLD = frozenset({"completed", "turned_unknown", "lease_lost", "settle_refused", "settle_owed", "store_error"})

settings = Settings.ours()
trace = Trace(settings.trace)


def note(event: Event) -> None:
    """What OnceKey says of itself, for the count of rare events."""
    if event.name in TOLD:
        trace.note(event.name, ref=event.ref, detail=event.detail)


async def plain(scope: Any, receive: Any, send: Any) -> None:
    """Without OnceKey."""
    if scope["type"] == "lifespan":
        await _lifespan(receive, send)
        return
    body, more = b"", True
    while more:
        message = await receive()
        body, more = body + message.get("body", b""), message.get("more_body", False)
    caller = dict(scope["headers"])[CALLER].decode()
    status, headers, told = await pay(scope["oncekey"], caller, body)
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": told})


async def pay(operation: Any, caller: str, body: bytes) -> tuple[int, list[Header], bytes]:
    """Charge, and say what came of it."""
    asked = json.loads(body)
    trace.note("start", caller=caller, key=operation.key, attempt=operation.attempt)
    try:
        receipt = await charge(operation, caller, asked, short(body))
    finally:
        trace.note("end", caller=caller, key=operation.key, attempt=operation.attempt)
    return payment(receipt, caller, operation.key, asked["amount"])


async def charge(operation: Any, caller: str, asked: Any, payload: str) -> str:
    """One call to the provider. Nothing was done, it was done, or nobody knows: each is said in so many words."""
    about = {"ref": operation.ref, "key": operation.key, "attempt": operation.attempt, "caller": caller}
    told = {**asked, **about, "payload": payload, "pid": os.getpid()}
    data = speech.request("/charge", {}, json.dumps(told).encode())
    try:
        answer = await speech.ask(settings.provider, data, PROVIDER_WITHIN)
    except speech.NotSent as error:
        raise NotExecuted from error
    except speech.Cut as error:
        raise OutcomeUnknown from error
    if answer.status in {BUSY, GONE}:
        raise NotExecuted
    return str(answer.json()["receipt"])


async def _lifespan(receive: Any, send: Any) -> None:
    while True:
        word = (await receive())["type"].rpartition(".")[2]
        await send({"type": f"lifespan.{word}.complete"})
        if word == "shutdown":
            return


def guarded() -> Any:
    """Two routes on one store: payments are kept for long, notes for so short a time that they are purged."""
    versions.write(settings.version)
    mutants.install(settings.mutant)
    engine = AsyncEngine(settings.store, Tuning(store_for=STORE_FOR), (note,))
    app: Any = plain
    seals = sealer(settings.version)
    for path, keep_for in ((NOTES, LEASE_FOR), (PAYMENTS, KEEP_FOR)):
        chosen = policy(keep_for, settings.wait_for)
        app = OnceKeyMiddleware(
            app, engine, scope=by_header("Authorization"), policy=chosen, paths=[path], sealer=seals
        )
    return app


app = guarded()
