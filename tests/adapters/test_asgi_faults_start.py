from __future__ import annotations

import asyncio
import contextlib
import os
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from oncekey import AsyncEngine, UnsafeStore
from oncekey.adapters.asgi_lifespan import drain
from oncekey.core.record import State
from oncekey.errors import StoreUnavailable
from oncekey.stores.contract import Finding
from oncekey.stores.memory import AsyncMemoryStore, MemoryStore
from tests.adapters.asgi_kit import Guarded, Shop, answer, call, http

# ---- start and stop ----------------------------------------------------------------------------------------------


class Unsafe(AsyncMemoryStore):
    """A store whose server would evict records; unreachable as often as told."""

    def __init__(self, away: int = 0) -> None:
        super().__init__(MemoryStore())
        self.away = away

    async def check(self) -> list[Finding]:
        if self.away:
            self.away -= 1
            raise StoreUnavailable("refused")
        return [Finding("refusal", "it evicts records", "set maxmemory-policy noeviction")]


class Noted(AsyncMemoryStore):
    """A store that notes when it is closed."""

    def __init__(self, notes: list[str]) -> None:
        super().__init__(MemoryStore())
        self.notes = notes

    async def close(self) -> None:
        self.notes.append("closed")


async def lifespan(app: Any, *events: str) -> list[Any]:
    messages, sent = [{"type": f"lifespan.{event}"} for event in events], []

    async def receive() -> Any:
        return messages.pop(0)

    async def send(message: Any) -> None:
        sent.append(message)

    with contextlib.suppress(UnsafeStore):  # servers see it, and have been told before
        await app({"type": "lifespan"}, receive, send)
    return sent


async def starlike(scope: Any, receive: Any, send: Any) -> None:
    """An application with the lifespan of most frameworks; otherwise it answers."""
    if scope["type"] != "lifespan":
        await Shop()(scope, receive, send)
        return
    await receive()
    await send({"type": "lifespan.startup.complete"})
    await receive()
    await send({"type": "lifespan.shutdown.complete"})


async def careful(scope: Any, receive: Any, send: Any) -> None:
    """The same, reporting its own failures."""
    try:
        await starlike(scope, receive, send)
    except Exception as error:
        await send({"type": "lifespan.startup.failed", "message": repr(error)})
        raise


@pytest.mark.parametrize("app", [starlike, careful])
async def test_an_unsafe_store_fails_the_start_and_says_why(app: Any) -> None:
    """The server is told once, with the sentence; an exception alone would pass for `no lifespan here`."""
    sent = await lifespan(Guarded(app, Unsafe()), "startup")
    assert [message["type"] for message in sent] == ["lifespan.startup.failed"]
    assert "maxmemory-policy" in sent[0]["message"]


async def test_a_store_that_was_away_at_the_start_is_looked_at_later() -> None:
    """Unreachable is not checked: when it is back, an unsafe one still serves nobody."""
    shop = Shop()
    guarded = Guarded(shop, Unsafe(away=1))
    guarded.app.app = starlike
    await lifespan(guarded, "startup", "shutdown")
    guarded.app.app = shop
    assert (await call(guarded)).status == 503
    assert shop.effects == []


async def test_a_store_that_is_away_at_the_first_request_is_not_asked_twice() -> None:
    """No look, no claim: 503 and nothing runs."""
    shop, store = Shop(), Unsafe(away=2)
    assert [(await call(Guarded(shop, store))).status for _ in range(2)] == [503, 503]
    assert (shop.effects, store.away) == ([], 0)


async def test_a_shutdown_takes_no_new_work() -> None:
    """What runs is waited for and answered; what comes meanwhile is told to come again, and nothing is claimed."""
    shop, begun, go = Shop(), asyncio.Event(), asyncio.Event()

    async def app(scope: Any, receive: Any, send: Any) -> None:
        begun.set()
        await go.wait()
        await shop(scope, receive, send)

    guarded = Guarded(app)
    running = asyncio.create_task(call(guarded))
    await begun.wait()
    ending = asyncio.create_task(drain(guarded.app))
    await asyncio.sleep(0)
    refused = await asyncio.wait_for(call(guarded, http(b"later")), 5)
    go.set()
    await ending
    assert refused.status == 503
    assert int(refused[b"retry-after"] or 0) >= 1
    assert ((await running).status, len(shop.effects), len(guarded.records)) == (201, 1, 1)


