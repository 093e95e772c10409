"""Running the application on a claimed key: call, iteration and close, settled whatever their end."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

from oncekey.adapters.wsgi_answer import Answering
from oncekey.adapters.wsgi_upload import guarded
from oncekey.core.keys import key_ref
from oncekey.core.record import State
from oncekey.engine import current
from oncekey.engine.events import log
from oncekey.engine.operation import ThreadOperation
from oncekey.errors import SIGNALS

if TYPE_CHECKING:
    from wsgiref.types import StartResponse, WSGIApplication, WSGIEnvironment

    from oncekey.adapters.wsgi_duty import Duty
    from oncekey.engine.attempt import Attempt
    from oncekey.engine.threaded import Engine
    from oncekey.http.exchange import Exchange


class Work:
    """One run of the application."""

    def __init__(self, engine: Engine, duty: Duty, exchange: Exchange, attempt: Attempt) -> None:
        self._engine = engine
        self._duty = duty
        self._exchange = exchange
        self._attempt = attempt

    def run(self, app: WSGIApplication, environ: WSGIEnvironment, start_response: StartResponse) -> Iterable[bytes]:
        """Run it and return what goes to the client."""
        answer = Answering(self._engine, self._exchange, self._attempt, start_response)
        exchange = self._exchange
        operation = ThreadOperation(self._engine, self._attempt, exchange.key, exchange.gate.sealer)
        outer = current.OPERATION.get()
        current.OPERATION.set(operation)
        self._duty.begins(self)
        try:
            self._engine.keeper.keep(self._attempt)
            body = Body(app(guarded(environ, self._exchange.parts.body, operation), answer.start))
            try:
                return self._collect(body, answer)
            except BaseException:
                body.close_quietly()
                raise
        except BaseException as error:
            if answer.overruled is not None and isinstance(error, Exception):
                return answer.given(answer.overruled)
            if answer.settled:
                raise
            return self._unanswered(answer, error)
        finally:
            self._duty.ends(self)
            current.OPERATION.set(outer)

    def _collect(self, body: Body, answer: Answering) -> Iterable[bytes]:
        for chunk in body:
            if answer.flows:
                answer.chunks.append(chunk)
            else:
                answer.take(chunk)
            if answer.flows:
                # The server closes it, when it has had enough.
                pending, answer.chunks = answer.chunks, []
                body.return_first(pending)
                return body
        # Whatever close() still does belongs to the work: its failure makes the outcome uncertain.
        body.close()
        if answer.flows:
            return answer.chunks
        whole = answer.whole()
        return whole if whole is not None else self._unanswered(answer, None)

    def _unanswered(self, answer: Answering, error: BaseException | None) -> Iterable[bytes]:
        """The application ended without a whole answer: record what that means, and tell the client."""
        done = self._exchange.failed(self._attempt, error)
        if done.target is State.UNKNOWN:
            log.error("the outcome of operation %s is unknown: %s", key_ref(self._attempt.id), done.note)
        overruled = answer.settle(done)
        if error is not None and not isinstance(error, Exception):
            raise error
        said = answer.given(overruled or self._exchange.failure(done, error))
        return said if error is None or isinstance(error, SIGNALS) else _then(said, error)

    def abandon(self) -> None:
        """The process ends while this runs on in its thread: say that nobody will know how it ends."""
        done = self._exchange.failed(self._attempt, SystemExit("the process was shut down while the work was running"))
        self._engine.settle(self._attempt, done)


class Body:
    """The application's iterable, closed once whatever happens."""

    def __init__(self, iterable: Iterable[bytes]) -> None:
        self._iterable = iterable
        self._chunks: Iterator[bytes] | None = None
        self._first: list[bytes] = []
        self._closed = False

    def __iter__(self) -> Iterator[bytes]:
        return self

    def __next__(self) -> bytes:
        if self._first:
            return self._first.pop(0)
        if self._chunks is None:
            self._chunks = iter(self._iterable)
        return next(self._chunks)

    def return_first(self, chunks: list[bytes]) -> None:
        """Give these again, before the rest."""
        self._first = chunks

    def close(self) -> None:
        """Tell the application that nobody asks any more."""
        close = getattr(self._iterable, "close", None)
        if close is not None and not self._closed:
            self._closed = True
            close()

    def close_quietly(self) -> None:
        """The same on the way out of an error, which says more than a failing close."""
        try:
            self.close()
        except Exception:  # noqa: BLE001 - the first error is the one to raise
            log.exception("the application failed again in close()")


def _then(said: list[bytes], error: BaseException) -> Iterator[bytes]:
    """The client has its answer; the error goes on to the server and whoever else reports errors."""
    yield from said
    raise error
