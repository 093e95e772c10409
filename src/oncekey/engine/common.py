"""What both front doors share: events by decision, release of unused claims, the keeper's writer."""

from __future__ import annotations

import inspect
import time
from typing import TYPE_CHECKING

from oncekey.core.commands import Done, Settlement, Won
from oncekey.core.decision import Decision, Execute, InProgress, Mismatch, Refused, Replay, Unknown
from oncekey.core.keys import SHADOW
from oncekey.core.record import IN_PROGRESS, State
from oncekey.engine import events
from oncekey.engine.keeper import Writer
from oncekey.errors import ConfigurationError, LeaseLost, RecordForged, RecordUnreadable, StoreUnavailable
from oncekey.stores.memory import AsyncMemoryStore, MemoryStore
from oncekey.stores.open import open_store

if TYPE_CHECKING:
    from collections.abc import Callable

    from oncekey.core.commands import Claim, Claimed, Swap, Written
    from oncekey.core.record import Label, Record, Seen
    from oncekey.engine.attempt import Attempt
    from oncekey.engine.events import Events
    from oncekey.engine.keeper import Keeper
    from oncekey.errors import OnceKeyError
    from oncekey.stores.contract import AsyncStore, Store

SAID: dict[type[Decision], str] = {
    Replay: events.REPLAYED,
    InProgress: events.IN_PROGRESS,
    Mismatch: events.KEY_MISUSE,
    Unknown: events.UNKNOWN,
    Refused: events.REFUSED,
}

# One of these is told for each decision.
DECISIONS = frozenset((events.CREATED, events.RETRIED, *SAID.values()))


def say(said: Events, decision: Decision, claim: Claim, began: float = 0.0) -> None:
    """One event per decision. Without a beginning nobody knows how long it took: it was held in between."""
    label, took_for = claim.label, time.monotonic() - began if began else None
    said.say(name_of(decision), claim.id, scope=label.scope, endpoint=label.endpoint, took_for=took_for)


def say_recalled(said: Events, id_: bytes, label: Label) -> None:
    """One event for an answer that was given again from memory: nothing was decided, and it took no time."""
    if said.sinks:
        said.say(events.REPLAYED, id_, scope=label.scope, endpoint=label.endpoint)


def say_settled(said: Events, attempt: Attempt, settlement: Settlement, began: float) -> None:
    """One event per settlement, with how long the work ran before it."""
    took_for, ran_for = time.monotonic() - began, began - attempt.entered if attempt.entered else None
    said.say(events.ENDED[settlement.target], attempt.id, settlement.note, took_for=took_for, ran_for=ran_for)


def name_of(decision: Decision) -> str:
    """The event that a decision is."""
    if isinstance(decision, Execute):
        return events.CREATED if decision.attempt == 1 else events.RETRIED
    return SAID[type(decision)]


def swapped(said: Events, swap: Swap, written: Written) -> Written:
    """Tell of a lease that a request found to be over, as a sweep does."""
    if said.sinks and isinstance(written, Done) and swap.seen.state in IN_PROGRESS and swap.new.state in events.ENDED:
        tell_lapsed(said, swap.new)
    return written


def tell_lapsed(said: Events, record: Record) -> None:
    """Say that a lease has ended while its work was running, and what that means; not of a shadow's (http.shadow)."""
    if record.label.endpoint.startswith(SHADOW):
        return
    where = events.More(scope=record.label.scope, endpoint=record.label.endpoint)
    said.say(events.LAPSED, record.id, record.note, **where)
    said.say(events.ENDED[record.state], record.id, record.note, **where)


def release(claim: Claim) -> Settlement:
    """Give back a claim whose work was never started: true, so it may be declared without effect."""
    note = "the request went away before its work began"
    return Settlement(claim.id, claim.token, State.FAILED_RETRYABLE, keep_for=86_400_000, note=note)


def give_back(keeper: Keeper, claim: Claim, error: OnceKeyError) -> None:
    """What earlier attempts have left in the record cannot be read: if the claim was granted, nothing is run on it."""
    if isinstance(error, RecordUnreadable | RecordForged):
        keeper.owe(release(claim), quiet=True)


def lost(attempt: Attempt) -> LeaseLost:
    """The store refused a write of the owner's: note it, and say that nothing more may be done."""
    attempt.lose("the store no longer knows this lease")
    return LeaseLost("the lease is over: whatever has not begun may not begin any more")


def check_colour(store: object, *, awaited: bool) -> None:
    """Refuse what is no store, and a store of the other colour: its claims would be made and never be seen."""
    claim = getattr(store, "claim", None)
    if not callable(claim):
        raise ConfigurationError(f"store={store!r} is no store: write its URL, such as 'sqlite:///oncekey.db'")
    if inspect.iscoroutinefunction(claim) is not awaited:
        mine, other = ("asyncio", "threads") if awaited else ("threads", "asyncio")
        raise ConfigurationError(
            f"this store is for {other} and the engine for {mine}: write its URL to get the right one"
        )


def clock_of(store: Store | AsyncStore) -> Callable[[], float]:
    """Seconds for what a worker remembers: the monotonic clock, or that of a store which lives in memory too."""
    inner = store.sync if isinstance(store, AsyncMemoryStore) else store
    # Of others only what their class says: one that passes names on to something else has no clock of its own.
    clock = inner.clock if isinstance(inner, MemoryStore) else getattr(type(inner), "clock", None)
    return (lambda: clock() / 1000) if clock is not None else time.monotonic


def check_not_released(keeper: Keeper, claim: Claim) -> None:
    """Refuse a claim that is being given back: its work would run while the key is free for others."""
    if keeper.owes(claim.token):
        raise StoreUnavailable("this claim failed before and is being given back: make a new one, with a new token")


def seen(answer: Claimed) -> bool:
    """Whether all who claim a record may be told this. Its winner is one alone."""
    return not isinstance(answer, Won)


def orphaned(keeper: Keeper) -> Callable[[Claim, Claimed], None]:
    """What to do with the answer to a claim whose caller is gone."""

    def give_back(claim: Claim, answer: Claimed) -> None:
        # A repeated call finds its own first success.
        if isinstance(answer, Won) or answer.record.token == claim.token:
            keeper.owe(release(claim), quiet=True)

    return give_back


def open_writer(url: str, store_for: float) -> Writer:
    """The keeper's own connection to the store, under threads."""
    store = open_store(url, store_for=store_for)
    return Writer(store.renew, store.settle, store.close)


def pause(seen: Seen | None, left: float) -> float | None:
    """How long to wait for news of this record; None: look at once."""
    if seen is None:
        return None
    record, now = seen
    if record.state in IN_PROGRESS:
        until = record.lease_until
        if until is None:
            return left  # no deadline: only news can end it
    elif record.state is State.FAILED_RETRYABLE:
        until = record.due_at
    else:
        return None
    if until is None or until <= now:
        return None
    # A little past the lease's end, so that the next look finds it over.
    return min(left, (until - now) / 1000 + 0.01)
