"""A TCP proxy before PostgreSQL that breaks the connection at the moment of a commit."""

from __future__ import annotations

import contextlib
import socket
import time
from typing import Literal

from psycopg.conninfo import conninfo_to_dict, make_conninfo

from tests.stores.redis.proxy import Proxy, end

How = Literal["reply", "request", "late"]


class Cutting(Proxy):
    """How the commit is lost.

    `reply`: the server commits and nobody hears of it. `request`: it is never asked to. `late`: it is asked when the
    client has long given up.
    """

    def __init__(self, url: str, how: How) -> None:
        self._place = conninfo_to_dict(url)
        self._how = how
        super().__init__(int(str(self._place["port"])))

    @property
    def url(self) -> str:
        return make_conninfo("", **{**self._place, "port": self._listener.getsockname()[1]})

    def _requests(self, client: socket.socket, server: socket.socket) -> None:
        with contextlib.suppress(OSError):
            while data := client.recv(65536):
                if b"COMMIT" in data:
                    self._commit(client, server, data)
                    return
                server.sendall(data)
        end(server)

    def _commit(self, client: socket.socket, server: socket.socket, data: bytes) -> None:
        if self._how == "reply":
            self.lose_replies()
        elif self._how == "late":
            end(client)
            time.sleep(0.3)
        if self._how != "request":
            server.sendall(data)
            return
        end(client)
        end(server)
