from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest

from oncekey import NotExecuted, OutcomeUnknown, Policy
from oncekey.core.record import State
from tests.adapters.asgi_kit import BODY, START, Guarded, Shop, Wire, answer, call, http


@pytest.mark.parametrize("stop", [asyncio.CancelledError, SystemExit, KeyboardInterrupt, GeneratorExit])
async def test_work_that_is_stopped_half_way_is_unknown(stop: type[BaseException]) -> None:
    """Nobody knows what it did: the key stays shut, the stop goes on as it came."""
    shop = Shop()
    shop.after = lambda: None  # type: ignore[assignment,return-value]

    async def app(scope: Any, receive: Any, send: Any) -> None:
        shop.effects.append(b"")
        raise stop

    guarded = Guarded(app)
    from oncekey.adapters.asgi_work import Work

    # Run the work in this task: SystemExit in a task would end the loop, which is what it is for.
    wire = Wire()
    work = await _claimed(guarded, wire, Work)
    with pytest.raises(stop):
        await work._work({**http(), "oncekey": None})
    assert guarded.state is State.UNKNOWN
    assert wire.sent == []
    assert (await call(guarded)).status == 409
    assert len(shop.effects) == 1


async def _claimed(guarded: Guarded, wire: Wire, kind: Any) -> Any:
    """A claimed operation whose work has not begun."""
    made: list[Any] = []

    async def run(self: Any, scope: Any) -> None:
        made.append(self)

    original, kind.run = kind.run, run
    try:
        await guarded(http(), wire.receive, wire.send)
    finally:
        kind.run = original
    return made[0]


@pytest.mark.parametrize(
    ("error", "state", "status", "slug"),
    [
        (RuntimeError("boom"), State.UNKNOWN, 409, "outcome-unknown"),
        (OutcomeUnknown("timeout at the bank"), State.UNKNOWN, 409, "outcome-unknown"),
        (NotExecuted("card service is down"), State.FAILED_RETRYABLE, 503, "not-executed"),
    ],
)
async def test_an_exception_is_unknown_unless_it_says_otherwise(
    error: Exception, state: State, status: int, slug: str
) -> None:
    """The client is told what to do; a fault goes on to the server's log, a signal ends here."""

    async def app(scope: Any, receive: Any, send: Any) -> None:
        raise error

    guarded, wire = Guarded(app), Wire()
    if isinstance(error, RuntimeError):
        with pytest.raises(RuntimeError):
            await guarded(http(), wire.receive, wire.send)
    else:
        await guarded(http(), wire.receive, wire.send)
    assert guarded.state is state
    assert wire.answer.status == status
    assert json.loads(wire.answer.body)["type"].endswith(slug)


async def test_after_not_executed_the_retry_runs() -> None:
    """Declared to have done nothing: the next request with the key is a new attempt."""
    attempts = []

    async def app(scope: Any, receive: Any, send: Any) -> None:
        attempts.append(scope["oncekey"].attempt)
        if len(attempts) == 1:
            raise NotExecuted
        for message in answer(201, b"ok"):
            await send(message)

    guarded = Guarded(app)
    assert [(await call(guarded)).status for _ in range(3)] == [503, 201, 201]
    assert attempts == [1, 2]


async def test_a_crash_before_the_latch_is_retryable_and_after_it_unknown() -> None:
    """With latch=True the handler says when its effect may begin."""
    begin: list[bool] = []

    async def app(scope: Any, receive: Any, send: Any) -> None:
        if begin:
            await scope["oncekey"].begin()
        raise RuntimeError("boom")

    guarded = Guarded(app, policy=Policy(latch=True))
    for state in (State.FAILED_RETRYABLE, State.UNKNOWN):
        with pytest.raises(RuntimeError):
            await call(guarded)
        assert guarded.state is state
        begin.append(True)


@pytest.mark.parametrize(
    ("status", "state"),
    [
        (200, State.COMPLETED),
        (302, State.COMPLETED),
        (404, State.COMPLETED),
        (429, State.FAILED_RETRYABLE),
        (500, State.UNKNOWN),
        (503, State.UNKNOWN),
    ],
)
async def test_the_outcome_table_of_the_ietf_dialect(status: int, state: State) -> None:
    """Success and client errors are kept, 429 is released, server errors are unknown; the client sees the answer."""
    guarded = Guarded(Shop(*answer(status, b"{}")))
    assert (await call(guarded)).status == status
    assert guarded.state is state


async def test_background_work_that_fails_changes_nothing() -> None:
    """The answer is out and stored; what comes after it is outside the guarantee."""

    class Failing(Shop):
        async def after(self) -> None:
            raise RuntimeError("mail server is down")

    shop, wire = Failing(), Wire()
    guarded = Guarded(shop)
    with pytest.raises(RuntimeError):
        await guarded(http(), wire.receive, wire.send)
    assert wire.answer.body == b'{"n":1}'
    assert (await call(guarded)).body == b'{"n":1}'
    assert len(shop.effects) == 1


async def test_the_outcome_is_stored_before_the_client_sees_anything() -> None:
    """At the moment of the status line the record is completed already."""
    guarded, states = Guarded(Shop()), []

    async def send(message: Any) -> None:
        states.append((message["type"], guarded.state))

    await guarded(http(), Wire().receive, send)
    assert states == [(START, State.COMPLETED), (BODY, State.COMPLETED)]


async def test_a_client_gone_at_the_answer_changes_nothing() -> None:
    """send() fails: the outcome is stored all the same, and the retry gets it."""
    guarded = Guarded(Shop())

    async def gone(message: Any) -> None:
        raise OSError("connection lost")

    with pytest.raises(OSError, match="connection lost"):
        await guarded(http(), Wire().receive, gone)
    assert (await call(guarded)).body == b'{"n":1}'


