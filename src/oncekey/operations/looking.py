"""To look at operations: the list, one by its reference, one by its key, and what is kept of its answer."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

from oncekey.core.keys import endpoint_of, key_ref, scope_of
from oncekey.core.outcome import Outcome, unpack
from oncekey.core.record import FINAL, IN_PROGRESS, OPEN, Record, Seen, State
from oncekey.engine.sealing import Sealer
from oncekey.errors import ConfigurationError, OnceKeyError, RecordUnreadable
from oncekey.stores.contract import Store, Wanted

# A millisecond ago by the store's own clock: what was due then is due now, and every store reads it as relative.
NOW = -1
# Later than any time that a record has; every store counts so far.
EVER = 1 << 53
PAGE = 500
# What one search looks at before it says how far it came.
LOOKED = 20 * PAGE
ID_DIGITS = 40
LEAST_DIGITS = 6
# Enough to see that a prefix is not unique, without reading all that it fits.
CANDIDATES = 5

# The first bytes of an answer and of a tombstone, see core.outcome.
NEVER_SEALED = (0x10, 0x11)

UNFINISHED = (*OPEN, State.FAILED_RETRYABLE)

# What an operator may ask for, by the public words.
CHOICES: dict[str, tuple[State, ...]] = {
    "open": UNFINISHED,
    "in_progress": IN_PROGRESS,
    "unknown": (State.UNKNOWN,),
    "failed_retryable": (State.FAILED_RETRYABLE,),
    "completed": (State.COMPLETED,),
    "expired": (State.EXPIRED,),
    "all": (*OPEN, *FINAL),
}


def is_dead_letter(record: Record) -> bool:
    """Whether nobody asks about this unknown outcome any more, so that somebody must."""
    return record.state is State.UNKNOWN and record.due_at is None


@dataclass(frozen=True, slots=True)
class Listing:
    """A part of the list; `after` continues it, None ends it. `now` is the store's time."""

    records: list[Record]
    after: str | None
    now: int


class Next(NamedTuple):
    """What time will do to an operation next, and in how many milliseconds; negative: it is overdue by as much."""

    what: Literal["lease", "due", "retry", "expires"]
    left_for: int


@dataclass(frozen=True, slots=True)
class Kept:
    """What is kept of an answer. `problem` says why it cannot be read here, sealed with a key for example."""

    size: int
    outcome: Outcome | None = None
    problem: str = ""


def listing(
    store: Store, state: str = "open", *, due: bool = False, after: str | None = None, limit: int = 50
) -> Listing:
    """Up to `limit` operations in a state of CHOICES; with `due`, those whose lease or waiting time is over."""
    return _paged(store, Wanted(_states(state), NOW if due else None), after, limit)


def queue(store: Store, *, after: str | None = None, limit: int = 50) -> Listing:
    """Unknown outcomes that somebody will ask about, the longest due first, up to `limit`."""
    return _paged(store, Wanted((State.UNKNOWN,), EVER), after, limit)


def dead_letters(store: Store, *, after: str | None = None, limit: int = 50) -> Listing:
    """Unknown outcomes that nobody asks about any more, up to `limit`; `note` says why each was given up."""
    return _paged(store, Wanted((State.UNKNOWN,), undated=True), after, limit)


def _paged(store: Store, wanted: Wanted, after: str | None, limit: int) -> Listing:
    """A page may have fewer than were asked for, or none, and not be the last: then the next is taken as well."""
    states, due, undated = wanted
    records: list[Record] = []
    while True:
        page = store.scan(states, due_before=due, undated=undated, after=after, limit=limit - len(records))
        records += page.records
        after = page.after
        if after is None or len(records) >= limit:
            return Listing(records, after, page.now)


def search(
    store: Store, text: str, state: str = "open", *, after: str | None = None, limit: int = 50, most: int = LOOKED
) -> Listing:
    """Operations whose id begins with a text, whose key it is, or whose endpoint, note or scope has it within.

    No store has an index for that: at most `most` records are looked at, and `after` goes on behind them.
    """
    fits = _fitting(text)
    found: dict[bytes, Record] = {}
    looked = 0
    while True:
        page = store.scan(_states(state), after=after, limit=PAGE)
        # A walk over all records may meet one twice.
        found |= {record.id: record for record in page.records if fits(record)}
        after, looked = page.after, looked + PAGE
        if after is None or len(found) >= limit or looked >= most:
            return Listing(list(found.values()), after, page.now)


def _fitting(text: str) -> Callable[[Record], bool]:
    text = text.strip()
    if not text:
        raise ConfigurationError("there is nothing to look for: write a ref, a key, or a part of an endpoint or a note")
    word, digits = text.casefold(), text.lower().removeprefix("ok_")

    def fits(record: Record) -> bool:
        scope, endpoint, key = record.label
        within = any(word in part.casefold() for part in (endpoint, record.note, scope))
        return within or text == key or (len(digits) >= LEAST_DIGITS and record.id.hex().startswith(digits))

    return fits


