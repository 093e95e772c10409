"""To move records from one store to another, and to be sure that all of them have arrived.

A pass walks over the whole source, a small page at a time, and has every record put where the target has none; the
target shows what stands there otherwise. So each pass copies what is missing, brings what has changed since the last
one, and compares the rest. The copy is proved by a pass that found nothing to do, and by two digests of what it saw on
either side. To go on after an interruption is to begin again: what has arrived is only compared.

No key becomes executable by this. A record whose lease is alive stands in the target as one that nobody may take over,
until it has ended in the source. What the target has made of a key by itself is never replaced by something looser.
"""

from __future__ import annotations

import hashlib
import logging
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import NamedTuple, Protocol

from oncekey.core.commands import Done, Stale, Swap, Written
from oncekey.core.keys import key_ref
from oncekey.core.record import IN_PROGRESS, NO_LABEL, Guarantee, Record, Seen, State, encode, replace
from oncekey.core.transitions import TABLE, Facts, lapse_row, refusal
from oncekey.errors import ConfigurationError, RecordUnreadable
from oncekey.operations.address import masked
from oncekey.operations.changing import Signature
from oncekey.operations.cleaning import BATCH, LONGEST_REST
from oncekey.operations.looking import CHOICES
from oncekey.stores.contract import Store

log = logging.getLogger("oncekey.audit")

# The first brings all, the second what has changed meanwhile; the others are for sources that do not rest.
PASSES = 5
# By how many milliseconds the clocks of two stores may differ: leases and expiries would move by as much.
SKEW = 1000
# How many of the records that were left alone are named.
NAMED = 10
KEPT_TOKEN = 8
SUM = 1 << 256
# What keeps a key shut: to write it can never let anything run.
SHUT = (State.COMPLETED, State.EXPIRED, State.UNKNOWN)


class Source(Protocol):
    """What is copied: pages of records, each with the time at which its records stood so; from the start each time."""

    def pages(self, limit: int) -> Iterator[list[Seen]]:
        """All records, in small pages."""
        ...


class Walk(NamedTuple):
    """All records of a store."""

    store: Store

    def pages(self, limit: int) -> Iterator[list[Seen]]:
        """In the store's own order. One that cannot be read would be absent from the copy: refused."""
        after = None
        _refuse(self.store.stats().get("unreadable", 0))
        while True:
            page = self.store.scan(CHOICES["all"], after=after, limit=limit)
            _refuse(page.unreadable)
            yield [Seen(record, page.now) for record in page.records]
            after = page.after
            if after is None:
                return


def _refuse(unreadable: int | str) -> None:
    if unreadable:
        raise RecordUnreadable(
            f"{unreadable} records of the source cannot be read by this version, and without them their keys would run "
            f"again: use the version that wrote them, or look at what the log says of them"
        )


@dataclass(slots=True)
class Pass:
    """What one walk over the source came to. `running` had a living lease; `expired` are not worth a copy."""

    looked: int = 0
    copied: int = 0
    brought: int = 0
    same: int = 0
    expired: int = 0
    moved_on: int = 0
    running: int = 0
    states: dict[str, int] = field(default_factory=dict)
    left: int = 0
    left_alone: list[str] = field(default_factory=list)
    sum_source: int = 0
    sum_target: int = 0

    @property
    def idle(self) -> bool:
        """Whether all that the source has stood in the target already."""
        return not (self.copied or self.brought or self.moved_on or self.left)


@dataclass(frozen=True, slots=True)
class CopyReport:
    """What a copy came to: the sums over all passes, and the last pass as the proof."""

    passes: int
    copied: int
    brought: int
    last: Pass
    stopped: bool = False
    rehearsed: bool = False

    @property
    def identical(self) -> bool:
        """Whether the last pass found every record of the source in the target, as it is in the source."""
        return self.last.idle and self.last.sum_source == self.last.sum_target and not self.stopped

    @property
    def settled(self) -> bool:
        """Whether the target may take over: it is identical, and nobody is at work in the source."""
        return self.identical and not self.last.running


def digest(total: int) -> str:
    """The digest of a set of records, whatever their order."""
    return f"{total:064x}"


def is_running(record: Record, now: int) -> bool:
    """Whether its lease is alive, so that its owner may still act."""
    return record.state in IN_PROGRESS and (record.lease_until is None or record.lease_until > now)


def shielded(seen: Seen) -> Record:
    """A record as it is moved. While its lease is alive its owner may still act: nobody takes it over."""
    record, now = seen
    if is_running(record, now):
        record = replace(record, state=State.EXECUTING, guarantee=Guarantee.AT_MOST_ONCE)
    return replace(record, waited=False)


def canonical(record: Record) -> bytes:
    """What every store keeps of a record, and what decides: all but texts for people, and what small records forget."""
    plain = replace(record, label=NO_LABEL, note="", waited=False, attempts=min(record.attempts, 0xFFFF))
    if record.state in (State.COMPLETED, State.EXPIRED):
        plain = replace(plain, token=record.token[:KEPT_TOKEN], claimed_at=0, lease_until=None)
    return record.id + encode(plain)


