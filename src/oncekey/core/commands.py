"""The few atomic things that the rules ask of a store, and what comes back.

Durations are whole milliseconds. The hot verbs (claim, settle, renew) are sent in batches; each command in a batch has
its own result at the same place.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple, Protocol, TypeVar

from oncekey.core.record import NO_LABEL, Guarantee, Label, Record, Seen, State

R = TypeVar("R", covariant=True)


class Performer(Protocol[R]):
    """Whoever carries out single commands: R is the answer under threads, an awaitable of it under asyncio."""

    def look(self, command: Look) -> R: ...
    def claim(self, command: Claim) -> R: ...
    def settle(self, command: Settlement) -> R: ...
    def renew(self, command: Renewal) -> R: ...
    def swap(self, command: Swap) -> R: ...


class Claim(NamedTuple):
    """Take a key if no record exists for it. Own token found: that is a success, our first try's reply was lost."""

    id: bytes
    token: bytes
    fingerprint: bytes
    lease_for: int
    state: State = State.EXECUTING
    guarantee: Guarantee = Guarantee.AT_MOST_ONCE
    label: Label = NO_LABEL

    def on(self, performer: Performer[R]) -> R:
        """Have it done."""
        return performer.claim(self)


class Look(NamedTuple):
    """Only look: for a request that is too old to be run as new."""

    id: bytes

    def on(self, performer: Performer[R]) -> R:
        """Have it done."""
        return performer.look(self)


class Won(NamedTuple):
    """The claim was granted; `left_for` of its lease remained when the store answered."""

    left_for: int


class Settlement(NamedTuple):
    """Record how the work ended: target COMPLETED, FAILED_RETRYABLE or UNKNOWN. Guarded by the token.

    COMPLETED replaces what stands in `outcome`. The other two leave the journal there, unless they bring a newer one.
    """

    id: bytes
    token: bytes
    target: State
    outcome: bytes = b""
    keep_for: int | None = None
    due_for: int | None = None
    note: str = ""

    def on(self, performer: Performer[R]) -> R:
        """Have it done."""
        return performer.settle(self)


class Renewal(NamedTuple):
    """Prolong a living lease; in the same write set the latch (`begin`: claimed to executing) and keep a journal.

    `outcome` is the whole journal so far, sealed like an outcome (core.journal); None leaves what stands there.
    """

    id: bytes
    token: bytes
    lease_for: int
    cap_for: int
    begin: bool = False
    outcome: bytes | None = None

    def on(self, performer: Performer[R]) -> R:
        """Have it done."""
        return performer.renew(self)


@dataclass(slots=True, frozen=True)
class Done:
    """The write happened, or had happened before with the same token."""


@dataclass(slots=True, frozen=True)
class Stale:
    """The guard refused the write; `found` is what stands there now (None: nothing)."""

    found: Seen | None


class Swap(NamedTuple):
    """Replace a record by `new` if it is still the one that was seen; all rarer transitions come this way.

    `new` carries the next version. Its relative times are already worked out from the `now` that came with the record:
    every guard that the flow checked (lease over, not before, past expiry) stays true while what was seen stands. It
    stands while version, token and expires_at do. Versions start again when a key was purged, and one token that was
    cleared is like another; but what had to expire before the purge never ends at the instant of what came after it.
    """

    seen: Record
    new: Record

    @property
    def id(self) -> bytes:
        """Whose record it is."""
        return self.seen.id

    def on(self, performer: Performer[R]) -> R:
        """Have it done."""
        return performer.swap(self)


class Page(NamedTuple):
    """A page of a listing; `after` continues it, None ends it. `unreadable` records were met and left out."""

    records: list[Record]
    after: str | None
    now: int
    unreadable: int = 0


class Purged(NamedTuple):
    """What one small batch of a purge did; `more` says whether another batch is worth asking for."""

    deleted: int
    more: bool


DONE = Done()
Claimed = Won | Seen
Written = Done | Stale
