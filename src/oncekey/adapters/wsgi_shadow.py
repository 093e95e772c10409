"""Shadow mode for WSGI: the application is served untouched, and a few threads find out what would have been.

What goes to the server is what the application returns, the very object: wrapped, a list would lose its length and a
file its fast way. So a shadow ends when the call has returned and the status is known, not with the last byte.
"""

from __future__ import annotations

import time
from collections.abc import Iterable
from concurrent.futures import Future
from typing import TYPE_CHECKING, Any

from oncekey.adapters.wsgi_tee import Tee
from oncekey.adapters.wsgi_upload import request_of
from oncekey.core.decision import Execute
from oncekey.engine.events import Events
from oncekey.engine.threaded import Engine
from oncekey.http.aside import Aside
from oncekey.http.shadow import MOST, TOO_MANY, Ended, Watch, attempt_of, settlement_of, watching

if TYPE_CHECKING:
    from collections.abc import Callable
    from wsgiref.types import StartResponse, WSGIEnvironment

    from oncekey.adapters.wsgi import OnceKeyWSGI
    from oncekey.engine.attempt import Attempt
    from oncekey.engine.events import Sink
    from oncekey.http.exchange import Exchange
    from oncekey.stores.contract import Store

# Enough to share round trips; requests never wait for them.
THREADS = 4


class WsgiShadow:
    """What an installation in shadow mode does."""

    def __init__(self, installed: OnceKeyWSGI, store: str | Store | Engine, sinks: tuple[Sink, ...]) -> None:
        self.app = installed.app
        self.gate = installed.gate
        self.engine = installed.engine
        if isinstance(store, Engine):
            # One of its own on the same store: what it does is told by the watch alone.
            self.engine = Engine(store.store, store.tuning)
        self.said = Events(sinks or (store.said.sinks if isinstance(store, Engine) else ()))
        self.aside = Aside(THREADS, MOST, "oncekey-shadow")

    def __call__(self, environ: WSGIEnvironment, start_response: StartResponse) -> Iterable[bytes]:
        """Serve one request."""
        if environ["REQUEST_METHOD"] in self.gate.methods:
            request = request_of(environ)
            watch = watching(self.gate, self.said, request, request.path)
            if watch is not None:
                return _Beside(self, watch, start_response).serve(environ)
        return self.app(environ, start_response)

    def shutdown(self) -> None:
        """Write down what is still to be written."""
        self.aside.close()


class _Beside:
    """One request."""

    def __init__(self, shadow: WsgiShadow, watch: Watch, start_response: StartResponse) -> None:
        self._shadow = shadow
        self._watch = watch
        self._start_response = start_response
        self._found: Future[tuple[Exchange, Attempt] | None] | None = None
        self._answer: Ended | None = None
        self._returned = False

    def serve(self, environ: WSGIEnvironment) -> Iterable[bytes]:
        """Let the application answer, and look on."""
        if self._watch.bodiless or _says_nothing(environ):
            self.whole()
        else:
            environ["wsgi.input"] = Tee(
                environ["wsgi.input"], self.take, self.whole, environ.get("CONTENT_LENGTH") or ""
            )
        try:
            iterable = self._shadow.app(environ, self.start)
        except BaseException as error:
            self._end(Ended(error=error))
            raise
        self._returned = True
        if self._answer is not None:
            self._end(self._answer)
        return iterable

    def start(self, status: str, headers: list[tuple[str, str]], *exc_info: Any) -> Callable[[bytes], object]:
        """What the application calls as start_response."""
        kept = [(name.encode("latin-1", "replace"), value.encode("latin-1", "replace")) for name, value in headers]
        number = status[:3]
        self._answer = Ended(int(number) if number.isdigit() else 0, kept)
        write = self._start_response(status, headers, *exc_info)
        if self._returned:
            self._end(self._answer)
        return write

    def take(self, chunk: bytes) -> int:
        """A piece of the body has passed; how many bytes there were so far."""
        self._watch.take(chunk)
        return self._watch.taken

    def whole(self) -> None:
        """All of it has."""
        if not self._watch.whole():
            return
        self._found = self._shadow.aside.begin(self._find_out)
        if self._found is None:
            self._watch.skip(TOO_MANY)

    def _find_out(self) -> tuple[Exchange, Attempt] | None:
        engine, started = self._shadow.engine, time.monotonic()
        try:
            exchange = self._watch.exchange()
            if exchange is None:
                return None
            decision = engine.enter(exchange.claim, exchange, self._shadow.gate.terms, late=exchange.late)
            self._watch.decided(exchange, decision)
            if isinstance(decision, Execute):
                attempt = attempt_of(exchange, decision, started)
                engine.keeper.keep(attempt)
                return exchange, attempt
        except Exception as error:  # noqa: BLE001 - nothing that goes wrong here may reach the request
            self._watch.failed(error)
        return None

    def _end(self, how: Ended) -> None:
        self._watch.over()
        if (found := self._found) is not None:
            self._found = None
            self._shadow.aside.follow(lambda: self._settle(found, how))

    def _settle(self, found: Future[tuple[Exchange, Attempt] | None], how: Ended) -> None:
        try:
            if (ours := found.result()) is not None:
                exchange, attempt = ours
                self._shadow.engine.settle(attempt, settlement_of(exchange, attempt, how))
        except Exception as error:  # noqa: BLE001 - as above
            self._watch.failed(error)


def _says_nothing(environ: WSGIEnvironment) -> bool:
    """Whether no length means no body, as it does in HTTP/1."""
    declared = environ.get("CONTENT_LENGTH") or environ.get("HTTP_TRANSFER_ENCODING")
    return not declared and environ.get("SERVER_PROTOCOL", "HTTP/1.1").startswith("HTTP/1")
