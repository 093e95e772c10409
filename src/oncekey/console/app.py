"""The console as an ASGI application: mount it where you like, or run it alone by `oncekey console`.

    app.mount("/console", Console("postgresql://...", token=os.environ["ONCEKEY_CONSOLE_TOKEN"]))

Every request is let in by access.py first. Pages are made on threads of the console's own, so that a slow store holds
up neither the application's event loop nor its threads.
"""

from __future__ import annotations

import asyncio
import inspect
import logging
import re
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, cast

from oncekey.console.access import SAFE, Access, Operator
from oncekey.console.rates import Rates, Source
from oncekey.console.web import PLAIN, Answered, Ask, Cookies, Receive, Refused, Scope, Send, see_other, send_answer
from oncekey.engine.events import Sink
from oncekey.engine.sealing import Sealer
from oncekey.errors import ConfigurationError, MissingExtra, OnceKeyError, SchemaMissing
from oncekey.operations import opened, scrubbed
from oncekey.stores.contract import AsyncStore, Store
from oncekey.stores.memory import AsyncMemoryStore
from oncekey.stores.open import open_store

try:
    from oncekey.console.acts import Acts, sentence
    from oncekey.console.render import HERE, render
    from oncekey.console.views import Guest, Views
except ModuleNotFoundError as missing:
    if (missing.name or "").partition(".")[0] != "jinja2":
        raise
    raise MissingExtra("the console", "console") from missing

log = logging.getLogger("oncekey")

# An address, a store of either colour, or a function that gives one when it is first needed.
Place = str | Store | AsyncStore | Callable[[], Store | AsyncStore]

STORE_FOR = 10.0
THREADS = 4
MEDIA = {
    "console.css": b"text/css; charset=utf-8",
    "console.js": b"text/javascript; charset=utf-8",
    "icon.svg": b"image/svg+xml",
}
# They change with the version only, and a page that was changed must not meet an old script.
STATIC = {
    f"static/{name}": Answered(
        200, (HERE / "static" / name).read_bytes(), ((b"content-type", media), (b"cache-control", b"no-cache"))
    )
    for name, media in MEDIA.items()
}
NOBODY = Guest("", "", signs_out=False)
# A place within the console, as a sign-in goes back to it.
_PLACE = re.compile(r"[a-z0-9-]+(/[a-z0-9-]+)*|")
_OPERATION = re.compile(r"operations/([0-9a-f]{40})(?:/([a-z]+))?")


