"""The verbs of stores.contract as statements: pure generators that yield what to ask and read what comes back.

Each `yield` is one round trip and one transaction (READ COMMITTED): a list of asks goes out, a list of rows for each
comes back. Every statement takes a snapshot of its own; claim depends on that, for a row that was committed while the
INSERT waited is invisible to the INSERT and visible to the SELECT behind it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import suppress
from typing import Any

from oncekey.core.commands import DONE, Claim, Claimed, Page, Purged, Renewal, Settlement, Stale, Swap, Won, Written
from oncekey.core.record import FORMAT, Guarantee, Label, Record, Seen, State
from oncekey.errors import RecordUnreadable, StoreUnavailable
from oncekey.stores.contract import Finding, Wanted, counted, no_cursor
from oncekey.stores.planned import Steps
from oncekey.stores.postgres import checks
from oncekey.stores.postgres.binary import blobs, blobs_or_none, flag, flags, integer, long, longs, small, smalls, text
from oncekey.stores.postgres.options import Options
from oncekey.stores.postgres.statements import LISTED, Ask, Migration, Statement

# A row may vanish between the insert that met it and the look behind; after this many rounds the caller comes back.
ROUNDS = 3
# A lease that lost more than this share while its batch waited for a lock starts anew.
WORN = 0.1
NO_CAP = 1 << 62
# Tables up to this size are counted exactly.
COUNTED_BYTES = 32 << 20
NO_TOKENS = blobs([])
# Where the id and due_at stand in a row.
ID, DUE = 1, 11
STATES = {int(state): state for state in State}
GUARANTEES = {int(guarantee): guarantee for guarantee in Guarantee}


class PostgresPlan:
    """The statements of every verb."""

    def __init__(self, options: Options, known: dict[str, Statement], schema: Sequence[Migration]) -> None:
        self._known = known
        self._schema = schema
        self._options = options
        self._channel = options.channel.encode()

    def _ask(self, name: str, *parameters: bytes | None) -> Ask:
        return Ask(self._known[name], parameters)

    def _look(self, ids: Sequence[bytes]) -> Ask:
        return self._ask("look", blobs(ids), NO_TOKENS)

    # ---- hot verbs -----------------------------------------------------------------------------------------------

    def claim(self, many: Sequence[Claim]) -> Steps[list[Claimed]]:
        """Insert what is not there and look at the rest. Sorted: two batches in different orders would deadlock."""
        pending = {claim.id: claim for claim in sorted(many, key=lambda claim: claim.id)}
        found: dict[bytes, Claimed] = {}
        for attempt in range(ROUNDS):
            if not pending:
                break
            claims = list(pending.values())
            # What we just inserted need not come back; a row with our token that stood there before may, next time.
            tokens = NO_TOKENS if attempt else blobs([claim.token for claim in claims])
            look = self._ask("look", blobs([claim.id for claim in claims]), tokens)
            inserted, rows = yield [self._insert(claims), look]
            now = rows[0][0]
            found |= seen_by_id(rows)
            found |= {id_: Won(lease_until - now) for id_, lease_until in inserted}
            yield from self._make_sure(found, pending)
            pending = {id_: claim for id_, claim in pending.items() if id_ not in found}
        if pending:
            raise StoreUnavailable("a record came and went while it was claimed; nothing was run, try again")
        return [found[claim.id] for claim in many]

    def _insert(self, claims: Sequence[Claim]) -> Ask:
        labels = [claim.label for claim in claims]
        return self._ask(
            "claim",
            blobs([claim.id for claim in claims]),
            blobs([claim.token for claim in claims]),
            blobs([claim.fingerprint for claim in claims]),
            smalls([claim.state for claim in claims]),
            smalls([claim.guarantee for claim in claims]),
            longs([claim.lease_for for claim in claims]),
            blobs([text(label.scope) for label in labels]),
            blobs([text(label.endpoint) for label in labels]),
            blobs([text(label.key) for label in labels]),
        )

    def _make_sure(self, found: dict[bytes, Claimed], pending: dict[bytes, Claim]) -> Steps[None]:
        """Renew leases that a lock wait wore down, and write again what an earlier try of ours left (see confirm)."""
        worn, ours = [], []
        for id_, claim in pending.items():
            answer = found.get(id_)
            if isinstance(answer, Won):
                if answer.left_for < claim.lease_for * (1 - WORN):
                    worn.append(Renewal(id_, claim.token, claim.lease_for, NO_CAP))
            elif answer is not None and answer.record.token == claim.token:
                ours.append((id_, claim.token))
        if ours:
            yield [self._confirm(ours)]
        if worn:
            renewed = yield from self.renew(worn)
            for renewal, written in zip(worn, renewed, strict=True):
                if written == DONE:
                    found[renewal.id] = Won(renewal.lease_for)
                elif isinstance(written, Stale) and written.found is not None:
                    found[renewal.id] = written.found
                else:
                    del found[renewal.id]

    def _confirm(self, written: Sequence[tuple[bytes, bytes]]) -> Ask:
        return self._ask("confirm", blobs([id_ for id_, _ in written]), blobs([token for _, token in written]))

    def settle(self, many: Sequence[Settlement]) -> Steps[list[Written]]:
        """Write outcomes; what was not written is looked at: it was written before, or it is somebody else's."""
        if not many:
            return []
        ordered = sorted(many, key=lambda settlement: settlement.id)
        (rows,) = yield [
            self._ask(
                "settle",
                blobs([s.id for s in ordered]),
                blobs([s.token for s in ordered]),
                smalls([s.target for s in ordered]),
                longs([s.keep_for for s in ordered]),
                longs([s.due_for for s in ordered]),
                blobs([text(s.note) for s in ordered]),
                blobs([s.outcome for s in ordered]),
                self._channel,
            )
        ]
        if len(rows) == len(many):
            return [DONE] * len(many)
        written = {row[0] for row in rows}
        (rows,) = yield [self._look([s.id for s in ordered if s.id not in written])]
        found = seen_by_id(rows)
        repeated = [s for s in ordered if s.id in found and _repeats(s, found[s.id].record)]
        if repeated:
            yield [self._confirm([(s.id, s.token) for s in repeated])]
        written.update(s.id for s in repeated)
        return [DONE if s.id in written else Stale(found.get(s.id)) for s in many]

    def renew(self, many: Sequence[Renewal]) -> Steps[list[Written]]:
        """Prolong leases; what was not prolonged is looked at."""
        if not many:
            return []
        ordered = sorted(many, key=lambda renewal: renewal.id)
        (rows,) = yield [
            self._ask(
                "renew",
                blobs([r.id for r in ordered]),
                blobs([r.token for r in ordered]),
                longs([r.lease_for for r in ordered]),
                longs([r.cap_for for r in ordered]),
                flags([r.begin for r in ordered]),
                blobs_or_none([r.outcome for r in ordered]),
            )
        ]
        if len(rows) == len(many):
            return [DONE] * len(many)
        written = {row[0] for row in rows}
        (rows,) = yield [self._look([r.id for r in ordered if r.id not in written])]
        found = seen_by_id(rows)
        return [DONE if r.id in written else Stale(found.get(r.id)) for r in many]

    # ---- rare verbs ----------------------------------------------------------------------------------------------

    def swap(self, swap: Swap) -> Steps[Written]:
        """Replace a record that is still the one that was seen."""
        seen, new = swap
        (rows,) = yield [
            self._ask(
                "swap",
                seen.id,
                long(seen.version),
                seen.token or None,
                long(seen.expires_at),
                *_columns(new),
                self._channel,
            ),
        ]
        if rows:
            return DONE
        (rows,) = yield [self._look([seen.id])]
        found = seen_by_id(rows).get(seen.id)
        if found is not None and new.token and (found.record.version, found.record.token) == (new.version, new.token):
            # Our own write of an earlier try, whose reply was lost: the flow will take it for ours.
            yield [self._confirm([(seen.id, new.token)])]
        return Stale(found)

    def put(self, many: Sequence[Record]) -> Steps[list[Written]]:
        """Write what is not there and look at the rest, as `claim` does."""
        pending = {record.id: record for record in sorted(many, key=lambda record: record.id)}
        found: dict[bytes, Written] = {}
        for _ in range(ROUNDS):
            if not pending:
                break
            look = self._look(list(pending))
            put, rows = yield [self._ask("put", *_arrays(list(pending.values()))), look]
            found |= {id_: Stale(seen) for id_, seen in seen_by_id(rows).items()} | {id_: DONE for (id_,) in put}
            pending = {id_: record for id_, record in pending.items() if id_ not in found}
        if pending:
            raise StoreUnavailable("a record came and went while it was written; try again")
        return [found[record.id] for record in many]

    def get(self, id_: bytes) -> Steps[Seen | None]:
        """Read one record."""
        (rows,) = yield [self._look([id_])]
        return seen_by_id(rows).get(id_)

    def watch(self, id_: bytes) -> Steps[Seen | None]:
        """Mark a record as waited for, and read it. Whoever settles it after the mark tells us."""
        _, rows = yield [self._ask("watch", id_), self._look([id_])]
        return seen_by_id(rows).get(id_)

    def scan(self, wanted: Wanted, after: str | None, limit: int) -> Steps[Page]:
        """Read a page in the order of ids, or of the queue, and one record more to know whether it is the last."""
        try:
            due, id_ = _spot(after)
        except ValueError as wrong:
            raise no_cursor() from wrong
        more = long(limit + 1)
        if wanted.queue and wanted.undated:
            page = self._ask("scan_undated", id_, more)
        elif wanted.queue:
            page = self._ask("scan_due", long(wanted.due_before), long(due), id_, more)
        else:
            name = "scan_open" if set(wanted.states) <= set(LISTED) else "scan_all"
            page = self._ask(name, smalls(list(wanted.states)), id_, long(wanted.due_before), more)
        rows, clock = yield [page, self._look([])]
        listed = rows[:limit]
        records = list(_readable(listed))
        last = f"{listed[-1][DUE] or 0}:{listed[-1][ID].hex()}" if len(rows) > limit else None
        return Page(records, last, clock[0][0], len(listed) - len(records))

    def purge(self, limit: int) -> Steps[Purged]:
        """Delete a small batch, and with what is left of the limit drop answers whose time is over."""
        (((count,),),) = yield [self._ask("purge", long(limit))]
        if count < limit:
            (((emptied,),),) = yield [self._ask("purge_softly", long(limit - count))]
            count += emptied
        return Purged(count, count >= limit)

    def stats(self) -> Steps[dict[str, int | str]]:
        """Open records are counted; the rest only while the table is small, else estimated by the server."""
        open_rows, table = yield [
            self._ask("stats_open"),
            self._ask("stats_table", self._options.table.encode()),
        ]
        estimate, size, total, version = table[0]
        found: dict[str, int | str] = {}
        if size <= COUNTED_BYTES:
            (open_rows,) = yield [self._ask("stats_all")]
        else:
            found["completed"] = max(0, estimate - sum(count for _, count in open_rows))
            found["estimated"] = "completed"
        for state, count in open_rows:
            word = State(state).word
            found[word] = int(found.get(word, 0)) + count
        return found | {"bytes": total, "server": f"PostgreSQL {version}"}

    # ---- the schema ----------------------------------------------------------------------------------------------

    def migrate(self) -> Steps[list[str]]:
        """Apply what is missing, in one transaction and under a lock; several processes may try at once."""
        name = self._options.table.encode()
        *_, rows = yield [
            self._ask("begin"),
            self._ask("migrate_lock"),
            self._ask("migrate_prepare"),
            self._ask("versions", name),
        ]
        there = {version for (version,) in rows}
        done = []
        for version, statements in self._schema:
            if version not in there:
                yield [*map(Ask, statements), self._ask("migrate_note", name, integer(version))]
                done.append(f"{self._options.table}: schema version {version}")
        yield [self._ask("commit")]
        return done

    def check(self) -> Steps[list[Finding]]:
        """Look at the server and judge (checks.py)."""
        schema, dot, _ = self._options.table.rpartition(".")
        names = self._options.table.encode(), f"{schema}{dot}oncekey_schema".encode()
        ((server,),) = yield [self._ask("check_server", *names)]
        facts = checks.Facts(*server)
        versions: list[int] = []
        if facts.has_versions:
            (rows,) = yield [self._ask("versions", names[0])]
            versions = [version for (version,) in rows]
        return checks.judged(facts, versions, self._schema[-1].version, self._options)


