"""The page that a store's author works from.

A store keeps records and does each verb atomically. It decides nothing: the rules are core.transitions, and the
conformance suite (oncekey.testing) holds every store to them. Times are the store's own clock, in milliseconds.

Hot verbs take a sequence and answer in its order. One bad item must not fail its neighbours; ids in one call differ.
* `claim`: insert where no record is; otherwise return what stands there (with our own token: somebody else's view of
  our own success). Must be one round trip when nothing stands there, and one when a completed record does.
* `settle`: rows complete, late_truth, not_begun, no_effect, ambiguous of the table: by token and state, whatever the
  lease. A repeat with the same token and target is Done. Everything else is Stale with what stands there.
  If somebody waits for the record (`waited`), its listeners are told. An empty outcome replaces what stands there only
  when the target is COMPLETED: the other ends keep the journal (core.journal).
* `renew`: rows renew and begin: token, lease alive, younger than the cap. An outcome that is not None, the journal, is
  written with it.
Rare verbs take one item.
* `swap`: compare-and-set on version, token and expires_at of the record that was seen, all three: a key that was purged
  and claimed again has another life, whose versions start anew. Done or Stale; Stale(None) where no record is.
  If the old record was waited for, its listeners are told.
* `get`: the record as it stands, and now.
* `put`: for a move from another store: write each of many records whole, where none stands. Done, or Stale with what
  stands there, which is never touched. Open ones are listed, final ones can be purged, like any others.
* `watch`: set `waited` if the record is in progress, in the same write that looks; return what stands there.
* `scan`: a page of the records in the given states, in a stable order, `after` the cursor; with `due_before`
  (milliseconds of the store's clock, negative: relative to now), only those whose lease_until or due_at is not later.
  In-progress, unknown and failed records are found without a scan of all keys. Due unknown records, asked for alone,
  come in the order of their times, the longest due first, and cost what the page has, however many are not due yet.
  What cannot be read is left out and counted (`Page.unreadable`), or raises RecordUnreadable.
  `undated`: unknown records, asked for alone, that have no time at all, at the same cost.
* `purge`: one small batch of FINAL records past expires_at, the condition on the deleting statement itself; several
  processes may run it at once. Completed records past due_at lose their outcome and become EXPIRED.
* `stats`: records by state word, and whatever else is cheap and useful.
* `migrate`: bring the schema to this version; returns what was done, nothing when nothing was to do.
* `check`: look at the server's settings; returns findings. `open` work that hits a missing schema raises SchemaMissing.
* `listen`: call back with the id of each record whose listeners are told, from any thread, until closed. Stores in
  whose processes nothing can be told apart from asking return a listener that asks seldom, and only while it is open.
  MISSED in the place of an id says that news may have been lost with a connection: who waits looks for himself.
Trouble raises StoreUnavailable (before anything was sent, or ambiguous alike): the caller never starts work on it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Literal, NamedTuple, Protocol

from oncekey.core.commands import (
    Claim,
    Claimed,
    Page,
    Purged,
    Renewal,
    Settlement,
    Swap,
    Written,
)
from oncekey.core.record import IN_PROGRESS, Record, Seen, State
from oncekey.errors import ConfigurationError

MISSED = b""


class Finding(NamedTuple):
    """What a start-up check saw: a refusal stops the start, a warning is said aloud, ok is for doctor."""

    level: Literal["ok", "warning", "refusal"]
    what: str
    fix: str = ""


class Wanted(NamedTuple):
    """What a scan asks for. `due_before` is the store's clock, relative to now if it is not above 0."""

    states: tuple[State, ...]
    due_before: int | None = None
    undated: bool = False

    @property
    def queue(self) -> bool:
        """Whether it is the queue of unknown records, by their times."""
        return set(self.states) == {State.UNKNOWN} and (self.due_before is not None or self.undated)

    def due(self, now: int) -> int | None:
        """The instant by which a record must be due; None: any will do."""
        return now + self.due_before if self.due_before is not None and self.due_before <= 0 else self.due_before

    def matches(self, record: Record, now: int) -> bool:
        """Whether a record belongs on the page."""
        at = record.lease_until if record.state in IN_PROGRESS else record.due_at
        due = self.due(now)
        dated = at is None if self.undated else due is None or (at is not None and at <= due)
        return dated and record.state in self.states


def counted(text: str, bits: int = 63) -> int:
    """A number of a cursor, of so many bits; ValueError: no page has given it."""
    if not (text.isascii() and text.isdecimal()) or int(text) >> bits:
        raise ValueError(f"{text[:40]!r} is no number of it")
    return int(text)


def no_cursor() -> ConfigurationError:
    """What to say of an `after` that no page of this listing gave."""
    return ConfigurationError("after= is no cursor of this listing: pass on what the page before it gave")


class Listener(Protocol):
    """A running subscription."""

    def close(self) -> None:
        """Stop calling back."""
        ...


class Store(Protocol):
    """A store as threads see it."""

    url: str

    def claim(self, many: Sequence[Claim]) -> list[Claimed]: ...
    def settle(self, many: Sequence[Settlement]) -> list[Written]: ...
    def renew(self, many: Sequence[Renewal]) -> list[Written]: ...
    def swap(self, swap: Swap) -> Written: ...
    def put(self, many: Sequence[Record]) -> list[Written]: ...
    def get(self, id_: bytes) -> Seen | None: ...
    def watch(self, id_: bytes) -> Seen | None: ...
    def scan(
        self,
        states: Sequence[State],
        *,
        due_before: int | None = None,
        undated: bool = False,
        after: str | None = None,
        limit: int = 100,
    ) -> Page: ...
    def purge(self, limit: int = 500) -> Purged: ...
    def stats(self) -> dict[str, int | str]: ...
    def migrate(self) -> list[str]: ...
    def check(self) -> list[Finding]: ...
    def listen(self, told: Callable[[bytes], None]) -> Listener: ...
    def close(self) -> None: ...


class AsyncStore(Protocol):
    """A store as asyncio sees it: the same verbs, awaited."""

    url: str

    async def claim(self, many: Sequence[Claim]) -> list[Claimed]: ...
    async def settle(self, many: Sequence[Settlement]) -> list[Written]: ...
    async def renew(self, many: Sequence[Renewal]) -> list[Written]: ...
    async def swap(self, swap: Swap) -> Written: ...
    async def put(self, many: Sequence[Record]) -> list[Written]: ...
    async def get(self, id_: bytes) -> Seen | None: ...
    async def watch(self, id_: bytes) -> Seen | None: ...
    async def scan(
        self,
        states: Sequence[State],
        *,
        due_before: int | None = None,
        undated: bool = False,
        after: str | None = None,
        limit: int = 100,
    ) -> Page: ...
    async def purge(self, limit: int = 500) -> Purged: ...
    async def stats(self) -> dict[str, int | str]: ...
    async def migrate(self) -> list[str]: ...
    async def check(self) -> list[Finding]: ...
    async def listen(self, told: Callable[[bytes], None]) -> Listener: ...
    async def close(self) -> None: ...
