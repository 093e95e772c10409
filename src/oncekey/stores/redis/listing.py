"""Lists of records: which are open, which answers have an end, and walks over all of them. Pure, as the plan.

Four sorted sets hold the keys of the records that somebody must find again, under the instant that matters:

    in_progress   end of the lease          unknown   when to ask          failed   when the server deletes the record
    dated         end of the answer, where the key is kept longer than the answer

The scripts keep them in step with the records. What the server deletes after its time, a failed record or one whose
answer has ended, stays listed until a purge, even if its key is claimed again meanwhile.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Generator, Iterable, Iterator, Sequence
from typing import Any, NamedTuple, TypeVar

from oncekey.core.commands import Page, Purged, Swap
from oncekey.core.record import FINAL, IN_PROGRESS, Record, Seen, State, replace
from oncekey.errors import StoreError
from oncekey.stores.contract import Wanted, counted, no_cursor
from oncekey.stores.redis import commands, layout
from oncekey.stores.redis.commands import Argument, Command, call, plain
from oncekey.stores.redis.trouble import sound

T = TypeVar("T")
Steps = Generator[list[Command], list[Any], T]

log = logging.getLogger("oncekey.stores.redis")

# What SCAN may look at for one page before it answers with what it has: a listing must not hold up the server.
SCANS = 200
# The due times of what is wanted are instants by the time that a record is looked at: nothing is relative any more.
NOW = 0
# A score as Redis writes it, and as it takes it.
SCORE = re.compile(r"[+-]?(inf|[0-9]+(\.[0-9]+)?(e[+-]?[0-9]+)?)")
# The numbers of the sets, as the scripts count them; 0 is none.
NO_SET, IN_PROGRESS_SET, UNKNOWN_SET, FAILED_SET, DATED_SET = range(5)
OTHER_SETS = {State.UNKNOWN: UNKNOWN_SET, State.FAILED_RETRYABLE: FAILED_SET}
LISTED = frozenset((*IN_PROGRESS, *OTHER_SETS))
# The states that belong in each set, in the order of the numbers.
BELONGING = (IN_PROGRESS, (State.UNKNOWN,), (State.FAILED_RETRYABLE,), (State.COMPLETED,))


class Keys:
    """The names that a prefix gives. All carry the prefix as their hash tag, so that one script may touch them all."""

    def __init__(self, prefix: str) -> None:
        tag = b"{%s}" % prefix.encode()
        self.record = tag + b":"
        self.in_progress, self.unknown = tag + b"#in_progress", tag + b"#unknown"
        self.failed, self.dated = tag + b"#failed", tag + b"#dated"
        self.channel = tag + b"#told"
        self.sets = (self.in_progress, self.unknown, self.failed, self.dated)


class Place(NamedTuple):
    """In which set a record is listed (its number among the sets, from 1; 0: none), and under which instant."""

    number: int
    score: int | str


def place(record: Record) -> Place:
    """Where a record belongs."""
    if record.state in IN_PROGRESS:
        return Place(IN_PROGRESS_SET, record.lease_until or "+inf")
    if record.state is State.UNKNOWN:
        return Place(UNKNOWN_SET, record.due_at or "+inf")
    if record.state is State.FAILED_RETRYABLE:
        return Place(FAILED_SET, record.expires_at or "+inf")
    if record.state is State.COMPLETED and record.due_at is not None:
        return Place(DATED_SET, record.due_at)
    return Place(NO_SET, 0)


def swapping(keys: Keys, swap: Swap) -> Command:
    """The command for a swap."""
    seen: list[Argument] = [swap.seen.version, layout.whole_token(swap.seen.token), swap.seen.expires_at or 0]
    what: list[Argument] = [keys.channel, *seen, *_lying(swap.new)]
    return call(commands.SWAP, [*keys.sets, keys.record + swap.id], what)


def putting(keys: Keys, many: Sequence[Record]) -> Command:
    """The command to write records where none stands."""
    what = [word for record in many for word in _lying(record)]
    return call(commands.PUT, [*keys.sets, *[keys.record + record.id for record in many]], what)


def _lying(record: Record) -> list[Argument]:
    """Its bytes, when the server deletes it, its set and its score there."""
    number, score = place(record)
    # What is open must never be deleted by the server, whatever its record says.
    expires_at = (record.expires_at or 0) if record.state in FINAL else 0
    return [layout.encode(record), expires_at, number, score]


def forgetting(keys: Keys, set_: int, records: Sequence[bytes]) -> Command:
    """The command to take keys off a set, by its number, where no record stands that belongs in it."""
    return call(commands.FORGET, [keys.sets[set_ - 1], *records], [bytes(BELONGING[set_ - 1])])


def scan(keys: Keys, wanted: Wanted, after: str | None, limit: int) -> Steps[Page]:
    """A page: by the sets if only open and failed records are asked for, else by a SCAN of all keys."""
    [time] = yield [plain("TIME")]
    now = milliseconds(sound(time))
    wanted = wanted._replace(due_before=wanted.due(now))
    walk = _by_sets if LISTED.issuperset(wanted.states) else _by_all_keys
    try:
        records, after, unreadable = yield from walk(keys, wanted, after, limit)
    except (ValueError, KeyError) as wrong:
        raise no_cursor() from wrong
    return Page(records, after, now, unreadable)


# The records, the cursor, and how many cannot be read.
Walked = tuple[list[Record], str | None, int]


class Spot(NamedTuple):
    """How far a walk over the sets has come: the set, and the last entry seen in it."""

    number: int
    score: str
    key: bytes

    def __str__(self) -> str:
        return f"{self.number}:{self.score}:{self.key.hex()}"

    @classmethod
    def read(cls, after: str) -> Spot:
        number, score, key = after.split(":")
        if not SCORE.fullmatch(score):
            raise ValueError(f"{score[:40]!r} is no score of it")
        return cls(int(number), score, bytes.fromhex(key))

    def is_before(self, entry: Spot) -> bool:
        """Whether an entry of the same set comes after this one, in the order of Redis."""
        return (float(self.score), self.key) < (float(entry.score), entry.key)


def _by_sets(keys: Keys, wanted: Wanted, after: str | None, limit: int) -> Steps[Walked]:
    spot = Spot.read(after) if after else None
    found: list[tuple[Record, Spot]] = []
    for number in _numbers(wanted.states):
        if spot is None or spot.number < number:
            # What has no time stands at the end of its set.
            spot = Spot(number, "+inf" if wanted.undated and number != FAILED_SET else "-inf", b"")
        if spot.number > number:
            continue
        more = yield from _by_set(keys, wanted, spot, limit + 1 - len(found))
        found += more
        if len(found) > limit:
            return [record for record, _ in found[:limit]], str(found[limit - 1][1]), 0
    return [record for record, _ in found], None, 0


def _numbers(states: Iterable[State]) -> list[int]:
    return sorted({IN_PROGRESS_SET if state in IN_PROGRESS else OTHER_SETS[state] for state in states})


def _by_set(keys: Keys, wanted: Wanted, spot: Spot, count: int) -> Steps[list[tuple[Record, Spot]]]:
    """Up to `count` matching records of one set, behind `spot`."""
    set_ = keys.sets[spot.number - 1]
    # Failed records stand under their deletion, not under what is due.
    due = wanted.due_before
    until: Argument = "+inf" if due is None or spot.number == FAILED_SET else due
    found: list[tuple[Record, Spot]] = []
    skipped = 0
    while len(found) < count:
        words = ("ZRANGEBYSCORE", set_, spot.score, until, "WITHSCORES", "LIMIT", skipped, max(count, 50))
        [reply] = yield [plain(*words)]
        entries = [Spot(spot.number, score.decode(), key) for key, score in _pairs(sound(reply))]
        if not entries:
            break
        fresh = [entry for entry in entries if spot.is_before(entry)]
        if not fresh:
            skipped += len(entries)  # all of them share the instant at which the last page ended
            continue
        looked = yield from _looked(keys, [entry.key for entry in fresh], spot.number)
        numbered = [(record, entry) for record, entry in zip(looked.records, fresh, strict=True) if record is not None]
        found += [(r, entry) for r, entry in numbered if wanted.matches(r, NOW) and place(r).number == spot.number]
        spot, skipped = fresh[-1], 0
    return found[:count]


class Looked(NamedTuple):
    """What stands under some keys, in their order. None: nothing, or one of those that are `unreadable`."""

    records: list[Record | None]
    unreadable: int


def _looked(keys: Keys, asked: list[bytes], set_: int = NO_SET) -> Steps[Looked]:
    """The records under these keys; those of a set that are gone are taken off it."""
    [reply] = yield [call(commands.LOOK, asked, [])]
    records: list[Record | None] = []
    for key, card in zip(asked, sound(reply)[1:], strict=True):
        records.append(_read(key[len(keys.record) :], card))
    gone = [key for key, card in zip(asked, reply[1:], strict=True) if card is None]
    if gone and set_ != NO_SET:
        yield [forgetting(keys, set_, gone)]
    return Looked(records, records.count(None) - len(gone))


def _read(id_: bytes, card: Any) -> Record | None:
    # One record that cannot be read must not hide the others from who sweeps or lists them.
    if card is None:
        return None
    try:
        return layout.decode(id_, sound(card))
    except StoreError as wrong:
        log.warning("operation %s is left out of a listing: %s", id_.hex()[:12], wrong)
        return None


def _by_all_keys(keys: Keys, wanted: Wanted, after: str | None, limit: int) -> Steps[Walked]:
    """SCAN may give more keys than were asked for: those that did not fit travel in the cursor."""
    cursor, _, rest = (after or "0:").partition(":")
    counted(cursor, 64)
    waiting = [keys.record + bytes.fromhex(id_) for id_ in rest.split(",") if id_]
    at_end = after is not None and cursor == "0"
    found: dict[bytes, Record] = {}
    unreadable = 0
    for _ in range(SCANS):
        if not waiting and not at_end:
            [reply] = yield [plain("SCAN", cursor, "MATCH", keys.record + b"*", "COUNT", limit + 1)]
            cursor, waiting = sound(reply)[0].decode(), list(reply[1])
            at_end = cursor == "0"
        if waiting:
            looked = yield from _looked(keys, waiting)
            unreadable += looked.unreadable
            found |= {r.id: r for r in looked.records if r is not None and wanted.matches(r, NOW)}
            waiting = []
        if len(found) > limit or at_end:
            break
    ids = list(found)
    if at_end and len(ids) <= limit:
        return list(found.values()), None, unreadable
    rest = ",".join(id_.hex() for id_ in ids[limit:])
    return [found[id_] for id_ in ids[:limit]], f"{cursor}:{rest}", unreadable


def purge(keys: Keys, limit: int) -> Steps[Purged]:
    """Take deleted failures off their list, and the outcomes of answers that have ended out of their records."""
    [time] = yield [plain("TIME")]
    now = milliseconds(sound(time))
    words: tuple[Argument, ...] = ("-inf", now, "LIMIT", 0, limit)
    failed, dated = yield [plain("ZRANGEBYSCORE", set_, *words) for set_ in (keys.failed, keys.dated)]
    deleted = taken = 0
    if sound(failed):
        [gone] = yield [forgetting(keys, FAILED_SET, failed)]
        deleted = taken = sound(gone)
    room = sound(dated)[: limit - deleted]
    if room:
        ended, off = yield from _end_answers(keys, room, now)
        deleted, taken = deleted + ended, taken + ended + off
    # Entries that cannot be taken off must not keep a purge going for ever: a batch that took none is the last.
    return Purged(deleted, taken > 0 and (limit in (len(failed), len(dated)) or len(room) < len(dated)))


def _end_answers(keys: Keys, dated: list[bytes], now: int) -> Steps[tuple[int, int]]:
    """End these answers; how many were ended, and how many keys more were taken off the list."""
    looked = yield from _looked(keys, dated)
    over = Wanted((State.COMPLETED,), now)
    swaps, others = [], []
    for key, record in zip(dated, looked.records, strict=True):
        if record is not None and over.matches(record, NOW):
            new = replace(record, state=State.EXPIRED, version=record.version + 1, outcome=b"", due_at=None)
            swaps.append(swapping(keys, Swap(record, new)))
        else:
            others.append(key)
    replies = yield [*swaps, *([forgetting(keys, DATED_SET, others)] if others else ())]
    off = sound(replies.pop()) if others else 0
    return sum(sound(reply)[1] == layout.WRITTEN for reply in replies), off


def _pairs(flat: list[bytes]) -> Iterator[tuple[bytes, bytes]]:
    return zip(flat[::2], flat[1::2], strict=True)


def milliseconds(time: list[bytes]) -> int:
    """The reply of TIME."""
    return int(time[0]) * 1000 + int(time[1]) // 1000


def found(id_: bytes, reply: Any) -> Seen | None:
    """What a script saw of one record."""
    now, card = sound(reply)
    return None if card is None else Seen(layout.decode(id_, sound(card)), now)
