"""A line between a client and a server: it notes what passes, and may lose answers after the server has acted."""

from __future__ import annotations

import http.client
import socket
import threading
from collections.abc import Callable
from contextlib import suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, NamedTuple, Self

PATIENCE = 60


class Passed(NamedTuple):
    """One request and its answer; header names in lower case."""

    path: str
    headers: dict[str, str]
    body: bytes
    status: int
    answer: dict[str, str]
    content: bytes


class Line:
    """Forwards to a port of this machine. `lose` answers are lost, the next ones first."""

    def __init__(self, port: int) -> None:
        self.port = port
        self.passed: list[Passed] = []
        self.lose = 0
        self.then: Callable[[Passed], object] = lambda passed: None
        self._lock = threading.Lock()
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), self._handler())
        self._server.daemon_threads = True
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.02,))

    @property
    def url(self) -> str:
        """Where clients connect."""
        return f"http://127.0.0.1:{self._server.server_address[1]}"

    def sent(self, header: str) -> list[str | None]:
        """A header of all requests so far, in their order."""
        return [passed.headers.get(header) for passed in self.passed]

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *exc: object) -> None:
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()

    def _handler(self) -> type[BaseHTTPRequestHandler]:
        line = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"
            timeout = 5

            def forward(self) -> None:
                line.forward(self)

            do_GET = do_POST = do_DELETE = do_PUT = forward  # noqa: N815 - the names of http.server

            def log_message(self, *words: Any) -> None:
                """Say nothing."""

        return Handler

    def forward(self, handler: BaseHTTPRequestHandler) -> None:
        """Pass one request on, and its answer back, or not."""
        body = handler.rfile.read(int(handler.headers.get("content-length", 0)))
        server = http.client.HTTPConnection("127.0.0.1", self.port, timeout=PATIENCE)
        try:
            server.request(handler.command, handler.path, body, dict(handler.headers))
            answer = server.getresponse()
            content = answer.read()
        finally:
            server.close()
        headers = {name.lower(): value for name, value in answer.getheaders()}
        sent = {name.lower(): value for name, value in handler.headers.items()}
        with self._lock:
            self.passed.append(Passed(handler.path, sent, body, answer.status, headers, content))
            lost = self.lose > 0
            self.lose -= lost
        self.then(self.passed[-1])
        if lost:
            handler.close_connection = True
            with suppress(OSError):
                handler.connection.shutdown(socket.SHUT_RDWR)
            return
        handler.send_response_only(answer.status)
        for name, value in answer.getheaders():
            handler.send_header(name, value)
        handler.end_headers()
        handler.wfile.write(content)
