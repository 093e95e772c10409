"""The server's side of WSGI: one request at a time, in the thread that asks."""

from __future__ import annotations

import io
import sys
from collections.abc import Callable, Iterable
from typing import Any
from urllib.parse import unquote

from oncekey.testing.crashes.asgi import Heard
from oncekey.testing.crashes.steps import Place, Steps, thrown
from oncekey.testing.crashes.trial import Ask


class WsgiServer:
    """One process life of a WSGI application."""

    ended = False

    def __init__(self, app: Any, steps: Steps) -> None:
        self._app = app
        self._steps = steps

    def start(self) -> None:
        """WSGI has no start."""

    def serve(self, ask: Ask, heard: Heard) -> None:
        """Serve one request. What ends the process comes out of here."""
        try:
            self._serve(ask, heard)
        except Exception as error:  # noqa: BLE001 - a server goes on, whatever its application raises
            heard.raised = type(error).__name__

    def stop(self) -> None:
        """Give the application its end, if it has one."""
        shutdown = getattr(self._app, "shutdown", None)
        if callable(shutdown):
            shutdown()

    def close(self, last: Iterable[Any] = ()) -> None:
        """There is no loop to close."""

    def wait(self) -> None:
        """Other threads run by themselves."""

    def _serve(self, ask: Ask, heard: Heard) -> None:
        def write(data: bytes) -> None:
            self._meets("sends the body")
            heard.body += data
            self._meets("has sent the body")

        def start_response(line: str, headers: list[tuple[str, str]], exc_info: Any = None, /) -> Callable[..., None]:
            if exc_info is not None and heard.status is not None:
                raise exc_info[1]
            heard.status = int(line[:3])
            heard.headers = [(name.lower(), value) for name, value in headers]
            return write

        answer = self._app(environ_of(ask), start_response)
        try:
            for chunk in answer:
                write(chunk)
            heard.whole = heard.status is not None
        finally:
            if hasattr(answer, "close"):
                answer.close()

    def _meets(self, what: str) -> None:
        way = self._steps.reach(Place.SERVER, what)
        if way is not None:
            raise thrown(way)


def environ_of(ask: Ask) -> dict[str, Any]:
    """The request as WSGI has it."""
    path, _, query = ask.path.partition("?")
    environ: dict[str, Any] = {
        "REQUEST_METHOD": ask.method,
        "SCRIPT_NAME": "",
        "PATH_INFO": unquote(path, "latin-1"),
        "QUERY_STRING": query,
        "SERVER_NAME": "crash.test",
        "SERVER_PORT": "80",
        "SERVER_PROTOCOL": "HTTP/1.1",
        "CONTENT_LENGTH": str(len(ask.body)),
        "wsgi.version": (1, 0),
        "wsgi.url_scheme": "http",
        "wsgi.input": io.BytesIO(ask.body),
        "wsgi.errors": sys.stderr,
        "wsgi.multithread": True,
        "wsgi.multiprocess": True,
        "wsgi.run_once": False,
    }
    for name, value in ask.headers:
        word = name.upper().replace("-", "_")
        environ[word if word == "CONTENT_TYPE" else f"HTTP_{word}"] = value
    return environ


__all__ = ["WsgiServer", "environ_of"]