MORE = {"type": BODY, "body": b"x", "more_body": True}
LAST = {"type": BODY, "body": b"y"}
HEAD = {"type": START, "status": 200, "headers": []}


@pytest.mark.parametrize(
    "messages",
    [
        pytest.param((HEAD,), id="no body"),
        pytest.param((HEAD, MORE), id="no last byte"),
        pytest.param((LAST,), id="body before start"),
        pytest.param((HEAD, HEAD, LAST), id="two starts"),
        pytest.param((HEAD, MORE, HEAD), id="start in the middle"),
        pytest.param(({**HEAD, "status": 103}, LAST), id="no final status"),
        pytest.param(("nothing",), id="nothing"),
    ],
)
async def test_half_an_answer_is_never_stored(messages: Any) -> None:
    """An application that breaks off or breaks the protocol leaves an unknown outcome and a clear refusal."""
    shop = Shop(*(message for message in messages if message != "nothing"))
    if messages == ("nothing",):

        async def nothing(scope: Any, receive: Any, send: Any) -> None:
            await receive()

        guarded = Guarded(nothing)
    else:
        guarded = Guarded(shop)
    wire = Wire()
    try:
        await guarded(http(), wire.receive, wire.send)
    except RuntimeError as error:
        assert "the application" in str(error)  # noqa: PT017
    assert guarded.state is State.UNKNOWN
    assert wire.answer.status == 409


async def test_a_body_after_the_end_is_an_error_and_the_answer_stays() -> None:
    """What was complete stays complete."""
    guarded, wire = Guarded(Shop(HEAD, LAST, LAST)), Wire()
    with pytest.raises(RuntimeError, match="after its end"):
        await guarded(http(), wire.receive, wire.send)
    assert (await call(guarded)).body == b"y"


async def test_an_answer_in_pieces_is_stored_whole() -> None:
    """Chunks are joined; the replay is the same bytes."""
    guarded = Guarded(Shop(HEAD, MORE, MORE, LAST))
    assert [(await call(guarded)).body for _ in range(2)] == [b"xxy", b"xxy"]


@pytest.mark.parametrize("size", [9, 10, 11, 40])
@pytest.mark.parametrize("pieces", [1, 4])
async def test_an_answer_over_the_cap_leaves_a_tombstone(size: int, pieces: int) -> None:
    """The client gets it, the retry is told that it was not kept, and nothing runs again."""
    body = bytes(range(size))
    step = -(-size // pieces)
    parts = [body[at : at + step] for at in range(0, size, step)]
    messages = [{"type": BODY, "body": part, "more_body": True} for part in parts[:-1]]
    shop = Shop(HEAD, *messages, {"type": BODY, "body": parts[-1]})
    guarded = Guarded(shop, policy=Policy(max_kept=10))
    assert (await call(guarded)).body == body
    again = await call(guarded)
    assert (again.status, len(shop.effects)) == ((200, 1) if size <= 10 else (410, 1))


async def test_an_event_stream_flows_from_its_first_event() -> None:
    """A stream is settled as not kept at once, and its events are not held back."""
    head = {"type": START, "status": 200, "headers": [(b"content-type", b"text/event-stream")]}
    wire = Wire()
    flowed = []

    async def app(scope: Any, receive: Any, send: Any) -> None:
        await send(head)
        for _ in range(3):
            await send({"type": BODY, "body": b"data: x\n\n", "more_body": True})
            flowed.append(len(wire.sent))
        await send({"type": BODY, "body": b""})

    guarded = Guarded(app)
    await guarded(http(), wire.receive, wire.send)
    assert flowed == [2, 3, 4]
    assert (await call(guarded)).status == 410


async def test_ways_around_us_are_not_offered() -> None:
    """Path and zero-copy sends, trailers, pushes and early hints are taken out of the extensions."""
    shop = Shop()
    ways = ["pathsend", "zerocopysend", "push", "trailers", "early_hint"]
    extensions: dict[str, Any] = {f"http.response.{way}": {} for way in ways} | {"tls": {}}
    await call(Guarded(shop), http(extensions=extensions))
    assert shop.scopes[0]["extensions"] == {"tls": {}}


async def test_headers_of_one_session_never_reach_a_replay() -> None:
    """Set-Cookie and its kind go to the first client only; repeated headers keep their order and number."""
    headers = [(b"set-cookie", b"s=1"), (b"x-part", b"1"), (b"x-part", b"2"), (b"date", b"now")]
    guarded = Guarded(Shop(*answer(201, b"ok", *headers)))
    first, again = await call(guarded), await call(guarded)
    assert first[b"set-cookie"] == b"s=1"
    assert [again[b"set-cookie"], again[b"date"]] == [None, None]
    assert [value for name, value in again.headers if name == b"x-part"] == [b"1", b"2"]


async def test_a_second_installation_steps_aside() -> None:
    """Twice around the same application: the outer one guards, one record is made."""
    shop = Shop()
    guarded = Guarded(Guarded(shop))
    assert [(await call(guarded)).status for _ in range(2)] == [201, 201]
    assert len(shop.effects) == 1


async def test_replayed_only_to_those_who_may_still_call() -> None:
    """Whatever checks callers outside of us is asked for replays too."""
    guarded = Guarded(Shop())
    allowed = {b"Bearer alice"}

    async def door(scope: Any, receive: Any, send: Any) -> None:
        if dict(scope["headers"])[b"authorization"] in allowed:
            await guarded(scope, receive, send)
        else:
            for message in answer(403, b"{}"):
                await send(message)

    assert (await call(door)).status == 201
    allowed.clear()
    assert (await call(door)).status == 403
