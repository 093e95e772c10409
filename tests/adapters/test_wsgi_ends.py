"""All the ways in which a WSGI application may end, well or badly."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from typing import Any

import pytest

from oncekey import NotExecuted, OutcomeUnknown, Policy, StoreUnavailable
from oncekey.core.commands import Settlement
from oncekey.core.record import State
from oncekey.stores.memory import MemoryStore
from tests.adapters.wsgi_kit import Closing, Guarded, Server, Shop, call, post

STOPS = [SystemExit, KeyboardInterrupt, GeneratorExit]


def test_a_generator_runs_under_the_claim() -> None:
    """Its body runs at iteration, after the call has returned: it is run to its end before the answer goes out."""
    states = []

    def app(environ: dict[str, Any], start_response: Any) -> Iterator[bytes]:
        states.append(guarded.state)
        start_response("201 Created", [])
        yield b"a"
        states.append(guarded.state)
        yield b"b"

    guarded = Guarded(app)
    assert [call(guarded).body for _ in range(2)] == [b"ab", b"ab"]
    assert states == [State.EXECUTING] * 2


def test_write_is_part_of_the_answer() -> None:
    """What was written by hand comes before what is returned, and is replayed with it."""

    def app(environ: dict[str, Any], start_response: Any) -> list[bytes]:
        write = start_response("201 Created", [])
        write(b"a")
        write(b"b")
        return [b"c"]

    guarded = Guarded(app)
    assert [call(guarded).body for _ in range(2)] == [b"abc", b"abc"]


@pytest.mark.parametrize("last", [[], [b"c"], [b"c", b"d"]])
def test_a_long_answer_by_write_flows(last: list[bytes]) -> None:
    """From the piece that goes over the cap, write() is the server's own; the order stays."""
    sent = []

    def app(environ: dict[str, Any], start_response: Any) -> Closing:
        write = start_response("201 Created", [])
        for piece in (b"a" * 6, b"b" * 6, b"x"):
            write(piece)
            sent.append(len(server.sent))
        return body

    body, server = Closing(last), Server()
    guarded = Guarded(app, policy=Policy(max_kept=10))
    assert server.serve(guarded, post()).body == b"a" * 6 + b"b" * 6 + b"x" + b"".join(last)
    assert (sent, body.closed, call(guarded).status) == ([0, 1, 2], 1, 410)


def test_an_error_page_replaces_what_was_started() -> None:
    """start_response with exc_info, before anything went out, is allowed: the second status is the answer."""

    def app(environ: dict[str, Any], start_response: Any) -> list[bytes]:
        start_response("200 OK", [("X-First", "1")])
        try:
            int("boom")
        except ValueError:
            start_response("422 Unprocessable Entity", [("X-Second", "2")], sys.exc_info())
        return [b"page"]

    guarded = Guarded(app)
    for _ in range(2):
        answer = call(guarded)
        assert (answer.status, answer.body, answer["x-first"], answer["x-second"]) == (422, b"page", None, "2")


def test_an_error_page_after_the_answer_flows_is_the_error_itself() -> None:
    """The status line is out: the server raises what exc_info holds."""

    def app(environ: dict[str, Any], start_response: Any) -> Iterator[bytes]:
        start_response("200 OK", [])
        yield b"x" * 11
        try:
            int("boom")
        except ValueError:
            start_response("500 Internal Server Error", [], sys.exc_info())

    guarded = Guarded(app, policy=Policy(max_kept=10))
    with pytest.raises(ValueError, match="boom"):
        call(guarded)
    assert call(guarded).status == 410


def twice(start_response: Any) -> list[bytes]:
    start_response("200 OK", [])
    start_response("200 OK", [])
    return [b"x"]


def no_bytes(start_response: Any) -> list[Any]:
    start_response("200 OK", [])
    return ["text"]


def bad_header(start_response: Any) -> list[bytes]:
    start_response("200 OK", [("X-Price", "5 \u20ac")])
    return [b"x"]


def half_of_it(start_response: Any) -> list[bytes]:
    start_response("200 OK", [("Content-Length", "5")])
    return [b"abc"]


def hardly_begun(start_response: Any) -> list[bytes]:
    start_response("102 Processing", [])
    return [b"abc"]


def nothing_iterable(start_response: Any) -> None:
    start_response("200 OK", [])