def _states(word: str) -> tuple[State, ...]:
    if word not in CHOICES:
        raise ConfigurationError(f"state {word!r} is not known: write one of {', '.join(CHOICES)}")
    return CHOICES[word]


def id_of(key: str, caller: str, endpoint: str = "") -> bytes:
    """The id of the operation that a caller's key names, exactly as a request makes it. `endpoint`: "POST /orders"."""
    if endpoint:
        method, _, path = endpoint.strip().partition(" ")
        if not path.strip().startswith("/"):
            raise ConfigurationError(f"endpoint {endpoint!r} is not a method and a path: write 'POST /orders'")
        endpoint = endpoint_of(method.upper(), path.strip())
    hasher, _ = scope_of(caller, endpoint)
    return hasher.record_id(key)


def find(store: Store, reference: str, *, finished: bool = False) -> list[Seen]:
    """The operations that a reference means: a whole id, a unique beginning of one, or the ok_... of logs.

    A beginning is looked for among unfinished operations, and with `finished` among all: that reads every record.
    """
    digits = reference.strip().lower().removeprefix("ok_")
    if not re.fullmatch(rf"[0-9a-f]{{{LEAST_DIGITS},{ID_DIGITS}}}", digits):
        raise ConfigurationError(
            f"{reference!r} names no operation: write its id of {ID_DIGITS} hexadecimal digits, at least the first "
            f"{LEAST_DIGITS} of them, or its ok_... from a log"
        )
    if len(digits) == ID_DIGITS:
        seen = store.get(bytes.fromhex(digits))
        return [seen] if seen is not None else []
    found: dict[bytes, Seen] = {}
    for seen in _all(store, CHOICES["all"] if finished else UNFINISHED):
        if seen.record.id.hex().startswith(digits):
            # A walk over all records may meet one twice.
            found[seen.record.id] = seen
            if len(found) == CANDIDATES:
                break
    return list(found.values())


def _all(store: Store, states: tuple[State, ...]) -> Iterator[Seen]:
    after = None
    while True:
        page = store.scan(states, after=after, limit=PAGE)
        yield from (Seen(record, page.now) for record in page.records)
        after = page.after
        if after is None:
            return


def next_of(record: Record, now: int) -> Next | None:
    """What time does next to this record; None where no time is set, so that only somebody can move it."""
    if record.state in IN_PROGRESS:
        return Next("lease", record.lease_until - now) if record.lease_until is not None else None
    if record.state is State.UNKNOWN:
        return Next("due", record.due_at - now) if record.due_at is not None else None
    if record.state is State.FAILED_RETRYABLE and record.due_at is not None and record.due_at > now:
        return Next("retry", record.due_at - now)
    return Next("expires", record.expires_at - now) if record.expires_at is not None else None


def kept(record: Record, sealer: Sealer | None = None) -> Kept | None:
    """What is kept of the answer; None while there is none. `sealer` has the ring that sealed it, if one did."""
    if not record.outcome:
        return None
    size = len(record.outcome)
    try:
        return Kept(size, _unsealed(record, sealer or Sealer()))
    except OnceKeyError as trouble:
        return Kept(size, problem=str(trouble))


def _unsealed(record: Record, sealer: Sealer) -> Outcome:
    try:
        return unpack(sealer.open(record.id, record.outcome))
    except RecordUnreadable:
        # A store may hold outcomes that were never given to a sealer. Only these two begin like sealed ones that are
        # not encrypted, and neither can be read as the other.
        if record.outcome[0] not in NEVER_SEALED:
            raise
        return unpack(record.outcome)


def described(record: Record, now: int, *, keys: bool = False) -> dict[str, Any]:
    """One operation as fields for machines: the same in the command line's JSON and in the console. See docs/cli.md."""
    coming = next_of(record, now)
    fields: dict[str, Any] = {
        "id": record.id.hex(),
        "ref": key_ref(record.id),
        "state": record.state.word,
        "phase": record.state.name.lower() if record.state in IN_PROGRESS else None,
        "endpoint": record.label.endpoint,
        "scope": record.label.scope,
        "guarantee": record.guarantee.name.lower(),
        "attempts": record.attempts,
        "version": record.version,
        "claimed_at": record.claimed_at,
        "lease_until": record.lease_until,
        "due_at": record.due_at,
        "expires_at": record.expires_at,
        "now": now,
        "next": coming.what if coming else None,
        "left_for": coming.left_for if coming else None,
        "dead_letter": is_dead_letter(record),
        "waited": record.waited,
        "note": record.note,
    }
    if keys:
        fields["key"] = record.label.key
    return fields
