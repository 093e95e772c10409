"""A server on a real socket that misbehaves by a script, and notes what it was sent."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterable
from contextlib import suppress
from typing import NamedTuple


class Seen(NamedTuple):
    method: str
    path: str
    headers: dict[str, str]
    body: bytes


def reply(status: int, body: str = "", **headers: str) -> bytes:
    """A well-formed answer."""
    lines = [f"HTTP/1.1 {status} Thing", f"Content-Length: {len(body.encode())}"]
    lines += [f"{name.replace('_', '-')}: {value}" for name, value in headers.items()]
    return "\r\n".join([*lines, "", body]).encode()


DROP = b""
HANG = b"never"
CUT_IN_HEADERS = b"HTTP/1.1 201 Created\r\nContent-Type: application/js"
CUT_IN_BODY = b'HTTP/1.1 201 Created\r\nContent-Length: 50\r\n\r\n{"id": "a'
CREATED = reply(201, '{"id":"a"}', Content_Type="application/json")


class Scripted:
    """Each request gets the next answer of the script, and the last one again when the script is over."""

    def __init__(self, script: Iterable[bytes], *, hang_up: bool = False) -> None:
        self.script = list(script)
        self.hang_up = hang_up  # after each answer
        self.seen: list[Seen] = []
        self._socket = socket.create_server(("127.0.0.1", 0))
        self.port = self._socket.getsockname()[1]
        self.url = f"http://127.0.0.1:{self.port}"
        self._thread = threading.Thread(target=self._serve, daemon=True)
        self._thread.start()

    @property
    def keys(self) -> list[str | None]:
        return [seen.headers.get("idempotency-key") for seen in self.seen]

    def _serve(self) -> None:
        with suppress(OSError):
            while True:
                connection, _ = self._socket.accept()
                threading.Thread(target=self._converse, args=(connection,), daemon=True).start()

    def _converse(self, connection: socket.socket) -> None:
        with connection, connection.makefile("rb") as stream, suppress(OSError):
            while first := stream.readline():
                method, path, _ = first.decode().split(" ", 2)
                headers = {}
                while (line := stream.readline().strip()) != b"":
                    name, _, value = line.decode("latin-1").partition(":")
                    headers[name.lower()] = value.strip()
                body = stream.read(int(headers.get("content-length", 0)))
                number = len(self.seen)
                self.seen.append(Seen(method, path, headers, body))
                answer = self.script[min(number, len(self.script) - 1)]
                if answer == HANG:
                    stream.read()
                    return
                connection.sendall(answer)
                if self.hang_up or answer in {DROP, CUT_IN_HEADERS, CUT_IN_BODY}:
                    return

    def close(self) -> None:
        with suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)
        self._socket.close()