BROKEN = [
    pytest.param(twice, AssertionError, id="two starts"),
    pytest.param(lambda start: [b"x"], AssertionError, id="body before start"),
    pytest.param(lambda start: [], None, id="no start"),
    pytest.param(lambda start: [b"", b""], None, id="no start, empty pieces"),
    pytest.param(no_bytes, TypeError, id="text"),
    pytest.param(nothing_iterable, TypeError, id="nothing to iterate"),
    pytest.param(lambda start: start("x", []), ValueError, id="no status"),
    pytest.param(half_of_it, RuntimeError, id="another length than it says"),
    pytest.param(hardly_begun, RuntimeError, id="no final status"),
    pytest.param(bad_header, UnicodeEncodeError, id="header that WSGI forbids"),
]


@pytest.mark.parametrize(("body", "error"), BROKEN)
def test_half_an_answer_is_never_stored(body: Any, error: type[Exception] | None) -> None:
    """An application that breaks off or breaks the protocol leaves an unknown outcome and a clear refusal."""
    effects = []

    def app(environ: dict[str, Any], start_response: Any) -> Any:
        effects.append(1)
        return body(start_response)

    guarded, server = Guarded(app), Server()
    if error is None:
        server.serve(guarded, post())
    else:
        with pytest.raises(error):
            server.serve(guarded, post())
    assert guarded.state is State.UNKNOWN
    assert (server.answer.status, call(guarded).status, len(effects)) == (409, 409, 1)


def raiser(error: BaseException, where: str) -> Any:
    """An application that raises in its call, in its first or second step, or in close()."""

    def chunks() -> Iterator[bytes]:
        if where == "first step":
            raise error
        yield b"x"
        if where == "second step":
            raise error

    def close() -> None:
        if where == "close":
            raise error

    shop = Shop(body=Closing(chunks(), close=close))

    def app(environ: dict[str, Any], start_response: Any) -> Any:
        body = shop(environ, start_response)
        if where == "call":
            raise error
        return body

    app.shop = shop  # type: ignore[attr-defined]
    return app


WHERE = ["call", "first step", "second step", "close"]


@pytest.mark.parametrize("where", WHERE)
def test_an_exception_after_the_effect_is_unknown(where: str) -> None:
    """The client is told what to do, then the error goes on to the server; nothing runs again; close() came once."""
    app, server = raiser(RuntimeError("boom"), where), Server()
    guarded = Guarded(app)
    with pytest.raises(RuntimeError, match="boom"):
        server.serve(guarded, post())
    assert guarded.state is State.UNKNOWN
    assert json.loads(server.answer.body)["type"].endswith("outcome-unknown")
    assert (call(guarded).status, len(app.shop.effects)) == (409, 1)
    assert app.shop.body.closed == (where != "call")


@pytest.mark.parametrize("stop", STOPS)
@pytest.mark.parametrize("where", WHERE)
def test_work_that_is_stopped_half_way_is_unknown(stop: type[BaseException], where: str) -> None:
    """A worker's timeout is SystemExit: recorded as unknown, raised unchanged, nobody is answered."""
    error = stop("timeout")
    app, server = raiser(error, where), Server()
    guarded = Guarded(app)
    with pytest.raises(stop) as raised:
        server.serve(guarded, post())
    assert raised.value is error
    assert (guarded.state, server.starts) == (State.UNKNOWN, [])
    assert (call(guarded).status, len(app.shop.effects)) == (409, 1)
    assert app.shop.body.closed == (where != "call")


def test_the_first_error_counts_when_close_fails_too() -> None:
    """close() is tried on the way out; its own failure is logged."""

    def chunks() -> Iterator[bytes]:
        yield b"x"
        raise RuntimeError("first")

    def close() -> None:
        raise RuntimeError("second")

    shop = Shop(body=Closing(chunks(), close=close))
    with pytest.raises(RuntimeError, match="first"):
        call(Guarded(shop))
    assert shop.body.closed == 1


@pytest.mark.parametrize(
    ("error", "state", "status"),
    [
        (OutcomeUnknown("timeout at the bank"), State.UNKNOWN, 409),
        (NotExecuted("no bank"), State.FAILED_RETRYABLE, 503),
    ],
)
def test_what_the_handler_says_of_its_outcome_counts(error: Exception, state: State, status: int) -> None:
    """These are no faults: they end with us, and the client is told."""
    guarded = Guarded(raiser(error, "second step"))
    assert call(guarded).status == status
    assert guarded.state is state


