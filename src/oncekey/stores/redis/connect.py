"""Connections of redis-py for threads, by the few of its methods that we use."""

from __future__ import annotations

from typing import Any, Protocol, cast

from redis import Connection, SSLConnection

from oncekey.stores.redis.address import Address


class Line(Protocol):
    """A connection: opens with the first command, never repeats one by itself."""

    def send_packed_command(self, command: list[bytes], *, check_health: bool) -> None: ...
    def send_command(self, *words: bytes | str) -> None: ...
    def read_response(self, *, disconnect_on_error: bool = ...) -> Any: ...
    def disconnect(self) -> None: ...


def line_to(address: Address, store_for: float) -> Line:
    """A connection that is not open yet; each of its reads and writes takes `store_for` at most."""
    made = SSLConnection if address.tls else Connection
    return cast("Line", made(**address.arguments, socket_timeout=store_for))
