"""The server's side of ASGI: start, one request at a time on an event loop of its own, stop."""

from __future__ import annotations

import asyncio
import selectors
from collections.abc import Callable, Coroutine, Iterable, MutableMapping
from pathlib import Path
from types import CoroutineType
from typing import Any
from urllib.parse import unquote

from oncekey.core.record import State
from oncekey.testing.crashes.steps import Place, Steps, Way, on_purpose, thrown
from oncekey.testing.crashes.trial import Ask, Got

Message = MutableMapping[str, Any]
START, BODY = "http.response.start", "http.response.body"


async def _outlast(task: asyncio.Task[None]) -> None:
    await asyncio.wait({task})


async def _cancel(others: set[asyncio.Task[Any]]) -> None:
    for task in others:
        task.cancel()
    if others:
        await asyncio.wait(others, timeout=1)


class Heard:
    """What has reached the client so far."""

    def __init__(self) -> None:
        self.status: int | None = None
        self.headers: list[tuple[str, str]] = []
        self.body = b""
        self.whole = False
        self.raised = ""

    def got(self, state: State | None, effects: int, *, ran: bool) -> Got:
        """The same with what else is known by now."""
        return Got(self.status, tuple(self.headers), self.body, self.raised, state, effects, whole=self.whole, ran=ran)


class AsgiServer:
    """One process life of an ASGI application."""

    def __init__(self, app: Any, steps: Steps, patience: float) -> None:
        self._app = app
        self._steps = steps
        self._patience = patience
        self._turns = Turns()
        self._runner = asyncio.Runner(loop_factory=lambda: asyncio.SelectorEventLoop(self._turns))
        # What is raised on purpose ends tasks that nobody asks about.
        self._runner.get_loop().set_exception_handler(lambda loop, context: None)
        self._lifespan: Lifespan | None = None
        self._shut = False

    def start(self) -> None:
        """Tell the application that it starts."""
        self._lifespan = Lifespan(self._app)
        self._runner.run(self._lifespan.start(self._patience))

    def serve(self, ask: Ask, heard: Heard) -> None:
        """Serve one request. What ends the process comes out of here."""
        self._runner.run(self._serve(ask, heard))

    def stop(self) -> None:
        """Tell the application that it ends."""
        if self._lifespan is not None:
            self._run(self._lifespan.stop(self._patience))

    def close(self, last: Iterable[Coroutine[Any, Any, None]] = ()) -> None:
        """Cancel what still runs, as a loop does at its end, and end the loop after these."""
        self._run(_cancel(asyncio.all_tasks(self._runner.get_loop())))
        for one in last:
            self._run(one)
        self._runner.close()

    def wait(self) -> None:
        """Let what runs go on for a moment."""
        self._run(asyncio.sleep(0.001))

    def _run(self, work: Coroutine[Any, Any, None]) -> None:
        """Run this to its end. What ends a process comes out of a loop once for each task that it passes through."""
        task = self._runner.get_loop().create_task(work)
        while not task.done():
            try:
                self._runner.run(_outlast(task))
            except BaseException as error:
                if not on_purpose(error):
                    raise
        if not task.cancelled():
            task.exception()

    @property
    def ended(self) -> bool:
        """Whether a shutdown has begun: it takes no more requests."""
        return self._shut

    async def _serve(self, ask: Ask, heard: Heard) -> None:
        line = Line(self._steps, ask, heard)
        task = asyncio.ensure_future(self._app(scope_of(ask), line.receive, line.send))
        watcher = Watcher(self._steps, task)
        self._turns.look = watcher.look
        try:
            done, _ = await asyncio.wait({task}, timeout=self._patience)
        finally:
            self._turns.look = bool
            line.gone.set()
            self._shut = self._shut or watcher.shut
        if not done:
            heard.raised = "nothing in time"
            task.cancel()
        elif task.cancelled():
            heard.raised = "CancelledError"
        elif (error := task.exception()) is not None:
            heard.raised = type(error).__name__


class Line:
    """The connection of one request."""

    def __init__(self, steps: Steps, ask: Ask, heard: Heard) -> None:
        self._steps = steps
        self._heard = heard
        self._body: bytes | None = ask.body
        self.gone = asyncio.Event()

    async def receive(self) -> Message:
        """What the application hears of its client."""
        if self._body is None:
            await self.gone.wait()
            return {"type": "http.disconnect"}
        self._meets("receives")
        body, self._body = self._body, None
        return {"type": "http.request", "body": body, "more_body": False}

    async def send(self, message: Message) -> None:
        """What the application says."""
        heard = self._heard
        self._meets(f"sends {message['type']}")
        if message["type"] == START:
            heard.status = message["status"]
            heard.headers = [(n.decode("latin-1").lower(), v.decode("latin-1")) for n, v in message.get("headers", ())]
        elif message["type"] == BODY:
            heard.body += bytes(message.get("body", b""))
            heard.whole = not message.get("more_body", False)
        self._meets(f"has sent {message['type']}")

    def _meets(self, what: str) -> None:
        way = self._steps.reach(Place.SERVER, what)
        if way is not None:
            raise thrown(way)


