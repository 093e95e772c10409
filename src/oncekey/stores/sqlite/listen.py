"""Who is told of what. Changes of this process are told directly; those of others are noticed by a thread.

The thread runs only while a listener is open, and looks only while somebody waits for a record: `PRAGMA data_version`
on a connection of its own says whether anybody else committed since the last look, without touching the file.
"""

from __future__ import annotations

import logging
import os
import sqlite3
import threading
import time
from collections.abc import Callable

from oncekey.errors import OnceKeyError
from oncekey.stores.sqlite.link import Link, patient
from oncekey.stores.sqlite.statements import repeated, sizes

LOOK_EVERY = 0.05
_FORKED = threading.Lock()

Told = Callable[[bytes], None]
_log = logging.getLogger("oncekey.stores.sqlite")


class Hub:
    """The listeners of one store, and the records that they wait for."""

    def __init__(self, path: str, store_for: float) -> None:
        self._link = Link(path, store_for)
        self._store_for = store_for
        self._lock = threading.Lock()
        self._pid = os.getpid()
        self._listeners: dict[object, Told] = {}
        self._waited: set[bytes] = set()
        self._news = threading.Event()
        self._thread: threading.Thread | None = None

    def listen(self, told: Told) -> Subscription:
        """Add a listener; the first one starts the thread."""
        subscription = Subscription(self)
        with self._held():
            self._listeners[subscription] = told
            self._start()
        return subscription

    def _held(self) -> threading.Lock:
        """The lock. A forked child keeps the listeners, but what its parent waited for, and the thread, stay behind."""
        if self._pid != os.getpid():
            with _FORKED:
                if self._pid != os.getpid():
                    self._begin_anew()
        return self._lock

    def _begin_anew(self) -> None:
        self._waited, self._thread, self._lock = set(), None, threading.Lock()
        self._pid = os.getpid()  # last: whoever sees it sees the others

    def _start(self) -> None:
        if self._thread is None:
            self._news = threading.Event()
            self._thread = threading.Thread(
                target=self._look, args=(self._news,), name="oncekey-sqlite-listen", daemon=True
            )
            self._thread.start()

    def leave(self, subscription: Subscription) -> None:
        """Remove a listener; with the last one the thread ends."""
        with self._held():
            self._listeners.pop(subscription, None)
            if self._listeners:
                return
            self._waited.clear()
            thread, self._thread = self._thread, None
            self._news.set()
        if thread is not None and thread is not threading.current_thread():
            thread.join(self._store_for)

    def watch(self, id_: bytes, *, on: bool) -> None:
        """Somebody here waits for this record, or no longer does."""
        with self._held():
            if on and self._listeners:
                self._waited.add(id_)
                self._start()
                self._news.set()
            else:
                self._waited.discard(id_)

    def tell(self, id_: bytes) -> None:
        """Call every listener. One that fails is logged, and keeps nobody else from being told."""
        if not self._listeners:
            return
        with self._held():
            self._waited.discard(id_)
            listeners = list(self._listeners.values())
        for told in listeners:
            try:
                told(id_)
            except Exception:  # noqa: BLE001 - whatever a listener raises, the others must be told
                _log.exception("a listener failed")

    def close(self) -> None:
        """Remove all listeners."""
        for subscription in list(self._listeners):
            if isinstance(subscription, Subscription):
                self.leave(subscription)

    def _look(self, news: threading.Event) -> None:
        """The thread: rest while nobody waits, and look for news at a gentle pace while somebody does."""
        seen: int | None = None
        mine = threading.current_thread()
        while self._thread is mine:
            if not self._waited:
                news.wait()
                news.clear()
                continue
            try:
                seen = self._look_once(seen)
            except (sqlite3.Error, OnceKeyError):
                # Without news everybody had better look for himself.
                seen = None
                self._tell_all(list(self._waited))
            time.sleep(LOOK_EVERY)
        with self._link.lock:
            self._link.close()

    def _look_once(self, seen: int | None) -> int:
        deadline = time.monotonic() + self._store_for
        over: list[bytes] = []
        self._link.take(deadline)
        try:
            fresh = self._link.connection is None
            connection = self._link.ready(deadline)
            # The version is read before the records: what is committed in between shows at the next look.
            [version] = patient(connection, "PRAGMA data_version", (), deadline).fetchone()
            if fresh or version != seen:
                over = _over(connection, self._snapshot(), deadline)
        finally:
            self._link.lock.release()
        self._tell_all(over)
        return int(version)

    def _snapshot(self) -> list[bytes]:
        with self._held():
            return list(self._waited)

    def _tell_all(self, ids: list[bytes]) -> None:
        for id_ in ids:
            self.tell(id_)


def _over(connection: sqlite3.Connection, ids: list[bytes], deadline: float) -> list[bytes]:
    """Which of these records are no longer in progress."""
    still_open: set[bytes] = set()
    for start, size in sizes(len(ids)):
        rows = patient(connection, repeated("still_open", size), ids[start : start + size], deadline)
        still_open.update(id_ for (id_,) in rows)
    return [id_ for id_ in ids if id_ not in still_open]


class Subscription:
    """One running listener."""

    def __init__(self, hub: Hub) -> None:
        self._hub = hub

    def close(self) -> None:
        """Stop calling back."""
        self._hub.leave(self)
