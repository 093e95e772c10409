"""The WSGI application under test. `python -m gunicorn tests.servers.wsgi_app:app` and its like serve it."""

from __future__ import annotations

import os
import time
from collections.abc import Iterable, Iterator
from typing import Any

from oncekey.adapters.wsgi import OnceKeyWSGI
from tests.servers.ledger import HELD_FOR, NAP_FOR, Ledger
from tests.servers.settings import PIECE, PIECES, installed

ledger = Ledger.ours()
HEADERS = [
    ("Content-Type", "text/plain"),
    ("X-Part", "1"),
    ("Set-Cookie", "s=1"),
    ("Set-Cookie", "t=2"),
    ("X-Part", "2"),
]


def plain(environ: dict[str, Any], start_response: Any) -> Iterable[bytes]:
    if environ["REQUEST_METHOD"] == "POST":
        return post(environ, start_response)
    return get(environ, start_response)


def get(environ: dict[str, Any], start_response: Any) -> Iterable[bytes]:
    ref, method = environ["QUERY_STRING"], environ["REQUEST_METHOD"]
    ledger.note(ref, method)
    start_response("200 OK", [("X-Method", method)])
    if environ["PATH_INFO"] == "/stream":
        return stream(ref)
    return [b"" if method == "HEAD" else b"got"]


def stream(ref: str) -> Iterator[bytes]:
    yield b"first"
    held(ref)
    yield b"last"


def held(ref: str) -> None:
    end = time.monotonic() + HELD_FOR
    while not ledger.released(ref) and time.monotonic() < end:
        time.sleep(NAP_FOR)
    ledger.note(ref, "ended")


def post(environ: dict[str, Any], start_response: Any) -> Iterable[bytes]:
    path, ref = environ["PATH_INFO"], environ["wsgi.input"].readline().strip().decode()
    if path == "/generator":
        return Generated(ref, start_response)
    ledger.note(ref, "effect")
    if path == "/slow":
        held(ref)
    if path == "/raise":
        raise RuntimeError("after the effect")
    start_response("201 Created", HEADERS)
    if path == "/twice":
        start_response("200 OK", [])
    token = os.urandom(8).hex().encode()
    return Long(ref, token) if path == "/long" else [token]


class Generated:
    """An iterable that has its effect when it is iterated, and says that it was closed."""

    def __init__(self, ref: str, start_response: Any) -> None:
        self.ref = ref
        self.start_response = start_response

    def __iter__(self) -> Iterator[bytes]:
        ledger.note(self.ref, "effect")
        self.start_response("201 Created", HEADERS)
        yield from (PIECE, PIECE, os.urandom(8).hex().encode())

    def close(self) -> None:
        ledger.note(self.ref, "closed")


class Long(Generated):
    """Longer than is kept, and its end waits."""

    def __init__(self, ref: str, token: bytes) -> None:
        super().__init__(ref, None)
        self.token = token

    def __iter__(self) -> Iterator[bytes]:
        yield from [PIECE] * PIECES
        held(self.ref)
        yield self.token


app = OnceKeyWSGI(plain, **installed())