def _spot(after: str | None) -> tuple[int, bytes]:
    """How far a listing has come: when the last record was due, and its id."""
    due, id_ = after.split(":") if after else ("0", "")
    return counted(due), bytes.fromhex(id_)


def seen(row: tuple[Any, ...]) -> Seen:
    """Read a record; one that this code does not know is refused, never taken for absent."""
    (now, id_, format_, state, version, token, fingerprint, guarantee, attempts, claimed_at, lease_until, due_at) = row[
        :12
    ]
    (expires_at, waited, scope, endpoint, key, note, outcome) = row[12:]
    if format_ != FORMAT:
        raise RecordUnreadable(f"record format {format_} is not known here (this code reads {FORMAT})")
    if state not in STATES or guarantee not in GUARANTEES:
        raise RecordUnreadable(f"record {id_.hex()} is damaged: state {state}, guarantee {guarantee}")
    record = Record(
        id_,
        STATES[state],
        version,
        token or b"",
        fingerprint,
        GUARANTEES[guarantee],
        attempts,
        claimed_at,
        lease_until,
        due_at,
        expires_at,
        waited,
        Label(scope.decode(errors="replace"), endpoint.decode(errors="replace"), key.decode(errors="replace")),
        note.decode(errors="replace"),
        outcome,
    )
    return Seen(record, now)


