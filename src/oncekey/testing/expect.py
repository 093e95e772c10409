"""How a scenario says what it expects. Not bare asserts: these speak without pytest, and hold under `python -O`."""

from __future__ import annotations

from typing import TypeVar

from oncekey.core.commands import Claimed, Done, Stale, Won, Written
from oncekey.core.record import NO_LABEL, Record, Seen, State, replace

T = TypeVar("T")


class RuleBroken(AssertionError):
    """The store did what the table forbids, or not what it demands. The message says which rule, and what was seen."""


def expect(found: object, wanted: object, rule: str) -> None:
    """Both must be equal."""
    if found != wanted:
        raise RuleBroken(f"{rule}: expected {_shown(wanted)}, found {_shown(found)}")


def holds(condition: bool, rule: str, found: object = "") -> None:  # noqa: FBT001 - the condition is the subject
    """The condition must be true; `found` is shown when it is not."""
    if not condition:
        raise RuleBroken(f"{rule}: found {_shown(found)}" if found != "" else rule)


def is_a(kind: type[T], found: object, rule: str) -> T:
    """Give back what was found if it is of this type."""
    if not isinstance(found, kind):
        raise RuleBroken(f"{rule}: expected {kind.__name__}, found {_shown(found)}")
    return found


def won(claimed: Claimed, rule: str = "a free key is granted") -> int:
    """Return how much of the lease is left."""
    return is_a(Won, claimed, rule).left_for


def stands(claimed: Claimed | None, rule: str = "what stands there is returned") -> Record:
    """Return the record that a read, or a claim that lost, shows."""
    return is_a(Seen, claimed, rule).record


def done(written: Written, rule: str) -> None:
    """The write must have happened, now or before."""
    is_a(Done, written, rule)


def stale(written: Written, rule: str) -> Record | None:
    """The write must have been refused; return what the store says stands there."""
    found = is_a(Stale, written, rule).found
    return found.record if found is not None else None


def remembered(record: Record) -> Record:
    """A record without what its store may forget once it has ended: label, claimed_at, and part of the token."""
    if record.state not in (State.COMPLETED, State.EXPIRED):
        return record
    return replace(record, label=NO_LABEL, claimed_at=0, token=b"")


def _shown(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 600 else f"{text[:300]} ... {text[-200:]}"


__all__ = ["RuleBroken", "done", "expect", "holds", "is_a", "remembered", "stale", "stands", "won"]
