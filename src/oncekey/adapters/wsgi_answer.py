"""The answer's half of a WSGI exchange: it stands in for the server's `start_response` and `write`.

Nothing reaches the client before the outcome is stored: not even the status line. An answer that cannot be kept (a
stream, or longer than the cap) is settled as such, and flows from then on.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from http import HTTPStatus
from typing import TYPE_CHECKING, Any, NamedTuple

from oncekey.core.commands import Settlement, Stale
from oncekey.core.keys import key_ref
from oncekey.engine.events import log
from oncekey.errors import NotExecuted, OutcomeUnknown, StoreError
from oncekey.http.exchange import STREAMED, TOO_LONG
from oncekey.http.messages import Headers, Reply

if TYPE_CHECKING:
    from wsgiref.types import StartResponse

    from oncekey.engine.attempt import Attempt
    from oncekey.engine.threaded import Engine
    from oncekey.http.exchange import Exchange

EVENT_STREAM = b"text/event-stream"
TextHeaders = list[tuple[str, str]]


class Head(NamedTuple):
    """What the application said with start_response: its words for the server, and the same as we keep them."""

    line: str
    said: TextHeaders
    status: int
    headers: Headers


class Answering:
    """Collects one answer, settles it when it is whole, and lets it go."""

    def __init__(self, engine: Engine, exchange: Exchange, attempt: Attempt, start_response: StartResponse) -> None:
        self._engine = engine
        self._exchange = exchange
        self._attempt = attempt
        self._start_response = start_response
        self._head: Head | None = None
        self._server_write: Callable[[bytes], object] | None = None
        self._size = 0
        self.chunks: list[bytes] = []
        self.settled = False
        self.flows = False
        self.overruled: Reply | None = None

    def start(self, status: str, headers: TextHeaders, exc_info: Any = None, /) -> Callable[[bytes], object]:
        """What the application calls as start_response."""
        if self.flows:
            # The status line is out: the server raises what exc_info holds, or complains.
            self._start_response(status, headers, exc_info)
        elif self._head is not None and exc_info is None:
            raise AssertionError("start_response was called a second time without exc_info")
        else:
            kept = [(name.encode("latin-1"), value.encode("latin-1")) for name, value in headers]
            self._head = Head(status, list(headers), int(status[:3]), kept)
        return self._write

    def _write(self, data: bytes) -> None:
        if not self.flows:
            self.take(data)
        else:
            self.chunks.append(data)
        if self._server_write is not None:
            pending, self.chunks = self.chunks, []
            self._server_write(b"".join(pending))

    def take(self, chunk: bytes) -> None:
        """Collect one piece of the body. From the moment that it cannot be kept, `flows` is set."""
        if not isinstance(chunk, bytes):
            raise TypeError(f"a WSGI application yields bytes, this one gave {type(chunk).__name__}")
        if self._head is None:
            if chunk:
                raise AssertionError("the application gave a response body before it called start_response")
            return
        self.chunks.append(chunk)
        self._size += len(chunk)
        if self._size > self._exchange.gate.policy.max_kept:
            self._let_flow(self._head, TOO_LONG)
        elif len(self.chunks) == 1 and _is_event_stream(self._head):
            self._let_flow(self._head, STREAMED)

    def _let_flow(self, head: Head, reason: str) -> None:
        if not self._commit(head, None, reason):
            raise NotExecuted("another attempt has taken over; this answer is not given")
        self.flows = True

    def whole(self) -> list[bytes] | None:
        """The application has ended: store its answer, and give it to the server. None: there is no answer."""
        if self._head is None and self.overruled is None:
            return None
        body = b"".join(self.chunks)
        if self.overruled is None and self._head is not None and self._commit(self._head, body, ""):
            return [body]
        return self.given(self.overruled)  # type: ignore[arg-type] # set by _commit

    def _commit(self, head: Head, body: bytes | None, lack: str) -> bool:
        """Store the outcome, then send the head. False if another answer has to be given instead."""
        answered = self._exchange.answered(self._attempt, head.status, head.headers, body, lack)
        self.overruled = self.settle(answered.settlement)
        if self.overruled is None:
            self._exchange.stored(answered)
            self._server_write = self._start_response(head.line, head.said + texts(answered.marks))
        return self.overruled is None

    def settle(self, settlement: Settlement) -> Reply | None:
        """Store an outcome; a Reply means that another answer must be given instead."""
        self.settled = True
        try:
            written = self._engine.settle(self._attempt, settlement)
        except StoreError as error:
            log.error("the outcome of operation %s is not stored yet: %s", key_ref(self._attempt.id), error)
            return self._exchange.refuse(OutcomeUnknown())
        except BaseException:
            # The process is being ended in the midst of it (a worker's timeout): what happened is true all the same.
            self._engine.keeper.owe(settlement)
            raise
        return self._exchange.overruled(written) if isinstance(written, Stale) else None

    def given(self, reply: Reply) -> list[bytes]:
        """An answer of our own, given to the server."""
        return told(reply, self._start_response)


def _is_event_stream(head: Head) -> bool:
    return any(value.startswith(EVENT_STREAM) and name.lower() == b"content-type" for name, value in head.headers)


def told(reply: Reply, start_response: StartResponse) -> list[bytes]:
    """Give the server a whole answer."""
    phrase = HTTPStatus(reply.status).phrase if reply.status in STATUSES else "Unknown"
    start_response(f"{reply.status} {phrase}", texts(reply.headers))
    return [reply.body]


STATUSES = frozenset(HTTPStatus)


def texts(headers: Iterable[tuple[bytes, bytes]]) -> TextHeaders:
    """Headers as WSGI wants them."""
    return [(name.decode("latin-1"), value.decode("latin-1")) for name, value in headers]
