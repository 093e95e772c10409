"""A TCP proxy in front of a server, which can lose replies: the server did its work, the client never hears of it."""

from __future__ import annotations

import contextlib
import socket
import threading
from types import TracebackType
from typing import Self


class Proxy:
    """Forwards bytes. `lose_replies(n)`: the next n replies are swallowed and their connections cut."""

    def __init__(self, port: int) -> None:
        self.server_port = port
        self.connections = 0
        self.in_pieces = False
        self._to_lose = 0
        self._held = threading.Event()
        self._held.set()
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._open: list[socket.socket] = []
        threading.Thread(target=self._accept, daemon=True).start()

    @property
    def url(self) -> str:
        """Where clients connect."""
        return f"redis://127.0.0.1:{self._listener.getsockname()[1]}/0"

    def lose_replies(self, count: int = 1) -> None:
        """Swallow the next replies."""
        self._to_lose = count

    def hold_replies(self) -> None:
        """Keep replies back until they are let go."""
        self._held.clear()

    def let_go(self) -> None:
        """Deliver what was kept back."""
        self._held.set()

    def say(self, data: bytes) -> None:
        """What nobody asked for, to all clients."""
        for client in self._open[::2]:
            client.sendall(data)

    def cut(self) -> None:
        """Cut all connections."""
        while self._open:
            end(self._open.pop())

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                client, _ = self._listener.accept()
                self.connections += 1
                server = socket.create_connection(("127.0.0.1", self.server_port))
                self._open += [client, server]
                for work in (self._requests, self._replies):
                    threading.Thread(target=work, args=(client, server), daemon=True).start()

    def _requests(self, client: socket.socket, server: socket.socket) -> None:
        with contextlib.suppress(OSError):
            while data := client.recv(65536):
                server.sendall(data)
        end(server)

    def _replies(self, client: socket.socket, server: socket.socket) -> None:
        with contextlib.suppress(OSError):
            while data := server.recv(65536):
                self._held.wait()
                if self._to_lose:
                    self._to_lose -= 1
                    break
                for at in range(len(data)) if self.in_pieces else ():
                    client.sendall(data[at : at + 1])
                if not self.in_pieces:
                    client.sendall(data)
        end(client)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.let_go()
        end(self._listener)
        self.cut()


def end(side: socket.socket) -> None:
    """Shut it down first: a close alone would wait for whoever is reading from it."""
    with contextlib.suppress(OSError):
        side.shutdown(socket.SHUT_RDWR)
    side.close()