def test_after_not_executed_the_retry_runs() -> None:
    """Declared to have done nothing: the next request with the key is a new attempt."""
    attempts = []

    def app(environ: dict[str, Any], start_response: Any) -> list[bytes]:
        attempts.append(environ["oncekey.operation"].attempt)
        if len(attempts) == 1:
            raise NotExecuted
        start_response("201 Created", [])
        return [b"ok"]

    guarded = Guarded(app)
    assert [call(guarded).status for _ in range(3)] == [503, 201, 201]
    assert attempts == [1, 2]


def test_a_crash_before_the_latch_is_retryable_and_after_it_unknown() -> None:
    """With latch=True the handler says when its effect may begin."""
    begin: list[bool] = []

    def app(environ: dict[str, Any], start_response: Any) -> list[bytes]:
        if begin:
            environ["oncekey.operation"].begin()
        raise RuntimeError("boom")

    guarded = Guarded(app, policy=Policy(latch=True))
    for state in (State.FAILED_RETRYABLE, State.UNKNOWN):
        with pytest.raises(RuntimeError):
            call(guarded)
        assert guarded.state is state
        begin.append(True)


def test_a_client_gone_at_the_answer_changes_nothing() -> None:
    """The server's start_response fails: the outcome is stored all the same, and the retry gets it."""
    shop = Shop()
    guarded = Guarded(shop)

    def gone(status: str, headers: Any, exc_info: Any = None) -> Any:
        raise OSError("connection lost")

    with pytest.raises(OSError, match="connection lost"):
        guarded(post(), gone)
    assert (call(guarded).body, len(shop.effects)) == (b'{"n":1}', 1)


class Failing(MemoryStore):
    """A store that goes away when an outcome is to be stored."""

    failure: BaseException = StoreUnavailable("gone")
    times = 1

    def settle(self, many: Any) -> Any:
        if self.times:
            self.times -= 1
            raise self.failure
        return super().settle(many)


def test_an_outcome_that_cannot_be_stored_is_not_told() -> None:
    """Success is shown only when it is durable: unknown until then, and settled when the store is back."""
    store, shop = Failing(), Shop()
    guarded = Guarded(shop, store)
    assert call(guarded).status == 409
    guarded.app.shutdown()
    assert (call(Guarded(shop, store)).body, len(shop.effects)) == (b'{"n":1}', 1)


def test_being_stopped_while_storing_loses_no_outcome() -> None:
    """SystemExit in the midst of settling: the outcome is owed, and stored at shutdown."""
    store, shop = Failing(), Shop()
    store.failure = SystemExit(1)
    guarded = Guarded(shop, store)
    with pytest.raises(SystemExit):
        call(guarded)
    guarded.app.shutdown()
    assert (call(Guarded(shop, store)).body, len(shop.effects)) == (b'{"n":1}', 1)


@pytest.mark.parametrize("size", [1, 20])
def test_an_answer_that_was_overruled_is_not_given(size: int) -> None:
    """An operator decided meanwhile: the client is told, whether the answer was short or would have flowed."""

    def app(environ: dict[str, Any], start_response: Any) -> Any:
        write = start_response("200 OK", [])
        [record] = guarded.records
        guarded.store.settle([Settlement(record.id, record.token, State.FAILED_RETRYABLE, keep_for=1000)])
        write(b"x" * size)
        return [b"y"]

    guarded = Guarded(app, policy=Policy(max_kept=10))
    refused = call(guarded)
    assert (refused.status, json.loads(refused.body)["type"].rsplit("/", 1)[1]) == (409, "lease-lost")


def test_an_application_that_ignores_being_overruled_changes_nothing() -> None:
    """It may catch what write() raises and go on: what it says then is not heard."""
    caught: list[NotExecuted] = []

    def app(environ: dict[str, Any], start_response: Any) -> Any:
        write = start_response("200 OK", [])
        [record] = guarded.records
        guarded.store.settle([Settlement(record.id, record.token, State.FAILED_RETRYABLE, keep_for=1000)])
        for _ in range(2):
            try:
                write(b"x" * 20)
            except NotExecuted as error:
                caught.append(error)
        return []

    guarded, server = Guarded(app, policy=Policy(max_kept=10)), Server()
    assert server.serve(guarded, post()).status == 409
    assert (len(caught), len(server.starts), b"x" * 20 in b"".join(server.sent)) == (2, 1, False)
