"""One operation's time line: what has happened, what stands, what comes. Pure, from the record and its journal.

A record keeps the instants that decide something and the trail; calls and steps have an order and no instants. So each
line has an instant or stands below the attempt that it belongs to.
"""

from __future__ import annotations

from typing import NamedTuple

from oncekey.core.journal import Asked, Audit, Call, Journal, Step, Trace
from oncekey.core.outcome import Answer, Tombstone, Value
from oncekey.core.record import IN_PROGRESS, Seen, State
from oncekey.operations import Kept, is_dead_letter, next_of
from oncekey.operations.words import brief, size

PAST, HERE, COMING = "past", "now", "next"


class Line(NamedTuple):
    """One line. `tone` is a state's word or nothing; `secret` is shown only when it was asked for."""

    when: str
    title: str
    text: str = ""
    at: int | None = None
    tone: str = ""
    secret: str = ""


def timeline(seen: Seen, found: Kept | None, trail: tuple[Audit, ...]) -> list[Line]:
    """All lines, the oldest first."""
    record = seen.record
    journal = found.outcome if found is not None and isinstance(found.outcome, Journal) else Journal()
    which = f"attempt {record.attempts}" if record.attempts > 1 else "the first attempt"
    claimed = Line(PAST, f"Claimed, {which}", f"guarantee {record.guarantee.name.lower()}", record.claimed_at)
    audits = sorted((_audit(line) for line in trail), key=lambda line: line.at or 0)
    before = [line for line in audits if (line.at or 0) < record.claimed_at]
    entries = [line for entry in journal.entries for line in _entry(entry)]
    here = _here(seen, found)
    said = [journal.asked.said] if journal.asked is not None else []
    if any(here.text.endswith(words) for words in (*said, *(f"{line.by}: {line.why}" for line in trail[-1:]))):
        here = here._replace(text="")  # what was heard or signed last stands there already
    return [*before, claimed, *entries, *audits[len(before) :], here, *_coming(seen)]


def _entry(entry: Call | Step | Audit | Asked | Trace) -> list[Line]:
    match entry:
        case Call():
            whom = " ".join(filter(None, (entry.provider, entry.target.partition("?")[0])))
            said = {
                "begun": "It may have left, and nobody knows what became of it",
                "returned": "It came back",
                "declined": "The other side said no",
                "not_executed": "It did nothing",
            }[entry.state.word]
            told = f"; answered with {entry.reference}" if entry.reference else ""
            text = f"{said} (attempt {entry.attempt}{f', within {entry.within}' if entry.within else ''}){told}"
            tone = "unknown" if entry.state.word == "begun" else ""
            where = f"{entry.target}\n" if "?" in entry.target else ""
            return [
                Line(
                    PAST,
                    f"Call {entry.step}{f' to {whom}' if whom else ''}",
                    text,
                    None,
                    tone,
                    f"{where}key {entry.key}",
                )
            ]
        case Step():
            return [Line(PAST, f"Step {entry.name}", f"done, {size(len(entry.result))} kept")]
        case Asked():
            times = "once" if entry.tries == 1 else f"{entry.tries} times"
            return [
                Line(PAST, f"Asked what became of it, {times}", f"last heard: {entry.said or 'nothing'}", entry.since)
            ]
        case Trace():
            return [Line(PAST, "Traced", f"the request's trace is {entry.trace_id}")]
        case Audit():
            return []  # they stand in the trail, also that of a finished operation


def _audit(line: Audit) -> Line:
    moved = (
        "Asked about again" if line.source == line.target else f"{line.source.word} to {line.target.word}".capitalize()
    )
    return Line(PAST, f"{moved}, by {line.by}", line.why, line.at, line.target.word)


def _here(seen: Seen, found: Kept | None) -> Line:
    record, now = seen
    if record.state in IN_PROGRESS:
        alive = record.lease_until is None or record.lease_until > now
        what = "its effect may be under way" if record.state is State.EXECUTING else "no effect can have left yet"
        said = f"In progress: {what}" if alive else "In progress, but its lease is over"
        return Line(HERE, said, record.note, None, record.state.word)
    if record.state is State.UNKNOWN:
        return Line(HERE, "Unknown: nobody knows whether it happened", record.note, None, record.state.word)
    if record.state is State.FAILED_RETRYABLE:
        return Line(HERE, "Failed without effect: a retry may run", record.note, None, record.state.word)
    if record.state is State.EXPIRED:
        return Line(HERE, "Done, and its answer is gone", record.note, None, record.state.word)
    return Line(HERE, f"Completed: {summary(found)}", record.note, None, record.state.word)


def _coming(seen: Seen) -> list[Line]:
    record, now = seen
    lines = []
    coming = next_of(record, now)
    if is_dead_letter(record):
        lines.append(
            Line(COMING, "Nothing by itself", "It is a dead letter: nobody asks about it until somebody decides")
        )
    elif coming is not None:
        late = coming.left_for <= 0
        said = {
            "lease": (
                "The lease ends, unless it is renewed",
                f"The lease has been over for {brief(coming.left_for)}: the next sweep moves it",
            ),
            "due": (
                "The reconciler asks about it",
                f"Overdue for {brief(coming.left_for)}: a reconciler asks when one runs",
            ),
            "retry": ("A retry is let in", "A retry is let in"),
            "expires": ("It is forgotten", "It has expired, and goes with the next purge"),
        }[coming.what][late]
        lines.append(Line(COMING, said, "", now + coming.left_for))
    if record.expires_at is not None and (coming is None or coming.what != "expires"):
        lines.append(Line(COMING, "It is forgotten", "", record.expires_at))
    return lines


def summary(found: Kept | None) -> str:
    """What is kept of the outcome, without its content."""
    outcome = found.outcome if found is not None else None
    if isinstance(outcome, Answer):
        return f"status {outcome.status}, body of {size(len(outcome.body))}"
    if isinstance(outcome, Tombstone):
        return f"status {outcome.status}, its answer was not kept: {outcome.reason}"
    if isinstance(outcome, Value):
        return f"a value of {size(len(outcome.data))}"
    if found is not None and found.problem:
        return f"{size(found.size)} that cannot be read here: {found.problem}"
    return "nothing is kept"
