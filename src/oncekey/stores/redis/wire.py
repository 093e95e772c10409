"""Redis for threads: one exchange of bytes per message, on redis-py's connections."""

from __future__ import annotations

import os
import threading
from collections import deque
from collections.abc import Callable, Generator
from typing import Any, TypeVar

from redis.exceptions import ConnectionError as Disconnected
from redis.exceptions import RedisError, ResponseError

from oncekey.errors import StoreUnavailable
from oncekey.stores.contract import Listener
from oncekey.stores.redis.address import Address
from oncekey.stores.redis.commands import Command
from oncekey.stores.redis.connect import Line, line_to
from oncekey.stores.redis.listen import RedisListener
from oncekey.stores.redis.listing import Keys
from oncekey.stores.redis.talk import Message, talk
from oncekey.stores.redis.trouble import unreachable

T = TypeVar("T")
Steps = Generator[list[Command], list[Any], T]


class RedisWire:
    """Keeps a few connections, most recently used first. One that failed in any way is closed, never put back."""

    def __init__(self, address: Address, store_for: float) -> None:
        self.address = address
        self.store_for = store_for
        self._closed = False
        self._reset()

    def _reset(self) -> None:
        self._idle: deque[Line] = deque()
        self._places = threading.Semaphore(self.address.connections)
        # Last: a thread that sees it must not find a parent's connections.
        self._pid = os.getpid()

    def run(self, steps: Steps[T]) -> T:
        conversation = talk(steps)
        try:
            message = next(conversation)
            while True:
                message = conversation.send(self._ask(message))
        except StopIteration as stop:
            result: T = stop.value
            return result

    def _ask(self, message: Message) -> list[Any]:
        if self._pid != os.getpid():
            self._reset()  # after a fork the connections are the parent's
        places = self._places
        if not places.acquire(timeout=self.store_for):
            raise StoreUnavailable(
                f"all {self.address.connections} connections to Redis are busy: write connections= with a larger number"
            )
        try:
            return self._ask_somebody(message)
        except (RedisError, OSError) as error:
            raise unreachable(error, self.address.where, self.store_for) from error
        finally:
            places.release()

    def _ask_somebody(self, message: Message) -> list[Any]:
        try:
            used = self._idle.pop()
        except IndexError:
            return self._exchange(self._new(), message)
        try:
            return self._exchange(used, message)
        except Disconnected as error:
            # The server may have closed it while it lay here (a restart, an idle limit). All verbs may be repeated:
            # what was done already is recognised by its token or version.
            if type(error) is not Disconnected:
                raise
            return self._exchange(self._new(), message)

    def _new(self) -> Line:
        return line_to(self.address, self.store_for)

    def _exchange(self, connection: Line, message: Message) -> list[Any]:
        try:
            connection.send_packed_command([message.payload], check_health=False)
            replies = [_reply(connection) for _ in range(message.replies)]
        except BaseException:
            # A reply may still be under way: nobody else may find it.
            connection.disconnect()
            raise
        if self._closed:
            connection.disconnect()
        else:
            self._idle.append(connection)
        return replies

    def listen(self, told: Callable[[bytes], None]) -> Listener:
        return RedisListener(self.address, Keys(self.address.prefix), told, self.store_for)

    def close(self) -> None:
        self._closed = True
        while self._idle:
            self._idle.pop().disconnect()


def _reply(connection: Line) -> Any:
    try:
        return connection.read_response()
    except ResponseError as error:
        return error
