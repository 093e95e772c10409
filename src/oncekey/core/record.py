"""What a store remembers of one operation, and the bytes it may remember it as.

Times are whole milliseconds of the store's own clock. The codec is versioned: a record of a version that this code does
not know is refused (`RecordUnreadable`), never treated as absent.
"""

from __future__ import annotations

import struct
from enum import IntEnum
from typing import Any, NamedTuple

from oncekey.errors import RecordForged, RecordUnreadable


class State(IntEnum):
    """Where an operation stands. CLAIMED and EXECUTING are the two phases of `in_progress`."""

    CLAIMED = 1
    EXECUTING = 2
    COMPLETED = 3
    FAILED_RETRYABLE = 4
    UNKNOWN = 5
    EXPIRED = 6

    @property
    def word(self) -> str:
        """The public word: both phases are `in_progress`."""
        return "in_progress" if self <= State.EXECUTING else self.name.lower()


IN_PROGRESS = (State.CLAIMED, State.EXECUTING)
OPEN = (*IN_PROGRESS, State.UNKNOWN)
FINAL = (State.COMPLETED, State.FAILED_RETRYABLE, State.EXPIRED)


class Guarantee(IntEnum):
    """What keeps an effect from happening twice when an attempt dies; see Policy."""

    AT_MOST_ONCE = 1
    TRANSACTIONAL = 2
    DEDUPLICATED_DOWNSTREAM = 3

    @property
    def may_take_over(self) -> bool:
        """Whether a lapsed attempt may be run again."""
        return self is not Guarantee.AT_MOST_ONCE


class Label(NamedTuple):
    """What an operator reads: whose it is (a digest), which endpoint, the client's key. Never used to decide."""

    scope: str = ""
    endpoint: str = ""
    key: str = ""


NO_LABEL = Label()


class Record(NamedTuple):
    """One operation, as its store knows it. `None` times mean: there is no such time."""

    id: bytes
    state: State
    version: int
    token: bytes
    fingerprint: bytes
    guarantee: Guarantee = Guarantee.AT_MOST_ONCE
    attempts: int = 1
    claimed_at: int = 0
    lease_until: int | None = None
    due_at: int | None = None
    expires_at: int | None = None
    waited: bool = False
    label: Label = NO_LABEL
    note: str = ""
    outcome: bytes = b""


def replace(record: Record, **changes: Any) -> Record:
    """A record that differs in these fields. A named tuple makes this, on the hot path, five times cheaper."""
    return record._replace(**changes)


class Seen(NamedTuple):
    """A record and the store's time at which it was read."""

    record: Record
    now: int


FORMAT = 1
# format, state, waited, guarantee, attempts, version, claimed, lease, due, expires, digest of the id, token, lengths
HEAD = struct.Struct(">BBBBHIQQQQ8s16sBBHHHI")
NO_TIME = 0


def encode(record: Record) -> bytes:
    """A record as bytes: for stores that keep opaque values, and for moving records between stores."""
    # Labels and notes are for reading, and clients can get any text into them: they are cut, never refused.
    scope = record.label.scope.encode(errors="replace")[:255]
    endpoint, key, note = (_text(part) for part in (record.label.endpoint, record.label.key, record.note))
    head = HEAD.pack(
        FORMAT,
        record.state,
        record.waited,
        record.guarantee,
        min(record.attempts, 0xFFFF),
        record.version,
        record.claimed_at,
        record.lease_until or NO_TIME,
        record.due_at or NO_TIME,
        record.expires_at or NO_TIME,
        record.id[:8],
        record.token or bytes(16),
        len(record.fingerprint),
        len(scope),
        len(endpoint),
        len(key),
        len(note),
        len(record.outcome),
    )
    return b"".join((head, record.fingerprint, scope, endpoint, key, note, record.outcome))


def decode(id_: bytes, data: bytes) -> Record:
    """Read a record back; refuse another version, a damaged one, and one that was stored under another id."""
    if not data or data[0] != FORMAT:
        raise RecordUnreadable(
            f"record format {data[0] if data else 'none'} is not known here (this code reads {FORMAT})"
        )
    try:
        fields = HEAD.unpack_from(data)
        state, guarantee = State(fields[1]), Guarantee(fields[3])
    except (struct.error, ValueError) as damaged:
        raise RecordUnreadable(f"the record is damaged: {damaged}") from damaged
    sizes = fields[12:]
    if len(data) != HEAD.size + sum(sizes):
        raise RecordUnreadable(f"the record is damaged: {len(data)} bytes, its header says {HEAD.size + sum(sizes)}")
    if fields[10] != id_[:8]:
        raise RecordForged("the record belongs to another key")
    fingerprint, scope, endpoint, key, note, outcome = _cut(data, HEAD.size, sizes)
    return Record(
        id=id_,
        state=state,
        version=fields[5],
        token=fields[11] if any(fields[11]) else b"",
        fingerprint=fingerprint,
        guarantee=guarantee,
        attempts=fields[4],
        claimed_at=fields[6],
        lease_until=fields[7] or None,
        due_at=fields[8] or None,
        expires_at=fields[9] or None,
        waited=bool(fields[2]),
        label=Label(*(part.decode(errors="replace") for part in (scope, endpoint, key))),
        note=note.decode(errors="replace"),
        outcome=outcome,
    )


def _text(text: str) -> bytes:
    return text.encode(errors="replace")[:1000]


def _cut(data: bytes, start: int, sizes: tuple[int, ...]) -> list[bytes]:
    parts = []
    for size in sizes:
        parts.append(data[start : start + size])
        start += size
    return parts


__all__ = [
    "FINAL",
    "FORMAT",
    "IN_PROGRESS",
    "NO_LABEL",
    "OPEN",
    "Guarantee",
    "Label",
    "Record",
    "Seen",
    "State",
    "decode",
    "encode",
    "replace",
]
