"""One handler behind both gateways: it is written for asyncio, and under threads its awaits return at once."""

from __future__ import annotations

import asyncio
import contextlib
import inspect
from collections.abc import Awaitable, Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Literal, Self

from oncekey import OnceKeyMiddleware, OnceKeyWSGI, Policy, by_header
from oncekey.core.journal import Journal
from oncekey.core.record import Record, State
from oncekey.engine.journals import journal_of
from oncekey.engine.sealing import Sealer
from oncekey.stores.memory import AsyncMemoryStore, MemoryStore
from oncekey.stores.open import open_store
from tests.adapters import asgi_kit, wsgi_kit

Colour = Literal["asgi", "wsgi"]
COLOURS: tuple[Colour, ...] = ("asgi", "wsgi")
LATCH = Policy(latch=True)
Work = Callable[[Any], Awaitable[Any]]


def drive(value: Any) -> Any:
    """What a coroutine that never waits returns."""
    if not inspect.isawaitable(value):
        return value
    try:
        value.__await__().send(None)
    except StopIteration as end:
        return end.value
    raise AssertionError("this would have waited")


class Awaited:
    """A threads' operation with the signatures of asyncio."""

    threads = True

    def __init__(self, operation: Any) -> None:
        self._operation = operation

    def __getattr__(self, name: str) -> Any:
        return getattr(self._operation, name)

    async def begin(self) -> None:
        self._operation.begin()

    def external(self, *args: Any, **choices: Any) -> Any:
        return _entered(self._operation.external(*args, **choices))

    async def step(self, name: str, fn: Any, *args: Any, **choices: Any) -> Any:
        return self._operation.step(name, lambda *given: drive(fn(*given)), *args, **choices)


@contextlib.asynccontextmanager
async def _entered(call: Any) -> Any:
    with call:
        yield call


class Gateway:
    """An application whose answer is what `work` returns: a status, or a body with 201."""

    def __init__(self, colour: Colour, work: Work, store: MemoryStore | str = "", **given: Any) -> None:
        self.work = work
        self.store: Any = open_store(store) if isinstance(store, str) and store else store or MemoryStore()
        self.sealer: Sealer = given.get("sealer") or Sealer()
        self._runner = asyncio.Runner() if colour == "asgi" else None
        choices: dict[str, Any] = {"scope": by_header("authorization"), "policy": LATCH} | given
        address: Any = store or self.store
        if self._runner is not None:
            address = AsyncMemoryStore(address) if isinstance(address, MemoryStore) else address
            self.app: Any = self._runner.run(self._asgi(address, choices))
        else:
            self.app = OnceKeyWSGI(self._wsgi, address, **choices)

    async def _asgi(self, store: Any, choices: Any) -> Any:
        async def app(scope: Any, receive: Any, send: Any) -> None:
            status, body = _answer(await self.work(scope["oncekey"]))
            for message in asgi_kit.answer(status, body):
                await send(message)

        return OnceKeyMiddleware(app, store, **choices)

    def _wsgi(self, environ: Any, start_response: Any) -> Any:
        status, body = _answer(drive(self.work(Awaited(environ["oncekey.operation"]))))
        start_response(f"{status} It", [("Content-Type", "application/json")])
        return [body]

    def ask(self, key: str = "key-1") -> tuple[int, bytes, str]:
        """Status, body and problem of one request; what the application raised has gone to the server's log."""
        if self._runner is not None:
            wire = asgi_kit.Wire()
            with contextlib.suppress(Exception):
                self._runner.run(self.app(asgi_kit.http(key.encode()), wire.receive, wire.send))
            answer: Any = wire.answer
            problem = answer[b"idempotency-problem"]
            return answer.status, answer.body, problem.decode() if problem else ""
        server = wsgi_kit.Server()
        with contextlib.suppress(Exception):
            server.serve(self.app, wsgi_kit.post(key))
        return server.answer.status, server.answer.body, server.answer["idempotency-problem"] or ""

    def ask_all(self, keys: Sequence[str]) -> None:
        """Requests with these keys, all at the same time."""
        if self._runner is None:
            with ThreadPoolExecutor(len(keys)) as pool:
                list(pool.map(self.ask, keys))
            return

        async def all_of_them() -> None:
            wires = [asgi_kit.Wire() for _ in keys]
            requests = [asgi_kit.http(key.encode()) for key in keys]
            await asyncio.gather(
                *(self.app(http, wire.receive, wire.send) for http, wire in zip(requests, wires, strict=True))
            )

        self._runner.run(all_of_them())

    @property
    def record(self) -> Record:
        """The only one that there is."""
        [record] = self.store.scan(list(State)).records
        return record  # type: ignore[no-any-return]

    @property
    def state(self) -> State:
        return self.record.state

    @property
    def journal(self) -> Journal:
        """What the record says that was done."""
        return journal_of(self.record, self.sealer)

    def close(self) -> None:
        if self._runner is not None:
            self._runner.run(self.app.engine.close())
            self._runner.close()
        else:
            self.app.engine.close()
        if not isinstance(self.store, MemoryStore):
            self.store.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _answer(returned: Any) -> tuple[int, bytes]:
    return (returned, b"{}") if isinstance(returned, int) else (201, bytes(returned or b"{}"))
