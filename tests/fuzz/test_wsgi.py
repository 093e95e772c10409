from __future__ import annotations

from hypothesis import example, given, settings
from hypothesis import strategies as st

from oncekey.core.record import State
from tests.fuzz.wsgi import KEPT, RELEASED, STONE, UNKNOWN, Script, Start, Write, Yield, expected, play, scripts

STATES = {KEPT: State.COMPLETED, STONE: State.COMPLETED, RELEASED: State.FAILED_RETRYABLE, UNKNOWN: State.UNKNOWN}


@settings(max_examples=250, deadline=None)
@given(scripts, st.booleans())
@example(Script((Start(200), Write(b"a")), (Yield(b"b"),)), False)
@example(Script((Start(200), Start(500, again=True)), (Yield(b"b"),)), False)
@example(Script((Start(200, 1),), (Yield(b"bc"),)), False)
@example(Script((Start(200, events=True),), (Yield(b"b"), Start(200, again=True))), False)
@example(Script((), (Yield(b""), Start(200), Yield(b"b")), close_fails=True), False)
def test_every_order_of_calls_ends_as_the_specification_says(script: Script, from_memory: bool) -> None:
    """start_response, write, pieces, errors, close() in any order: what is told, recorded and replayed is defined."""
    wanted, ended = expected(script), play(script, from_memory=from_memory)
    assert ended.state is STATES[wanted.outcome]
    assert ended.actor.closed == ended.actor.opened, "what the application returned is closed once"
    if wanted.outcome in {KEPT, STONE}:
        assert wanted.start is not None
        head, body = ended.first.answer.status, ended.first.answer.body
        assert head == wanted.start.status
        assert wanted.error or body == b"".join(wanted.chunks)
    again, runs = ended.again.answer, ended.actor.runs
    assert runs == (2 if wanted.outcome == RELEASED else 1)
    if wanted.outcome == RELEASED:
        assert (again.status, again.body) == (201, b"again")
    elif wanted.outcome == UNKNOWN:
        assert (again.status, again["idempotency-problem"]) == (409, "outcome-unknown")
    elif wanted.outcome == STONE:
        assert again["idempotency-problem"] == "answer-not-kept"
    else:
        assert wanted.start is not None
        assert again.status == wanted.start.status
        assert again.body == (b"" if again.status in {204, 304} else b"".join(wanted.chunks))
        assert again.all("x-part") == ["1", "2"]
