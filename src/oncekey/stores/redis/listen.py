"""Being told that a record has changed: one thread with a connection of its own, for both colours.

Only records that somebody waits for are published. Redis keeps no message for who is away: what came while the
connection was made anew is missed, and so all who wait are then told to look for themselves.
"""

from __future__ import annotations

import contextlib
import logging
import threading
from collections.abc import Callable

from redis.exceptions import RedisError
from redis.exceptions import TimeoutError as Silence

from oncekey.stores.contract import MISSED
from oncekey.stores.redis.address import Address
from oncekey.stores.redis.connect import line_to
from oncekey.stores.redis.listing import Keys
from oncekey.stores.redis.trouble import unreachable

log = logging.getLogger("oncekey.stores.redis")

# How long to wait before connecting again: at first, and at most.
SOON, LATE = 0.05, 5.0
END_FOR = 1.0


class RedisListener:
    """A subscription. It is there when the constructor returns, and comes back by itself until it is closed."""

    def __init__(self, address: Address, keys: Keys, told: Callable[[bytes], None], store_for: float) -> None:
        self._address = address
        self._keys = keys
        self._told = told
        self._store_for = store_for
        self._closing = threading.Event()
        self._connection = line_to(address, store_for)
        self._up = False
        try:
            self._subscribe()
        except (RedisError, OSError) as error:
            self._connection.disconnect()
            raise unreachable(error, address.where, store_for) from error
        self._thread = threading.Thread(target=self._run, name="oncekey-redis-listener", daemon=True)
        self._thread.start()

    def _subscribe(self) -> None:
        self._connection.send_command("SUBSCRIBE", self._keys.channel)
        self._connection.read_response()
        self._up = True

    def _run(self) -> None:
        while not self._closing.is_set():
            try:
                self._hear()
            except (RedisError, OSError) as error:
                self._up = False
                if not self._closing.is_set():
                    log.warning("the connection that waits for news from Redis broke: %s", error)
                    self._connect_again()
        self._connection.disconnect()

    def _hear(self) -> None:
        asked = False
        while not self._closing.is_set():
            try:
                message = self._connection.read_response(disconnect_on_error=False)
            except Silence:
                # Silence is normal; a server that does not even answer a PING is gone.
                if asked:
                    raise
                self._connection.send_command("PING")
                asked = True
                continue
            asked = False
            if message[0] == b"message":
                self._tell(message[2][len(self._keys.record) :])

    def _tell(self, id_: bytes) -> None:
        try:
            self._told(id_)
        except Exception:  # one listener's fault must not silence all later news
            log.exception("what was told of operation %s failed", id_.hex()[:12])

    def _connect_again(self) -> None:
        pause = SOON
        while not self._closing.wait(pause):
            self._connection.disconnect()
            self._connection = line_to(self._address, self._store_for)
            try:
                self._subscribe()
            except (RedisError, OSError):
                pause = min(2 * pause, LATE)
            else:
                self._tell(MISSED)
                return

    def close(self) -> None:
        """Stop calling back; the thread ends with its connection."""
        self._closing.set()
        if self._up:
            # The answer to this ends the blocking read. If the connection breaks just now, that ends it as well.
            with contextlib.suppress(RedisError, OSError):
                self._connection.send_command("UNSUBSCRIBE")
        if threading.current_thread() is not self._thread:
            self._thread.join(END_FOR)
