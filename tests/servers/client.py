"""A client that speaks HTTP by hand: it can stop in the middle of anything."""

from __future__ import annotations

import http.client
import json
import socket
import struct
from collections.abc import Callable
from dataclasses import dataclass
from typing import Self

from tests.servers.settings import CALLER

PATIENCE = 10.0


@dataclass(frozen=True)
class Answer:
    """What the server said, whole."""

    status: int
    headers: list[tuple[str, str]]
    body: bytes
    closes: bool

    def all(self, name: str) -> list[str]:
        return [value for found, value in self.headers if found.lower() == name]

    @property
    def replayed(self) -> bool:
        return self.all("idempotency-replayed") == ["true"]

    @property
    def problem(self) -> str:
        """The problem's name, if this is one of ours."""
        if self.all("content-type") != ["application/problem+json"]:
            return ""
        return str(json.loads(self.body)["type"].rpartition("/")[2])


def head(path: str, *keys: str, length: int | None = None, method: str = "POST") -> bytes:
    """A request's first part; without a length its body comes in chunks."""
    framing = "Transfer-Encoding: chunked" if length is None else f"Content-Length: {length}"
    lines = [f"{method} {path} HTTP/1.1", "Host: test", f"Authorization: {CALLER}", "Content-Type: text/plain", framing]
    lines += [f"Idempotency-Key: {key}" for key in keys]
    return "\r\n".join([*lines, "", ""]).encode("latin-1")


def request(path: str, *keys: str, body: bytes = b"", method: str = "POST") -> bytes:
    """A whole request."""
    return head(path, *keys, length=len(body), method=method) + body


class Connection:
    """One connection to a server, opened again where the server said that it closes it."""

    def __init__(self, port: int) -> None:
        self.port = port
        self.opened = 0
        self._socket = self._open()

    def _open(self) -> socket.socket:
        self.opened += 1
        return socket.create_connection(("127.0.0.1", self.port), timeout=PATIENCE)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self._socket.close()

    def send(self, data: bytes) -> None:
        self._socket.sendall(data)

    def receive(self, method: str = "POST", *, pause_at: int = 0, pause: Callable[[], object] = int) -> Answer:
        """The answer, or an error of http.client or the socket if it does not come whole."""
        with http.client.HTTPResponse(self._socket, method=method) as response:
            response.begin()
            body = response.read(pause_at)
            pause()
            body += response.read()
            answer = Answer(response.status, response.getheaders(), body, response.will_close)
        if answer.closes:
            self._socket.close()
            self._socket = self._open()
        return answer

    def ask(self, path: str, *keys: str, body: bytes, method: str = "POST") -> Answer:
        self.send(request(path, *keys, body=body, method=method))
        return self.receive(method)

    def ask_or_reopen(self, path: str, *keys: str, body: bytes) -> Answer:
        """As clients do on a connection that the server may have given up meanwhile."""
        try:
            return self.ask(path, *keys, body=body)
        except ConnectionError:  # http.client.RemoteDisconnected is one
            self._socket.close()
            self._socket = self._open()
            return self.ask(path, *keys, body=body)

    def read(self, size: int) -> bytes:
        """Bytes as they come."""
        data = b""
        while len(data) < size and (more := self._socket.recv(size - len(data))):
            data += more
        return data

    def read_until(self, end: bytes) -> bytes:
        """Bytes up to a mark."""
        data = b""
        while not data.endswith(end) and (more := self._socket.recv(1)):
            data += more
        return data

    def half_close(self) -> None:
        """Say that no more will come, and go on listening."""
        self._socket.shutdown(socket.SHUT_WR)

    def read_to_end(self) -> bytes:
        """Whatever still comes, until the server has closed the connection as well."""
        data = b""
        try:
            while more := self._socket.recv(65_536):
                data += more
        except ConnectionResetError:
            pass
        return data

    def leave(self) -> None:
        """Go without a farewell."""
        self._socket.close()

    def crash(self) -> None:
        """Go as a machine goes that loses its network: the connection is reset."""
        self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self._socket.close()


def ask(port: int, path: str, *keys: str, body: bytes, method: str = "POST") -> Answer:
    """One request on a connection of its own."""
    with Connection(port) as connection:
        return connection.ask(path, *keys, body=body, method=method)
