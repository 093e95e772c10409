"""LISTEN on a connection of its own, in one thread, for both colours.

The thread reconnects by itself. What was told while it was away is not told again: all who wait are then told to look
for themselves. LISTEN needs a session of its own: through a pooler in
transaction mode nothing is ever heard (`check` says so), hence the URL's oncekey_listen.
"""

from __future__ import annotations

import contextlib
import logging
import selectors
import socket
import threading
from collections.abc import Callable
from concurrent.futures import Future
from contextlib import closing
from typing import Any

import psycopg

from oncekey.errors import StoreUnavailable
from oncekey.stores.contract import MISSED
from oncekey.stores.postgres import trouble
from oncekey.stores.postgres.options import Options
from oncekey.stores.postgres.statements import quoted

log = logging.getLogger("oncekey.stores.postgres")
# The pause before a new connection doubles from the first to the last.
FIRST_PAUSE, LAST_PAUSE = 0.1, 5.0
CLOSED = "the listener was closed before it had begun to listen"
# A server that vanished without a word is noticed within about a minute.
KEEPALIVE: dict[str, Any] = {"keepalives_idle": 30, "keepalives_interval": 10, "keepalives_count": 3}


class PostgresListener:
    """A running subscription."""

    def __init__(self, options: Options, told: Callable[[bytes], None]) -> None:
        self._options = options
        self._told = told
        self._closed = False
        self._beginning = threading.Lock()
        self._heard, self._wake = socket.socketpair()
        self._started: Future[None] = Future()
        self._thread = threading.Thread(target=self._run, name="oncekey-listen", daemon=True)

    def start(self) -> None:
        """Return when the server listens for us: what is told from now on is heard. Raises if it was closed before."""
        with self._beginning:
            if self._closed:
                raise StoreUnavailable(CLOSED)
            self._thread.start()
        try:
            self._started.result()
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        """Stop calling back."""
        with self._beginning:
            if self._closed:
                return
            self._closed = True
            begun = self._thread.ident is not None
        with contextlib.suppress(OSError):  # a thread that could not begin has already gone
            self._wake.send(b"\0")
        if not begun:
            self._heard.close()
        elif self._thread is not threading.current_thread():
            self._thread.join()
        self._wake.close()

    def _run(self) -> None:
        pause = FIRST_PAUSE
        with self._heard, selectors.DefaultSelector() as selector:
            selector.register(self._heard, selectors.EVENT_READ)
            while not self._closed:
                try:
                    with closing(self._connect()) as connection:
                        pause = FIRST_PAUSE
                        self._hear(connection, selector)
                except (psycopg.Error, OSError) as error:
                    if not self._started.done():
                        self._started.set_exception(trouble.unreachable(error, self._options))
                        return
                    log.warning("the connection that listens for settled records broke; trying again in %.1f s", pause)
                    selector.select(pause)
                    pause = min(pause * 2, LAST_PAUSE)
        if not self._started.done():
            self._started.set_exception(StoreUnavailable(CLOSED))

    def _connect(self) -> psycopg.Connection[Any]:
        seconds = max(1, round(self._options.store_for))
        connection = psycopg.connect(
            self._options.listen_conninfo, autocommit=True, connect_timeout=seconds, **KEEPALIVE
        )
        try:
            connection.execute(f"LISTEN {quoted(self._options.channel)}".encode())
        except BaseException:
            connection.close()
            raise
        if self._started.done():
            self._report(MISSED)
        else:
            self._started.set_result(None)
        return connection

    def _hear(self, connection: psycopg.Connection[Any], selector: selectors.BaseSelector) -> None:
        pgconn, fileno = connection.pgconn, connection.fileno()
        selector.register(fileno, selectors.EVENT_READ)
        try:
            while not self._closed:
                pgconn.consume_input()
                while (notice := pgconn.notifies()) is not None:
                    self._tell(notice.extra)
                selector.select()
        finally:
            selector.unregister(fileno)

    def _tell(self, payload: bytes) -> None:
        try:
            id_ = bytes.fromhex(payload.decode())
        except ValueError:
            return  # somebody else uses our channel
        self._report(id_)

    def _report(self, id_: bytes) -> None:
        try:
            self._told(id_)
        except Exception:
            log.exception("whoever was told of a settled record failed")


def listen(options: Options, told: Callable[[bytes], None]) -> PostgresListener:
    """Start a subscription."""
    listener = PostgresListener(options, told)
    listener.start()
    return listener
