"""What a run must have seen to mean anything: operations, faults by kind, and the rare events that faults are for."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from enum import StrEnum

from tests.chaos.history import Attempt, History, Kind, Story

# Words that a janitor, the provider or a worker says, and what they are called here.
SAID = {
    "unknown-done": "unknown reconciled: done",
    "unknown-not-done": "unknown reconciled: not done",
    "effect-refused": "late effect refused after its cancellation",
    "settle_refused": "stale completion refused",
    "lapsed": "lapse swept to unknown",
    "lease_lost": "lease lost",
    "store_error": "store trouble noticed",
    "purged": "records purged",
}
# The target of a fault that has hit a connection.
LINK = "link"
# What a worker answers that has found a record of a version which it does not know.
UNREADABLE = "record-unreadable"
DEADLY = frozenset({"kill at random", "kill at the effect", "kill at the answer"})


def counted(history: History) -> Counter[str]:
    """How often each thing was seen; faults stand under `fault: KIND`."""
    seen: Counter[str] = Counter()
    stories = history.stories()
    seen["operations"] = len(history.calls)
    seen["keys"] = len(stories)
    seen["effects"] = len(history.effects)
    seen.update(f"fault: {fault.kind}" for fault in history.faults)
    seen["faults of processes and stores"] = sum(fault.target != LINK for fault in history.faults)
    seen["faults of connections"] = sum(fault.target == LINK for fault in history.faults)
    seen["newer record refused"] = sum(UNREADABLE in call.detail for call in history.calls)
    seen.update(SAID[word.name] for word in history.words if word.name in SAID)
    killed = {fault.pid: fault.at for fault in history.faults if fault.kind in DEADLY and fault.pid}
    for story in stories.values():
        seen.update(_sometimes(story, killed))
    return seen


def _sometimes(story: Story, killed: dict[int, float]) -> Iterator[str]:
    if any(_take_over_refused(story)):
        yield "take-over refused"
    if any(_late_truths(story)):
        yield "late truth"
    if any(_replays_after_crash(story, killed)):
        yield "replay after crash"
    if any(call.replayed for call in story.finals):
        yield "replay"


def _take_over_refused(story: Story) -> Iterator[bool]:
    """An attempt had begun and had not ended, nobody knew more of it, and a retry was told just that."""
    for call in story.calls:
        if call.kind is Kind.UNKNOWN:
            yield any(attempt.start < call.at and _open_at(attempt, call.until) for attempt in story.attempts)


def _open_at(attempt: Attempt, instant: float) -> bool:
    return attempt.end is None or attempt.end > instant


def _late_truths(story: Story) -> Iterator[bool]:
    """The only attempt was given up as unknown, ended after that, and its own answer is the answer."""
    reconciled = any(word.name.startswith("unknown-") for word in story.words)
    if reconciled or len(story.attempts) != 1:
        return
    for call in story.calls:
        if call.kind is Kind.UNKNOWN:
            yield any(word.name == "completed" and word.at > call.until for word in story.words)


def _replays_after_crash(story: Story, killed: dict[int, float]) -> Iterator[bool]:
    for attempt in story.attempts:
        died = killed.get(attempt.pid)
        yield died is not None and any(call.replayed and call.at > died for call in story.finals)


class End(StrEnum):
    """How an operation ended that was unknown for a while."""

    LATE_TRUTH = "told by its own worker, late"
    DONE = "found at the provider"
    NOT_DONE = "cancelled at the provider, and run again"
    NOT_RUN_AGAIN = "cancelled at the provider, and not asked for again"
    LEFT = "left unknown, and listed"


def unknowns(history: History) -> Counter[str]:
    """Every operation that was unknown for a while, by how it ended."""
    stories = history.stories().values()
    return Counter(end.value for end in (_end(story, history) for story in stories) if end is not None)


def _end(story: Story, history: History) -> End | None:
    words = {word.name for word in story.words}
    if story.operation in history.unsettled:
        return End.LEFT
    if "unknown-done" in words:
        return End.DONE
    if "unknown-not-done" in words:
        return End.NOT_DONE if story.finals else End.NOT_RUN_AGAIN
    was_unknown = "turned_unknown" in words or any(call.kind is Kind.UNKNOWN for call in story.calls)
    return End.LATE_TRUTH if was_unknown else None
