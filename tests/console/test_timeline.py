"""One operation's time line."""

from __future__ import annotations

from oncekey.console.timeline import timeline
from oncekey.core.journal import EMPTY, Asked, Audit, Call, CallState, Journal, Step, Trace
from oncekey.core.outcome import Answer
from oncekey.core.record import Record, Seen, State
from oncekey.operations import Kept

RECORD = Record(bytes(20), State.UNKNOWN, 4, b"", b"", attempts=2, claimed_at=1000, due_at=9000, note="TimeoutError")
CALL = Call(
    "charge", "the-derived-key", "POST https://psp.example/charges?sig=s3cret", CallState.BEGUN, 2, "", "stripe"
)


def told(record: Record, journal: Journal = EMPTY, trail: tuple[Audit, ...] = (), now: int = 5000) -> list[str]:
    """The lines as `when: title`."""
    lines = timeline(Seen(record, now), Kept(9, journal), trail)
    return [f"{line.when}: {line.title}" for line in lines]


def test_attempt_calls_steps_and_questions_stand_in_their_order() -> None:
    """From the claim by way of what was done and asked to how it stands and what comes."""
    journal = Journal((Trace(bytes(range(25))), Step("reserve", b"{}"), CALL, Asked(3, 4000, "no answer")))
    assert told(RECORD, journal) == [
        "past: Claimed, attempt 2",
        "past: Traced",
        "past: Step reserve",
        "past: Call charge to stripe POST https://psp.example/charges",
        "past: Asked what became of it, 3 times",
        "now: Unknown: nobody knows whether it happened",
        "next: The reconciler asks about it",
    ]


def test_derived_keys_and_queries_are_secret() -> None:
    """What a call was sent under, and what stood behind its question mark, is in the masked part alone."""
    [line] = [line for line in timeline(Seen(RECORD, 5000), Kept(9, Journal((CALL,))), ()) if "Call" in line.title]
    assert not any(secret in line.title + line.text for secret in ("the-derived-key", "s3cret"))
    assert line.secret == "POST https://psp.example/charges?sig=s3cret\nkey the-derived-key"


def test_changes_by_hand_stand_where_they_happened() -> None:
    """Those before the latest attempt come before it, the others behind."""
    early = Audit("Bob", "void", 500, State.UNKNOWN, State.FAILED_RETRYABLE)
    late = Audit("Alice", "it is back", 4500, State.UNKNOWN, State.UNKNOWN)
    assert told(RECORD, trail=(early, late))[:3] == [
        "past: Unknown to failed_retryable, by Bob",
        "past: Claimed, attempt 2",
        "past: Asked about again, by Alice",
    ]


def test_what_comes_next_is_said() -> None:
    """Lease, waiting time, expiry; what is overdue; and where nothing comes by itself."""
    running = RECORD._replace(state=State.EXECUTING, lease_until=6000, due_at=None)
    assert told(running)[-1] == "next: The lease ends, unless it is renewed"
    assert "lease has been over for 3s" in told(running, now=9000)[-1]
    assert "Overdue for 3s" in told(RECORD, now=12_000)[-1]
    assert told(RECORD._replace(due_at=None))[-1] == "next: Nothing by itself"
    failed = RECORD._replace(state=State.FAILED_RETRYABLE, expires_at=99_000)
    assert told(failed)[-2:] == ["next: A retry is let in", "next: It is forgotten"]
    done = Seen(RECORD._replace(state=State.COMPLETED, due_at=None, expires_at=99_000), 5000)
    lines = timeline(done, Kept(9, Answer(201, (), b"{}")), ())
    assert [line.title for line in lines[-2:]] == ["Completed: status 201, body of 2 bytes", "It is forgotten"]
