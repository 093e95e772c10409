"""Applications to crash: good ones for each guarantee and gateway, and bad ones that must be found out.

`make` is called again for each process life, so what must survive a crash is kept outside of it: in memory for crashes
within this process, in a file in the folder for killed ones.
"""

from __future__ import annotations

import asyncio
import os
import weakref
from collections.abc import Callable
from pathlib import Path
from typing import Any

from starlette.applications import Starlette
from starlette.background import BackgroundTask
from starlette.requests import Request
from starlette.responses import JSONResponse
from starlette.routing import Route

from oncekey import SHARED, NotExecuted, OnceKeyMiddleware, OnceKeyWSGI, Policy
from oncekey.testing.crashes import Trial, post

# Short, because a server's clock cannot be moved: the leases of all cases are waited for together.
LEASE_FOR = 0.6
PAY = post("/pay", {"amount": 5})


class Ledger:
    """What happened in the world: one line for each effect, in the order of their coming."""

    def __init__(self, folder: Path) -> None:
        self.path = folder / "ledger"
        # One write is one effect: whatever happens around it, it is there whole or not at all.
        self._file = os.open(self.path, os.O_CREAT | os.O_APPEND | os.O_WRONLY)
        weakref.finalize(self, os.close, self._file)

    def add(self, line: str) -> int:
        """An effect; the answer is how many there have been."""
        os.write(self._file, f"{line}\n".encode())
        return self.path.read_text().count("\n")

    def add_once(self, key: str, line: str) -> int:
        """A receiver that deduplicates: a second effect with this derived key is none."""
        return 0 if f" {key}\n" in self.path.read_text() else self.add(f"{line} {key}")

    def count(self, key: str) -> int:
        """How many effects a key has had."""
        return sum(line.split()[0] == key for line in self.path.read_text().splitlines())


Pay = Callable[[Any, Ledger], Any]


def asgi(pay: Pay, **choices: Any) -> Callable[[str, Path], Trial]:
    """A trial of a handler under ASGI."""

    def make(store: str, folder: Path) -> Trial:
        ledger = Ledger(folder)

        async def endpoint(request: Request) -> JSONResponse:
            await request.body()
            number = await pay(request.scope["oncekey"], ledger)
            return JSONResponse({"number": number}, 201)

        app = Starlette(routes=[Route("/pay", endpoint, methods=["POST"])])
        policy = Policy(lease_for=LEASE_FOR, **choices)
        guard: Any = (
            OnceKeyMiddleware  # Starlette's type for a middleware knows no messages of other types than its own
        )
        app.add_middleware(guard, store=store, scope=SHARED, policy=policy)
        return Trial(asgi=app, request=PAY, effects=ledger.count)

    return make


def wsgi(pay: Pay, **choices: Any) -> Callable[[str, Path], Trial]:
    """A trial of a handler under WSGI."""

    def make(store: str, folder: Path) -> Trial:
        ledger = Ledger(folder)

        def app(environ: dict[str, Any], start_response: Any) -> Any:
            environ["wsgi.input"].read()
            number = pay(environ["oncekey.operation"], ledger)
            start_response("201 Created", [("Content-Type", "text/plain")])
            yield b"%d" % number

        guarded = OnceKeyWSGI(app, store=store, scope=SHARED, policy=Policy(lease_for=LEASE_FOR, **choices))
        return Trial(wsgi=guarded, request=PAY, effects=ledger.count)

    return make


# ---- good ones ---------------------------------------------------------------------------------------------------


async def charge(operation: Any, ledger: Ledger) -> int:
    """The plain handler."""
    return ledger.add(operation.key)


def charge_sync(operation: Any, ledger: Ledger) -> int:
    """The same under WSGI."""
    return ledger.add(operation.key)


async def latched(operation: Any, ledger: Ledger) -> int:
    """Says by itself when its effect may begin."""
    await operation.begin()
    return ledger.add(operation.key)


def latched_sync(operation: Any, ledger: Ledger) -> int:
    """The same under WSGI."""
    operation.begin()
    return ledger.add(operation.key)


async def deduplicated(operation: Any, ledger: Ledger) -> int:
    """Gives the receiver a key that is the same in every attempt."""
    ledger.add_once(operation.derived_key("charge"), operation.key)
    return 1


def deduplicated_sync(operation: Any, ledger: Ledger) -> int:
    """The same under WSGI."""
    ledger.add_once(operation.derived_key("charge"), operation.key)
    return 1


DOWNSTREAM = {"guarantee": "deduplicated_downstream", "take_over": True}
GOOD = {
    "asgi-at_most_once": asgi(charge),
    "asgi-latch": asgi(latched, latch=True),
    "asgi-downstream": asgi(deduplicated, **DOWNSTREAM),
    "wsgi-at_most_once": wsgi(charge_sync),
    "wsgi-latch": wsgi(latched_sync, latch=True),
    "wsgi-downstream": wsgi(deduplicated_sync, **DOWNSTREAM),
}


def afterwards(store: str, folder: Path) -> Trial:
    """Work that goes on when the answer is out, outside of what is guarded."""
    ledger = Ledger(folder)
    mails = os.open(folder / "mails", os.O_CREAT | os.O_APPEND | os.O_WRONLY)
    weakref.finalize(ledger, os.close, mails)

    async def mail(key: str) -> None:
        await asyncio.sleep(0)
        os.write(mails, f"{key}\n".encode())
        await asyncio.sleep(0)

    async def endpoint(request: Request) -> JSONResponse:
        await request.body()
        key = request.scope["oncekey"].key
        return JSONResponse({"number": ledger.add(key)}, 201, background=BackgroundTask(mail, key))

    app = Starlette(routes=[Route("/pay", endpoint, methods=["POST"])])
    guard: Any = OnceKeyMiddleware
    app.add_middleware(guard, store=store, scope=SHARED, policy=Policy(lease_for=LEASE_FOR))
    return Trial(asgi=app, request=PAY, effects=ledger.count)


# ---- bad ones ----------------------------------------------------------------------------------------------------


async def says_nothing_was_done(operation: Any, ledger: Ledger) -> int:
    """Takes any error for a sign that nothing was done."""
    try:
        number = ledger.add(operation.key)
        number += 0
    except Exception as error:
        raise NotExecuted from error
    return number


async def begins_too_late(operation: Any, ledger: Ledger) -> int:
    """Sets the latch after its effect."""
    number = ledger.add(operation.key)
    await operation.begin()
    return number


async def promises_a_key(operation: Any, ledger: Ledger) -> int:
    """Says that its receiver deduplicates, and gives it no key to do it by."""
    return ledger.add(operation.key)


async def says_it_was_done(operation: Any, ledger: Ledger) -> int:
    """Takes an error for a success."""
    try:
        return ledger.add(operation.key)
    except Exception:
        return 0


TWICE = "2 effects, and 1 without a crash"
BAD = {
    "two effects after a failure": (asgi(says_nothing_was_done), TWICE, "in says_nothing_was_done"),
    "two effects before the latch": (asgi(begins_too_late, latch=True), TWICE, "in begins_too_late"),
    "two effects after a take-over": (asgi(promises_a_key, **DOWNSTREAM), TWICE, "before settle"),
    "an answer and no effect": (
        asgi(says_it_was_done),
        "the answer is 201, and only 0 of 1 effects happened",
        "in says_it_was_done",
    ),
}
