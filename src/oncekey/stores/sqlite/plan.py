"""Which statement does each verb, and how its rows are read. Pure: no file, clock or lock is touched in here.

One unreadable record fails its whole batch and rolls it back: the engine then asks again for each item alone, and only
the unreadable one fails. It is never executed over, changed or purged.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Generator, Iterable, Iterator, Sequence
from contextlib import suppress
from typing import Any, NamedTuple, TypeVar

from oncekey.core.commands import (
    DONE,
    Claim,
    Claimed,
    Page,
    Purged,
    Renewal,
    Settlement,
    Stale,
    Swap,
    Won,
    Written,
)
from oncekey.core.record import IN_PROGRESS, Guarantee, Label, Record, Seen, State
from oncekey.core.transitions import SETTLING
from oncekey.errors import RecordUnreadable, SchemaMissing, StoreUnavailable
from oncekey.stores.contract import Finding, Wanted, counted, no_cursor
from oncekey.stores.sqlite import doctor
from oncekey.stores.sqlite.statements import STATEMENTS, migrations, repeated, sizes
from oncekey.stores.sqlite.steps import Change, Phase, Rows, Tell, Watching, Where

T = TypeVar("T")
Steps = Generator[Any, Any, T]

FORMAT = 1
STATES = {int(state): state for state in State}
GUARANTEES = {int(guarantee): guarantee for guarantee in Guarantee}
# The states that a partial index lists, and the rest, which only a walk over the table finds.
LISTED = frozenset({*IN_PROGRESS, State.FAILED_RETRYABLE, State.UNKNOWN})
# SQLite's largest integer: an instant further away is written as this one.
FAR = (1 << 63) - 1
NOTE_LIMIT = 1000
# Where due_at stands in a row of a listing: the number first, then the columns.
DUE = 12
# Each deletion touches a page of its own, and claims wait meanwhile: with 500 at once their p99 was four times worse.
PURGED_AT_ONCE = 50


def bits(states: Iterable[State]) -> int:
    """States as the bits that the statements test with `>> state & 1`."""
    return sum(1 << state for state in set(states))


# From where a settlement may come is the table's word alone; the statement tests what it is given.
SOURCES = {target: bits(source for source, to in SETTLING if to is target) for target in State}


def read(row: Sequence[Any]) -> Record:
    """One row, columns as in the statement `columns`."""
    (id_, format_, state, waited, guarantee, attempts, version, token, fingerprint, *rest) = row
    claimed_at, lease_until, due_at, expires_at, scope, endpoint, key, note, outcome = rest
    if format_ != FORMAT:
        raise RecordUnreadable(
            f"record {id_.hex()} has format {format_}, this code reads {FORMAT}: it was written by a newer OnceKey; "
            f"finish the upgrade"
        )
    if state not in STATES or guarantee not in GUARANTEES:
        raise RecordUnreadable(f"record {id_.hex()} is damaged: state {state}, guarantee {guarantee}")
    return Record(
        id_,
        STATES[state],
        version,
        token,
        fingerprint,
        GUARANTEES[guarantee],
        attempts,
        claimed_at,
        lease_until,
        due_at,
        expires_at,
        bool(waited),
        Label(scope, endpoint, key),
        note,
        outcome,
    )


def text(value: str) -> str:
    """Text that SQLite accepts: half a surrogate pair is written as its escape."""
    return value if value.isascii() else value.encode("utf-8", "backslashreplace").decode()


def after(now: int, length: int | None) -> int | None:
    """The instant so much later."""
    return None if length is None else min(now + length, FAR)


def _rows(name: str, values: Sequence[Sequence[Any]]) -> Steps[list[tuple[Any, ...]]]:
    found: list[tuple[Any, ...]] = []
    for start, size in sizes(len(values)):
        flat = [value for item in values[start : start + size] for value in item]
        found += yield Rows(repeated(name, size), flat)
    return found


def _change(name: str, values: Sequence[Sequence[Any]]) -> Steps[int]:
    changed = 0
    for start, size in sizes(len(values)):
        flat = [value for item in values[start : start + size] for value in item]
        changed += yield Change(repeated(name, size), flat)
    return changed


def _find(ids: Iterable[bytes]) -> Steps[dict[bytes, Record]]:
    found = yield from _rows("find", [(id_,) for id_ in ids])
    return {row[0]: read(row) for row in found}


class Spot(NamedTuple):
    """How far a listing has come: when the last record was due, and its number."""

    due: int
    seq: int

    def __str__(self) -> str:
        return f"{self.due}:{self.seq}"

    @classmethod
    def read(cls, after: str | None) -> Spot:
        due, seq = after.split(":") if after else ("0", "0")
        return cls(counted(due), counted(seq))

    @classmethod
    def of(cls, row: Sequence[Any]) -> Spot:
        return cls(row[DUE] or 0, row[0])


class SqlitePlan:
    """The verbs of stores.contract."""

    def claim(self, many: Sequence[Claim]) -> Steps[list[Claimed]]:
        """Look first, and write only what is absent: replays and duplicates wait for no writer and no fsync."""
        now = yield Phase.READ
        stands = yield from _find(claim.id for claim in many)
        absent = [claim for claim in many if claim.id not in stands]
        seen: dict[bytes, Claimed] = {id_: Seen(record, now) for id_, record in stands.items()}
        if absent:
            seen.update((yield from self.take(absent)))
        return [seen[claim.id] for claim in many]

    def take(self, absent: Sequence[Claim]) -> Steps[dict[bytes, Claimed]]:
        """Write first, and look at what was there: for whoever has the write lock already."""
        now = yield Phase.WRITE
        taken = yield from _change("claim", [one(claim, now) for claim in absent])
        if taken == len(absent):
            return {claim.id: Won(claim.lease_for) for claim in absent}
        stands = yield from _find(claim.id for claim in absent)
        if len(stands) < len({claim.id for claim in absent}):
            raise StoreUnavailable("a record was neither taken nor found: nothing was run, try again")
        return {claim.id: _taken(claim, stands[claim.id], now) for claim in absent}

    def settle(self, many: Sequence[Settlement]) -> Steps[list[Written]]:
        """One guarded update for the whole batch; records are read only if it did not change all of them."""
        now = yield Phase.WRITE
        waited = yield from _rows("waited", [(item.id,) for item in many])
        changed = yield from _change("settle", [_settling(item, now) for item in many])
        if waited:
            # Who is told too often looks again and goes on waiting; who is not told waits to the end of its time.
            yield Tell([id_ for (id_,) in waited])
        if changed == len(many):
            return [DONE] * changed
        stands = yield from _find(item.id for item in many)
        return [_settled(item, stands.get(item.id), now) for item in many]

    def renew(self, many: Sequence[Renewal]) -> Steps[list[Written]]:
        """One guarded update, which names the records that it changed."""
        now = yield Phase.WRITE
        renewed = {id_ for (id_,) in (yield from _rows("renew", [_renewing(item, now) for item in many]))}
        lost = [item.id for item in many if item.id not in renewed]
        stands = yield from _find(lost)
        return [DONE if item.id in renewed else _stale(stands.get(item.id), now) for item in many]

    def swap(self, swap: Swap) -> Steps[Written]:
        """Compare-and-set on version, token and expiry: the same only while what was seen stands."""
        now = yield Phase.WRITE
        old = (yield from _find([swap.id])).get(swap.id)
        seen = swap.seen
        stands = (seen.id, seen.version, seen.token, seen.expires_at)
        changed = yield Change(STATEMENTS["swap"], (*_replaced(swap.new), *stands))
        if not changed:
            return _stale(old, now)
        if old is not None and old.waited:
            yield Tell([swap.id])
        return DONE

    def put(self, many: Sequence[Record]) -> Steps[list[Written]]:
        """One insertion, which names the records that it wrote."""
        now = yield Phase.WRITE
        put = {id_ for (id_,) in (yield from _rows("put", [(*_replaced(record), record.id) for record in many]))}
        stands = yield from _find(record.id for record in many if record.id not in put)
        return [DONE if record.id in put else _stale(stands.get(record.id), now) for record in many]

    def get(self, id_: bytes) -> Steps[Seen | None]:
        """One indexed look."""
        now = yield Phase.READ
        record = (yield from _find([id_])).get(id_)
        return Seen(record, now) if record is not None else None

    def watch(self, id_: bytes) -> Steps[Seen | None]:
        """Set the mark once; the process is told to watch before it looks, so that no change falls in between."""
        yield Watching(id_, on=True)
        now = yield Phase.READ
        record = (yield from _find([id_])).get(id_)
        if record is not None and record.state in IN_PROGRESS and not record.waited:
            now = yield Phase.WRITE
            yield Change(STATEMENTS["watch"], (id_,))
            record = (yield from _find([id_])).get(id_)
        if record is None or record.state not in IN_PROGRESS:
            yield Watching(id_, on=False)
        return Seen(record, now) if record is not None else None

    def scan(self, wanted: Wanted, after: str | None, limit: int) -> Steps[Page]:
        """Pages in the order of first claims, or of the queue of unknown records. Unreadable records are left out."""
        now = yield Phase.READ
        try:
            spot = Spot.read(after)
        except ValueError as wrong:
            raise no_cursor() from wrong
        due = wanted.due(now)
        if wanted.queue and wanted.undated:
            rows = yield Rows(STATEMENTS["scan_undated"], (spot.seq, limit + 1))
        elif wanted.queue:
            rows = yield Rows(STATEMENTS["scan_due"], (due, spot.due, spot.seq, limit + 1))
        else:
            name = "scan_open" if LISTED.issuperset(wanted.states) else "scan_any"
            rows = yield Rows(STATEMENTS[name], (bits(wanted.states), due, due, spot.seq, limit + 1))
        page = rows[:limit]
        records = list(_readable(page))
        last = str(Spot.of(page[-1])) if len(rows) > limit else None
        return Page(records, last, now, len(page) - len(records))

    def purge(self, limit: int) -> Steps[Purged]:
        """Delete first, then drop the answers whose own time is over. `more` says that the batch was cut short."""
        now = yield Phase.WRITE
        limit = min(limit, PURGED_AT_ONCE)
        deleted = yield Change(STATEMENTS["purge"], (now, limit, now))
        dropped = yield Change(STATEMENTS["expire_softly"], (now, limit - deleted, now))
        return Purged(deleted + dropped, deleted + dropped >= limit)

    def stats(self) -> Steps[dict[str, int | str]]:
        """Counts from the partial indexes, the size of the file, and the settings that matter."""
        yield Phase.READ
        counted: dict[str, int | str] = {}
        for name in ("count_open", "count_final"):
            for state, count in (yield Rows(STATEMENTS[name])):
                word = STATES[state].word
                counted[word] = int(counted.get(word, 0)) + count
        [(foreign,)] = yield Rows(STATEMENTS["count_foreign"])
        if foreign:
            counted["unreadable"] = foreign
        [(size,)] = yield Rows(STATEMENTS["file_size"])
        [(mode,)] = yield Rows("PRAGMA journal_mode")
        return {**counted, "file_bytes": size, "journal_mode": mode, "sqlite": sqlite3.sqlite_version}

    def migrate(self) -> Steps[list[str]]:
        """Apply what is missing, all in one transaction; several processes may try at once."""
        now = yield Phase.BUILD
        version = yield from _version()
        _refuse_newer(version)
        done = []
        for number, (name, statements) in migrations().items():
            if number > version:
                for statement in statements:
                    yield Change(statement)
                yield Change(STATEMENTS["applied"], (number, now))
                done.append(name)
        return done

    def ready(self) -> Steps[None]:
        """Make the tables of a new file; refuse those of another version."""
        yield Phase.LOOK
        version = yield from _version()
        if version == 0:
            yield from self.migrate()
            return
        _refuse_newer(version)
        if version < max(migrations()):
            raise SchemaMissing(
                f"the SQLite file has schema {version}, this code needs {max(migrations())}: run `oncekey migrate`"
            )

    def check(self) -> Steps[list[Finding]]:
        """Settings, schema, disk and file system; see doctor for the judgement."""
        yield Phase.LOOK
        version = yield from _version()
        foreign = [(0,)]
        if version:
            foreign = yield Rows(STATEMENTS["count_foreign"])
        [(mode,)] = yield Rows("PRAGMA journal_mode")
        [(synchronous,)] = yield Rows("PRAGMA synchronous")
        place = yield Where.IS_IT
        return [
            doctor.sqlite(),
            doctor.schema(version, max(migrations())),
            doctor.journal(mode),
            doctor.durability(synchronous),
            doctor.file_system(place),
            doctor.disk(place),
            *doctor.unreadable(foreign[0][0]),
        ]


def one(claim: Claim, now: int) -> tuple[Any, ...]:
    """What `claim` takes for each record."""
    id_, token, fingerprint, lease_for, state, guarantee, (scope, endpoint, key) = claim
    until = after(now, lease_for)
    return (id_, state, guarantee, token, fingerprint, now, until, text(scope), text(endpoint), text(key))


def _taken(claim: Claim, record: Record, now: int) -> Claimed:
    """After an insertion that did not take all: ours is what carries our token and this instant."""
    ours = record.token == claim.token and record.version == 1 and record.claimed_at == now
    return Won(claim.lease_for) if ours and record.state is claim.state else Seen(record, now)


def _settling(item: Settlement, now: int) -> tuple[Any, ...]:
    id_, token, target, outcome, keep_for, due_for, note = item
    due, expires = after(now, due_for), after(now, keep_for)
    return (id_, token, target, SOURCES[target], due, expires, text(note)[:NOTE_LIMIT], outcome)


def _renewing(item: Renewal, now: int) -> tuple[Any, ...]:
    id_, token, lease_for, cap_for, begin, outcome = item
    return (id_, token, after(now, lease_for), cap_for, begin, now, outcome)


def _settled(item: Settlement, record: Record | None, now: int) -> Written:
    if record is not None and record.state is item.target and record.token == item.token:
        return DONE
    return _stale(record, now)


def _readable(rows: Iterable[Sequence[Any]]) -> Iterator[Record]:
    for _, *row in rows:
        with suppress(RecordUnreadable):
            yield read(row)


def _stale(record: Record | None, now: int) -> Stale:
    return Stale(Seen(record, now) if record is not None else None)


def _replaced(new: Record) -> tuple[Any, ...]:
    times = (new.lease_until, new.due_at, new.expires_at)
    words = [text(part) for part in (*new.label, new.note)]
    head = (new.state, new.waited, new.guarantee, new.attempts, new.version, new.token, new.fingerprint)
    far = [None if time is None else min(time, FAR) for time in (new.claimed_at, *times)]
    return (*head, *far, *words, new.outcome)


def _version() -> Steps[int]:
    [(there,)] = yield Rows(STATEMENTS["has_schema"])
    if not there:
        return 0
    [(version,)] = yield Rows(STATEMENTS["schema"])
    return int(version)


def _refuse_newer(version: int) -> None:
    newest = max(migrations())
    if version > newest:
        raise SchemaMissing(
            f"the SQLite file has schema {version}, this code knows {newest}: it belongs to a newer OnceKey; "
            f"install that version, or use another file"
        )
