"""A server for WSGI applications in process, and small applications to put behind OnceKey."""

from __future__ import annotations

import io
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any

from oncekey.adapters.wsgi import OnceKeyWSGI
from oncekey.core.record import Record, State
from oncekey.http.scope import by_header
from oncekey.stores.memory import MemoryStore


@dataclass(frozen=True)
class Answer:
    status: int
    headers: list[tuple[str, str]]
    body: bytes

    def all(self, name: str) -> list[str]:
        return [value for found, value in self.headers if found.lower() == name]

    def __getitem__(self, name: str) -> str | None:
        return next(iter(self.all(name)), None)


def post(key: str | None = "key-1", body: bytes = b'{"a":1}', **changes: Any) -> dict[str, Any]:
    environ = {
        "REQUEST_METHOD": "POST",
        "SCRIPT_NAME": "",
        "PATH_INFO": "/pay",
        "QUERY_STRING": "",
        "SERVER_NAME": "localhost",
        "SERVER_PORT": "80",
        "SERVER_PROTOCOL": "HTTP/1.1",
        "CONTENT_TYPE": "application/json",
        "CONTENT_LENGTH": str(len(body)),
        "HTTP_AUTHORIZATION": "Bearer alice",
        "wsgi.version": (1, 0),
        "wsgi.url_scheme": "http",
        "wsgi.input": io.BytesIO(body),
        "wsgi.errors": io.StringIO(),
        "wsgi.multithread": True,
        "wsgi.multiprocess": False,
        "wsgi.run_once": False,
        "wsgi.file_wrapper": object,
    }
    if key is not None:
        environ["HTTP_IDEMPOTENCY_KEY"] = key
    return environ | changes


class Server:
    """The server's side of one request: start_response, write, iteration, close."""

    def __init__(self) -> None:
        self.starts: list[tuple[str, list[tuple[str, str]]]] = []
        self.sent: list[bytes] = []
        self.iterable: Any = None

    def start_response(self, status: str, headers: Any, exc_info: Any = None, /) -> Callable[[bytes], object]:
        if self.starts:
            if exc_info is None:
                raise AssertionError("the server has the status line already")
            raise exc_info[1].with_traceback(exc_info[2])
        self.starts.append((status, list(headers)))
        return self.sent.append

    def serve(self, app: Any, environ: dict[str, Any]) -> Answer:
        self.iterable = app(environ, self.start_response)
        try:
            for chunk in self.iterable:
                assert self.starts, "a body before the status line"
                self.sent.append(chunk)
        finally:
            self.close()
        return self.answer

    def close(self) -> None:
        if hasattr(self.iterable, "close"):
            self.iterable.close()

    @property
    def answer(self) -> Answer:
        status, headers = self.starts[0]
        return Answer(int(status[:3]), headers, b"".join(self.sent))


def call(app: Any, environ: dict[str, Any] | None = None) -> Answer:
    return Server().serve(app, environ if environ is not None else post())


class Shop:
    """An application that counts its effects and answers as it is told."""

    def __init__(self, status: str = "201 Created", *headers: tuple[str, str], body: Any = None) -> None:
        self.effects: list[bytes] = []
        self.environs: list[dict[str, Any]] = []
        self.status = status
        self.headers = headers
        self.body: Any = body

    def __call__(self, environ: dict[str, Any], start_response: Any) -> Iterable[bytes]:
        self.environs.append(environ)
        self.effects.append(environ["wsgi.input"].read())
        body = self.body if self.body is not None else [b'{"n":%d}' % len(self.effects)]
        start_response(self.status, [("Content-Type", "application/json"), *self.headers])
        return body


class Closing:
    """An iterable of the application's that counts what is asked of it."""

    def __init__(self, chunks: Iterable[bytes], *, close: Callable[[], object] = lambda: None) -> None:
        self.chunks = chunks
        self.closed = 0
        self.asked = 0
        self._then = close

    def __iter__(self) -> Iterator[bytes]:
        for chunk in self.chunks:
            self.asked += 1
            yield chunk

    def close(self) -> None:
        self.closed += 1
        self._then()


class Guarded:
    """An application behind OnceKey over a memory store, and that store."""

    def __init__(self, app: Any, store: Any = None, **choices: Any) -> None:
        self.store = MemoryStore()
        scope = choices.pop("scope", by_header("authorization"))
        self.app = OnceKeyWSGI(app, store or self.store, scope=scope, **choices)

    def __call__(self, environ: dict[str, Any], start_response: Any) -> Iterable[bytes]:
        return self.app(environ, start_response)

    @property
    def records(self) -> list[Record]:
        return self.store.scan(list(State)).records

    @property
    def state(self) -> State | None:
        return self.records[0].state if self.records else None
