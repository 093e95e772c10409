from __future__ import annotations

from hypothesis import example, given, settings
from hypothesis import strategies as st

from oncekey.core.record import State
from tests.fuzz.asgi import (
    KEPT,
    MAX_BODY,
    RELEASED,
    STONE,
    UNKNOWN,
    Body,
    Ended,
    Expected,
    Other,
    Script,
    Start,
    Upload,
    arrives,
    expected,
    play,
    scripts,
    uploads,
)

STATES = {KEPT: State.COMPLETED, STONE: State.COMPLETED, RELEASED: State.FAILED_RETRYABLE, UNKNOWN: State.UNKNOWN}
WHOLE = Upload((b'{"a":1}',))
LAST = Body(b"y", more=False)


@settings(max_examples=150, deadline=None)
@given(uploads, scripts, st.none() | st.integers(0, 3), st.booleans())
@example(WHOLE, Script((Start(200), Body(b"x", more=True), Start(200), LAST), stubborn=True), None, False)
@example(WHOLE, Script((Start(200, 5), LAST, LAST), stubborn=True), None, False)
@example(WHOLE, Script((Start(200, events=True), Body(b"x", more=True), Other("http.response.trailers"))), 1, False)
@example(WHOLE, Script((Start(103), LAST)), None, False)
@example(Upload((b"x" * MAX_BODY, b"y"), whole=False), Script(()), None, False)
def test_every_sequence_ends_as_the_specification_says(
    upload: Upload,
    script: Script,
    lost_at: int | None,
    from_memory: bool,
) -> None:
    """Uploads cut anywhere, messages in any order, clients that leave: what is told, stored and replayed is defined."""
    wanted, ended = expected(upload, script), play(upload, script, lost_at, from_memory=from_memory)
    if not wanted.runs:
        nothing_was_done(ended, silent=arrives(upload) is None)
        return
    assert ended.actor.bodies[0] == b"".join(upload.parts), "the application got another body"
    assert ended.state is STATES[wanted.outcome]
    if lost_at is None:
        assert ended.actor.refused == wanted.refused
        assert (ended.error is not None) == wanted.broken
        it_was_told(ended, wanted)
    its_retry_is_told(ended, wanted)


def nothing_was_done(ended: Ended, *, silent: bool) -> None:
    """No record, and an application that runs for the retry alone."""
    assert ended.state is None
    assert len(ended.actor.bodies) == 1
    assert ended.again.answer.body == b"again"
    if silent:
        assert ended.first.sent == []
    else:
        assert 400 <= ended.first.answer.status < 500


def it_was_told(ended: Ended, wanted: Expected) -> None:
    """The application's own answer, or a refusal that says what is known."""
    answer = ended.first.answer
    if wanted.status:
        assert (answer.status, answer.body) == (wanted.status, wanted.body)
        assert (not ended.first.sent[-1].get("more_body", False)) == wanted.complete
    else:
        assert answer[b"idempotency-problem"] == (b"not-executed" if wanted.outcome == RELEASED else b"outcome-unknown")


def its_retry_is_told(ended: Ended, wanted: Expected) -> None:
    """The same answer, that there is none, that nobody knows, or a new one; never half of one."""
    again, runs = ended.again.answer, len(ended.actor.bodies)
    assert runs == (2 if wanted.outcome == RELEASED else 1)
    if wanted.outcome == RELEASED:
        assert (again.status, again.body) == (201, b"again")
    elif wanted.outcome == UNKNOWN:
        assert (again.status, again[b"idempotency-problem"]) == (409, b"outcome-unknown")
    elif wanted.outcome == STONE:
        assert again[b"idempotency-problem"] == b"answer-not-kept"
    else:
        assert again.status == wanted.status
        assert again.body == (b"" if wanted.status in {204, 304} else wanted.body)
        assert [value for name, value in again.headers if name == b"x-part"] == [b"1", b"2"]
        assert again[b"idempotency-replayed"] == b"true"