def _readable(rows: Sequence[tuple[Any, ...]]) -> Iterator[Record]:
    # One record that cannot be read must not hide the others from who lists them.
    for row in rows:
        with suppress(RecordUnreadable):
            yield seen(row).record


def seen_by_id(rows: Sequence[tuple[Any, ...]]) -> dict[bytes, Seen]:
    """Read what a look found; its first row may be there for the time only."""
    return {row[1]: seen(row) for row in rows if row[1] is not None}


def _columns(new: Record) -> tuple[bytes | None, ...]:
    return (
        small(new.state),
        long(new.version),
        new.token or None,
        new.fingerprint,
        small(new.guarantee),
        integer(new.attempts),
        long(new.claimed_at),
        long(new.lease_until),
        long(new.due_at),
        long(new.expires_at),
        flag(new.waited),
        *map(text, new.label),
        text(new.note),
        new.outcome,
    )


def _arrays(records: Sequence[Record]) -> tuple[bytes, ...]:
    """Whole records, column by column, as the statement `put` takes them."""
    return (
        blobs([r.id for r in records]),
        smalls([r.state for r in records]),
        longs([r.version for r in records]),
        blobs_or_none([r.token or None for r in records]),
        blobs([r.fingerprint for r in records]),
        smalls([r.guarantee for r in records]),
        longs([r.attempts for r in records]),
        longs([r.claimed_at for r in records]),
        longs([r.lease_until for r in records]),
        longs([r.due_at for r in records]),
        longs([r.expires_at for r in records]),
        flags([r.waited for r in records]),
        *(blobs([text(r.label[part]) for r in records]) for part in range(3)),
        blobs([text(r.note) for r in records]),
        blobs([r.outcome for r in records]),
    )


def _repeats(settlement: Settlement, found: Record) -> bool:
    return found.state is settlement.target and found.token == settlement.token
