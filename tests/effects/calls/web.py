"""A provider on a real socket: it notes what it is sent, and answers or hangs up as the path says."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, NamedTuple


class Sent(NamedTuple):
    method: str
    path: str
    headers: dict[str, str]
    body: bytes

    @property
    def key(self) -> str:
        return self.headers.get("idempotency-key", "")


class Provider:
    """`/201` answers so, `/drop` hangs up without a word, `/once` hangs up on the first request only."""

    def __init__(self) -> None:
        self.sent: list[Sent] = []
        provider = self

        class Handler(BaseHTTPRequestHandler):
            def handle_any(self) -> None:
                length = int(self.headers.get("content-length", 0))
                headers = {name.lower(): value for name, value in self.headers.items()}
                provider.sent.append(Sent(self.command, self.path, headers, self.rfile.read(length)))
                path = self.path.partition("?")[0]
                if path == "/drop" or (path == "/once" and len(provider.sent) == 1):
                    self.close_connection = True
                    return
                status = path.strip("/")
                self.send_response(int(status) if status.isdigit() else 201)
                self.send_header("content-length", "2")
                self.end_headers()
                if self.command != "HEAD":
                    self.wfile.write(b"{}")

            do_POST = do_GET = do_HEAD = handle_any  # noqa: N815 - the names that http.server looks for

            def log_message(self, *args: Any) -> None:
                """Say nothing."""

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        self.url = f"http://127.0.0.1:{self._server.server_port}"
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.01,), daemon=True)
        self._thread.start()

    @property
    def keys(self) -> list[str]:
        return [sent.key for sent in self.sent]

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


@contextlib.contextmanager
def provider() -> Iterator[Provider]:
    """One for a test."""
    found = Provider()
    try:
        yield found
    finally:
        found.close()
