"""A link that loses requests, loses and cuts replies, and delays both."""

from __future__ import annotations

import random
import re
import socket
import threading
import time
from collections import Counter
from contextlib import suppress

FATES = ("pass", "lose-request", "lose-reply", "cut-reply", "delay")


def message(connection: socket.socket) -> tuple[bytes, bool]:
    """One HTTP message with a Content-Length, and whether it is whole: the other side may have left."""
    found = b""
    while True:
        head, end, body = found.partition(b"\r\n\r\n")
        length = re.search(rb"(?i)content-length: *([0-9]+)", head)
        if end and len(body) >= int(length[1] if length else 0):
            return found, True
        more = connection.recv(65_536)
        if not more:
            return found, False
        found += more


class BadLink:
    """A TCP proxy to `port`. Each connection carries one exchange and has one fate, by chance from a seed."""

    def __init__(self, port: int, seed: int, *, weights: tuple[int, ...] = (76, 6, 6, 6, 6)) -> None:
        self.fates: Counter[str] = Counter()
        self._to = port
        self._chance = random.Random(seed)
        self._weights = weights
        self._socket = socket.create_server(("127.0.0.1", 0), backlog=64)
        self.url = f"http://127.0.0.1:{self._socket.getsockname()[1]}"
        threading.Thread(target=self._serve, daemon=True).start()

    def _serve(self) -> None:
        with suppress(OSError):
            while True:
                near, _ = self._socket.accept()
                [fate] = self._chance.choices(FATES, self._weights)
                self.fates[fate] += 1
                threading.Thread(target=self._carry, args=(near, fate), daemon=True).start()

    def _carry(self, near: socket.socket, fate: str) -> None:
        with near, suppress(OSError):
            request, whole = message(near)
            if not request or fate == "lose-request":
                return
            with socket.create_connection(("127.0.0.1", self._to)) as far:
                if fate == "delay":
                    time.sleep(0.02)
                far.sendall(request)
                if not whole:
                    return
                reply, _ = message(far)
                if fate == "lose-reply":
                    return
                near.sendall(reply[: len(reply) // 2] if fate == "cut-reply" else reply)

    def close(self) -> None:
        self._socket.close()