class Console:
    """Give it a store (an address, or one that you have), and `token` or `operator`: who may enter."""

    def __init__(
        self,
        store: Place,
        *,
        token: str | None = None,
        operator: Operator | None = None,
        sealer: Sealer | None = None,
        counts: Source = None,
        sinks: tuple[Sink, ...] = (),
    ) -> None:
        self.access = Access(token, operator)
        self.rates = Rates(counts)
        self._place = store
        self._sinks = sinks
        self._sealer = sealer or Sealer()
        self._views: Views | None = None
        self._own: Store | None = None
        self._making = threading.Lock()
        self._threads = ThreadPoolExecutor(THREADS, thread_name_prefix="oncekey-console")

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one connection scope."""
        if scope["type"] == "lifespan":
            await self._live(receive, send)
        elif scope["type"] == "http":
            try:
                answered = await self._answered(scope, receive)
            except ConnectionError:
                return  # whoever asked has left before the form was whole
            await send_answer(send, answered, head=scope["method"] == "HEAD")
        else:
            await send({"type": "websocket.close"})

    def start(self) -> None:
        """Begin to watch the counters. Without it that begins with the first request."""
        self.rates.watch()

    async def aclose(self) -> None:
        """Let go of what was opened, and look at no counters any more."""
        await asyncio.to_thread(self.close)

    def close(self) -> None:
        """The same, from a thread."""
        self.rates.close()
        self._threads.shutdown()
        if self._own is not None:
            self._own.close()

    async def _live(self, receive: Receive, send: Send) -> None:
        while True:
            message = await receive()
            if message["type"] == "lifespan.startup":
                self.start()
            else:
                await self.aclose()
            await send({"type": f"{message['type']}.complete"})
            if message["type"] == "lifespan.shutdown":
                return

    # ---- one request ---------------------------------------------------------------------------------------------

    async def _answered(self, scope: Scope, receive: Receive) -> Answered:
        """The answer, whatever happens: trouble is a page as well."""
        ask = Ask(scope)
        try:
            return await self._let_in(ask, receive)
        except ConnectionError:
            raise
        except Exception as error:  # noqa: BLE001 - an operator is told what to do next, whatever it is
            refused = self._told(ask, error)
            return Answered(refused.status, render("trouble.html", up=ask.up, refused=refused), (*PLAIN, *refused.more))

    async def _let_in(self, ask: Ask, receive: Receive) -> Answered:
        if ask.method not in (*SAFE, "POST"):
            raise Refused(
                405, "That cannot be done here", "Look with GET, change with POST.", (b"allow", b"GET, HEAD, POST")
            )
        place = ask.place.removeprefix("/")
        if not ask.place:
            return Answered(308, b"", ((b"location", f"{ask.whole.rpartition('/')[2]}/".encode("utf-8", "replace")),))
        if place in STATIC:
            return STATIC[place]
        self.start()
        name = await self.access.who(ask)
        paired, cookies = self.access.pair(ask)
        if place == "login" and self.access.signs_in:
            return await self._sign_in(ask, receive, paired, cookies)
        if name is None:
            return _login(ask, paired, cookies, place, 401)
        guest = Guest(name, paired, self.access.signs_in)
        if ask.method == "POST":
            await _read(ask, receive)
            self.access.check_form(ask)
            if place == "logout" and self.access.signs_in:
                return see_other("login", self.access.sign_out(ask))
        answered = await self._run(lambda: self._shown(ask, guest, place))
        return answered._replace(headers=(*answered.headers, *cookies))

    async def _sign_in(self, ask: Ask, receive: Receive, paired: str, cookies: Cookies) -> Answered:
        if ask.method != "POST":
            return _login(ask, paired, cookies, "", 200)
        await _read(ask, receive)
        back = ask.form.get("next", "")
        try:
            self.access.check_form(ask)
            return see_other(f"./{back if _PLACE.fullmatch(back) else ''}", self.access.sign_in(ask))
        except Refused as refused:
            return _login(ask, paired, cookies, back, refused.status, refused)

    def _shown(self, ask: Ask, guest: Guest, place: str) -> Answered:
        """The page at a place, on a thread."""
        views = self._pages()
        found = _OPERATION.fullmatch(place)
        acts = Acts(views, self._sinks)
        if ask.method == "POST":
            if place == "operations":
                return views.search(ask, guest)
            if place == "dead-letters":
                return acts.ask_all(ask, guest)
            if found is not None and found[2] is not None:
                return acts.act(ask, guest, found[1], found[2])
        elif found is not None and found[2] is None:
            return views.operation(ask, guest, found[1])
        elif place in views.plain:
            return views.plain[place](ask, guest)
        raise Refused(404, "There is nothing here", "The links above lead to what there is.")

    def _pages(self) -> Views:
        with self._making:
            if self._views is None:
                self._views = Views(self._opened(), self._sealer, self.rates)
            return self._views

    def _opened(self) -> Store:
        """The store for threads; one that must be opened for that is closed with the console."""
        place: Any = self._place() if callable(self._place) else self._place
        if isinstance(place, AsyncMemoryStore):
            return place.sync
        if isinstance(place, str):
            place = self._own = opened(place, store_for=STORE_FOR)
        elif inspect.iscoroutinefunction(place.get):
            place = self._own = open_store(place.url, store_for=STORE_FOR)
        return cast("Store", place)

    async def _run(self, work: Callable[[], Answered]) -> Answered:
        return await asyncio.get_running_loop().run_in_executor(self._threads, work)

    def _told(self, ask: Ask, error: Exception) -> Refused:
        """What to tell instead of the page."""
        if isinstance(error, Refused):
            return error
        if not isinstance(error, OnceKeyError):
            log.error("the console failed at %s %s", ask.method, ask.place, exc_info=error)
            return Refused(500, "The console failed", "The log of the server says why.")
        url = self._place if isinstance(self._place, str) else getattr(self._place, "url", "")
        words = scrubbed(str(error), url)
        if isinstance(error, ConfigurationError) and not isinstance(error, SchemaMissing | MissingExtra):
            return Refused(400, "That cannot be done", sentence(words))
        log.warning("the console could not answer: %s", words)
        return Refused(503, "The store did not answer", sentence(words))


async def _read(ask: Ask, receive: Receive) -> None:
    if not await ask.read(receive):
        raise ConnectionError


def _login(ask: Ask, paired: str, cookies: Cookies, back: str, status: int, refused: Refused | None = None) -> Answered:
    body = render("login.html", up=ask.up, form=paired, back=back, refused=refused, name=ask.form.get("name", ""))
    more = ((b"www-authenticate", b'Form realm="OnceKey console"'),) if status == 401 else ()  # noqa: PLR2004 - HTTP's
    return Answered(status, body, (*PLAIN, *cookies, *more))
