"""A TCP proxy that counts round trips: how often a client speaks after the server has spoken."""

from __future__ import annotations

import contextlib
import socket
import threading
from types import TracebackType
from typing import Self


class Wiretap:
    """Stands before one server. `turns` and `sent` count what clients said, `received` what the server did."""

    def __init__(self, port: int) -> None:
        self._port = port
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._ends: list[socket.socket] = [self._listener]
        self.turns = self.sent = self.received = 0
        threading.Thread(target=self._accept, daemon=True).start()

    def through(self, url: str) -> str:
        """The server's URL, by way of this proxy."""
        return url.replace(f":{self._port}", f":{self._listener.getsockname()[1]}")

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                client, _ = self._listener.accept()
                server = socket.create_connection(("127.0.0.1", self._port))
                self._ends += [client, server]
                for end in (client, server):
                    end.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                turn = threading.Event()  # set while the client is the one who spoke last
                threading.Thread(target=self._asks, args=(client, server, turn), daemon=True).start()
                threading.Thread(target=self._answers, args=(client, server, turn), daemon=True).start()

    def _asks(self, client: socket.socket, server: socket.socket, turn: threading.Event) -> None:
        with contextlib.suppress(OSError):
            while data := client.recv(1 << 16):
                self.sent += len(data)
                if not turn.is_set():
                    turn.set()
                    self.turns += 1
                server.sendall(data)
        _shut(server)

    def _answers(self, client: socket.socket, server: socket.socket, turn: threading.Event) -> None:
        with contextlib.suppress(OSError):
            while data := server.recv(1 << 16):
                self.received += len(data)
                turn.clear()
                client.sendall(data)
        _shut(client)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        for end in self._ends:
            _shut(end)


def _shut(end: socket.socket) -> None:
    with contextlib.suppress(OSError):
        end.shutdown(socket.SHUT_RDWR)
    end.close()