def may_replace(found: Seen, new: Record, given: bytes = b"") -> bool:
    """Whether what stands in the target may become this newer record: never to let more run than before.

    `given` is the token of the attempt that this copy brought to the target while it was running.
    """
    old, now = found
    if refusal(TABLE["claim_expired"], old, Facts(now)) is None:
        return True
    if new.fingerprint != old.fingerprint or new.version <= old.version:
        return False
    if old.state in (State.COMPLETED, State.EXPIRED):
        return new.state in (State.COMPLETED, State.EXPIRED)
    # The target may have claimed it by itself. How another attempt of the source has ended says nothing of that one.
    theirs = old.token in (given, new.token) if old.token else False
    same = theirs or (not new.token and old.claimed_at == new.claimed_at)
    return new.state in SHUT or same or _is_open(old, now)


def _is_open(record: Record, now: int) -> bool:
    """Whether it may be run again, now or after a look at it."""
    if record.state in IN_PROGRESS:
        row = TABLE[lapse_row(record)]
        return row.target is State.FAILED_RETRYABLE and refusal(row, record, Facts(now)) is None
    return record.state is State.FAILED_RETRYABLE


def copy(
    source: Source,
    target: Store,
    signature: Signature,
    *,
    rehearse: bool = False,
    stop: Callable[[], bool] = lambda: False,
    progress: Callable[[int], None] = lambda looked: None,
    rest: Callable[[float], None] = time.sleep,
) -> CopyReport:
    """Pass after pass, until one finds nothing to do. Both stores may be in use; see `CopyReport.settled`."""
    by, why = signature.checked()
    moving = _Moving(source, target, rehearse, stop, progress, rest)
    copied = brought = number = 0
    while True:
        number += 1
        last = moving.walk()
        copied, brought = copied + last.copied, brought + last.brought
        if last.idle or rehearse or stop() or number == PASSES:
            break
        if not (last.copied or last.brought or last.moved_on):
            break  # what is left alone will be left alone again
    if (copied or brought) and not rehearse:
        log.info(
            "%s records were copied to %s, and %s replaced, by %s: %s", copied, masked(target.url), brought, by, why
        )
    return CopyReport(number, copied, brought, last, stop(), rehearse)


@dataclass(slots=True)
class _Moving:
    source: Source
    target: Store
    rehearse: bool
    stop: Callable[[], bool]
    progress: Callable[[int], None]
    rest: Callable[[float], None]
    # Of records that were brought while they were running: their owners' tokens.
    given: dict[bytes, bytes] = field(default_factory=dict)

    def walk(self) -> Pass:
        """One pass."""
        done = Pass()
        now = self.target.scan((State.UNKNOWN,), limit=1).now
        for page in self.source.pages(BATCH):
            began = time.monotonic()
            self.page(page, now, done)
            done.looked += len(page)
            self.progress(done.looked)
            if self.stop():
                break
            self.rest(min(time.monotonic() - began, LONGEST_REST))
        return done

    def page(self, page: list[Seen], now: int, done: Pass) -> None:
        wanted = {}
        for seen in page:
            if refusal(TABLE["claim_expired"], seen.record, Facts(max(now, seen.now))) is None:
                done.expired += 1
                continue
            new = shielded(seen)
            done.running += is_running(new, seen.now)
            wanted[new.id] = new
        records = list(wanted.values())
        for new, written in zip(records, self.put(records), strict=True):
            mark = _sum(new)
            done.states[new.state.word] = done.states.get(new.state.word, 0) + 1
            done.sum_source = (done.sum_source + mark) % SUM
            stands = self.compared(new, written, done)
            done.sum_target = (done.sum_target + (mark if stands is None else _sum(stands))) % SUM

    def put(self, records: list[Record]) -> list[Written]:
        if not self.rehearse:
            return self.target.put(records) if records else []
        return [Stale(self.target.get(record.id)) for record in records]

    def brought(self, new: Record) -> None:
        if new.state in IN_PROGRESS:
            self.given[new.id] = new.token
        else:
            self.given.pop(new.id, None)

    def compared(self, new: Record, written: Written, done: Pass) -> Record | None:
        """Count one record; returns what stands in the target, where that is not the record itself."""
        if isinstance(written, Done) or written.found is None:
            done.copied += 1
            self.brought(new)
            return None
        found = written.found
        if canonical(found.record) == canonical(new):
            done.same += 1
            return found.record
        if not may_replace(found, new, self.given.get(new.id, b"")):
            done.left += 1
            if done.left <= NAMED:
                done.left_alone.append(key_ref(new.id))
            return found.record
        if self.rehearse or isinstance(self.target.swap(Swap(found.record, new)), Done):
            done.brought += 1
            self.brought(new)
            return None
        done.moved_on += 1
        return found.record


def _sum(record: Record) -> int:
    return int.from_bytes(hashlib.sha256(canonical(record)).digest(), "big")


def check_clocks(source: Store, target: Store) -> None:
    """Refuse two stores whose clocks differ: what is kept are instants."""
    for store in (source, target):
        store.scan((State.UNKNOWN,), limit=1)  # the first call pays for the connection
    began = time.monotonic()
    ahead = target.scan((State.UNKNOWN,), limit=1).now - source.scan((State.UNKNOWN,), limit=1).now
    margin = round((time.monotonic() - began) * 1000)
    if abs(ahead) - margin > SKEW:
        raise ConfigurationError(
            f"the target's clock is {abs(ahead) / 1000:.1f} s {'ahead of' if ahead > 0 else 'behind'} the source's: "
            f"leases and expiries would move by as much: set both by NTP first"
        )