async def test_a_shutdown_waits_for_what_slipped_in() -> None:
    """A claim that was under way when it came turns into work that is waited for like the rest."""
    done: list[str] = []
    guarded = Guarded(Shop(), Noted(done))

    async def work(*then: Any) -> None:
        await asyncio.sleep(0 if then else 0.2)  # longer than it takes to close
        for begin in then:
            begin()
        done.append("worked")

    def begin(*then: Any) -> None:
        task = asyncio.create_task(work(*then))
        guarded.app.running.add(task)
        task.add_done_callback(guarded.app.running.discard)

    begin(begin)
    await drain(guarded.app)
    assert done == ["worked", "worked", "closed"]


@pytest.mark.parametrize("url", ["memory", "sqlite"])
async def test_an_application_may_be_started_a_second_time(url: str, tmp_path: Path) -> None:
    """Test clients do it for every test: after a stop the next start finds a store that is open."""
    guarded = Guarded(starlike, f"sqlite:///{tmp_path}/r.db" if url == "sqlite" else "memory://")
    statuses = []
    for number in range(2):
        started = asyncio.Event()
        stop = asyncio.Event()

        async def receive(started: asyncio.Event = started, stop: asyncio.Event = stop) -> Any:
            if not started.is_set():
                return {"type": "lifespan.startup"}
            await stop.wait()
            return {"type": "lifespan.shutdown"}

        async def send(message: Any, started: asyncio.Event = started) -> None:
            started.set()

        serving = asyncio.create_task(guarded({"type": "lifespan"}, receive, send))
        await started.wait()
        statuses.append((await call(guarded, http(b"key-%d" % number))).status)
        stop.set()
        await serving
    assert statuses == [201, 201]


async def test_the_engine_is_not_closed_under_the_work_of_another_installation() -> None:
    """Two installations on one engine: whoever stops first waits for the work of both."""
    store, gate = MemoryStore(), asyncio.Event()
    engine = AsyncEngine(AsyncMemoryStore(store))
    states: list[State] = []

    async def app(scope: Any, receive: Any, send: Any) -> None:
        await gate.wait()
        for message in answer(201, b"ok"):
            await send(message)

    inner = Guarded(app, engine)
    outer = Guarded(starlike, engine)
    close = engine.close

    async def closing() -> None:
        states.extend(record.state for record in store._records.values())
        await close()

    engine.close = closing  # type: ignore[method-assign]
    running = asyncio.create_task(call(inner))
    while not store._records:
        await asyncio.sleep(0)
    stopping = asyncio.create_task(lifespan(outer, "startup", "shutdown"))
    await asyncio.sleep(0.01)
    gate.set()
    await asyncio.gather(running, stopping)
    assert states == [State.COMPLETED]


APP = """
from oncekey import OnceKeyMiddleware, SHARED
from oncekey.stores.contract import Finding
from oncekey.stores.memory import AsyncMemoryStore, MemoryStore

class Unsafe(AsyncMemoryStore):
    async def check(self):
        return [Finding("refusal", "it evicts records", "set maxmemory-policy noeviction")]

async def inner(scope, receive, send):
    assert scope["type"] == "lifespan"
    await receive()
    await send({"type": "lifespan.startup.complete"})
    await receive()
    await send({"type": "lifespan.shutdown.complete"})

app = OnceKeyMiddleware(inner, Unsafe(MemoryStore()), scope=SHARED)
"""


def test_uvicorn_does_not_start_on_an_unsafe_store(tmp_path: Path) -> None:
    """It ends by itself, with the sentence in its log."""
    (tmp_path / "unsafe_app.py").write_text(APP)
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    command = [sys.executable, "-m", "uvicorn", "unsafe_app:app", "--port", str(port)]
    environment = {**os.environ, "PYTHONPATH": f"{tmp_path}{os.pathsep}{Path(__file__).parents[2] / 'src'}"}
    ran = subprocess.run(
        command, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=30, check=False
    )
    assert ran.returncode != 0
    assert "maxmemory-policy" in ran.stderr


def test_a_refusal_is_an_unsafe_store() -> None:
    """Whoever looks at the store by hand gets the exception."""
    from oncekey.adapters.asgi_lifespan import check

    with pytest.raises(UnsafeStore, match="noeviction"):
        asyncio.run(check(Guarded(Shop(), Unsafe()).app))