class Turns(selectors.DefaultSelector):
    """An event loop's own selector, which is asked once in every turn: a place to look from, and nothing is slowed."""

    def __init__(self) -> None:
        super().__init__()
        self.look: Callable[[], bool] = bool

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        """Look first; where that set something off, nothing is waited for."""
        return super().select(0 if self.look() else timeout)


class Watcher:
    """Sees at every turn of the event loop which tasks have come to another point at which they wait."""

    def __init__(self, steps: Steps, request: asyncio.Future[Any]) -> None:
        self._steps = steps
        self._request = request
        self._loop = asyncio.get_running_loop()
        self._driver = asyncio.current_task()
        # What runs already is not this request's.
        self._known = {task: where for task, where in self._stand().items() if task is not request}
        self._elder = frozenset(self._known)
        self.shut = False

    def look(self) -> bool:
        """Note what has moved; say whether something was cancelled."""
        found = self._stand()
        moved = sorted(where[0] for task, where in found.items() if self._known.get(task) != where)
        self._known = found
        return bool(moved) and self._happens(self._steps.reach(Place.AWAIT, ", ".join(moved)))

    def _stand(self) -> dict[Any, Any]:
        return {task: _stands(task) for task in asyncio.all_tasks(self._loop) if task is not self._driver}

    def _happens(self, way: Way | None) -> bool:
        if way is Way.LEAVE:
            self._request.cancel()
        elif way is Way.SHUTDOWN:
            self.shut = True
            for task in self._known.keys() - self._elder:
                task.cancel()
        return way is not None


def _stands(task: asyncio.Task[Any]) -> tuple[str, int, int]:
    """Where a task waits: the innermost coroutine, and how far each has come."""
    inner: object = task.get_coro()
    depth = far = 0
    name = ""
    while isinstance(inner, CoroutineType):
        code, frame = inner.cr_code, inner.cr_frame
        far = far * 4099 + (frame.f_lasti if frame is not None else -1)
        name = f"{Path(code.co_filename).name} {code.co_name}"
        inner, depth = inner.cr_await, depth + 1
    return name, depth, far


class Lifespan:
    """Start and stop, as far as the application knows them."""

    def __init__(self, app: Any) -> None:
        self._app = app
        self._task: asyncio.Future[Any] | None = None
        self._said: asyncio.Queue[str] = asyncio.Queue()
        self._tell: asyncio.Queue[str] = asyncio.Queue()

    async def start(self, patience: float) -> None:
        """Until the application says that it has started; one that knows no lifespan is served without."""
        scope = {"type": "lifespan", "asgi": {"version": "3.0", "spec_version": "2.0"}, "state": {}}
        self._task = asyncio.ensure_future(self._app(scope, self._receive, self._send))
        self._tell.put_nowait("lifespan.startup")
        if await self._hears(patience) == "lifespan.startup.failed":
            raise RuntimeError("the application refused to start; its log says why")

    async def stop(self, patience: float) -> None:
        """Until it says that it has stopped."""
        if self._task is not None and not self._task.done():
            self._tell.put_nowait("lifespan.shutdown")
            await self._hears(patience)
            await asyncio.wait({self._task}, timeout=patience)

    async def _hears(self, patience: float) -> str:
        assert self._task is not None
        said = asyncio.ensure_future(self._said.get())
        await asyncio.wait({said, self._task}, timeout=patience, return_when=asyncio.FIRST_COMPLETED)
        if said.done():
            return said.result()
        said.cancel()
        if self._task.done() and not self._task.cancelled():
            self._task.exception()  # seen: it knows no lifespan
        return ""

    async def _receive(self) -> Message:
        return {"type": await self._tell.get()}

    async def _send(self, message: Message) -> None:
        self._said.put_nowait(message["type"])


def scope_of(ask: Ask) -> dict[str, Any]:
    """The request as ASGI has it."""
    path, _, query = ask.path.partition("?")
    headers = [(name.lower().encode("latin-1"), value.encode("latin-1")) for name, value in ask.headers]
    headers.append((b"content-length", b"%d" % len(ask.body)))
    return {
        "type": "http",
        "asgi": {"version": "3.0", "spec_version": "2.3"},
        "http_version": "1.1",
        "method": ask.method,
        "scheme": "http",
        "path": unquote(path),
        "raw_path": path.encode(),
        "query_string": query.encode(),
        "root_path": "",
        "headers": [(b"host", b"crash.test"), *headers],
        "client": ("127.0.0.1", 1),
        "server": ("127.0.0.1", 80),
        "state": {},
    }


__all__ = ["AsgiServer", "Heard", "Lifespan", "scope_of"]
