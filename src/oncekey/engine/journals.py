"""The journal of a record, behind its seal."""

from __future__ import annotations

from typing import TYPE_CHECKING

from oncekey.core.journal import EMPTY, Audit, Journal, Trace, pack_journal, read_journal
from oncekey.core.outcome import carried_by, trail_of
from oncekey.core.record import State
from oncekey.engine.current import TRACE

if TYPE_CHECKING:
    from oncekey.core.record import Record
    from oncekey.engine.sealing import Sealer


def journal_of(record: Record, sealer: Sealer) -> Journal:
    """What an operation without an outcome has done so far: the calls that a reconciler asks about, and its steps."""
    if not record.outcome or record.state in (State.COMPLETED, State.EXPIRED):
        return EMPTY
    return read_sealed(record.id, record.outcome, sealer)


def read_sealed(id_: bytes, sealed: bytes, sealer: Sealer) -> Journal:
    """A journal as a store gave it, such as that in Execute; no bytes are an empty one."""
    return read_journal(sealer.open(id_, sealed)) if sealed else EMPTY


def trail(record: Record, sealer: Sealer) -> tuple[Audit, ...]:
    """Who has changed this record from outside, and why; oldest first."""
    return trail_of(sealer.open(record.id, record.outcome)) if record.outcome else ()


def lasting(record: Record, sealer: Sealer) -> tuple[Audit | Trace, ...]:
    """What a record keeps when it is completed, or completed anew: its trail, and the trace of its latest attempt."""
    return carried_by(sealer.open(record.id, record.outcome)).lasting if record.outcome else ()


def begun(id_: bytes, left: bytes, sealer: Sealer) -> Journal:
    """The journal of an attempt that begins: what others have left, and where requests are traced, this request."""
    journal, request = read_sealed(id_, left, sealer) if left else EMPTY, TRACE.get()
    if request is None:
        return journal
    if journal.trace:
        request.link(journal.trace)
    return journal.traced(request.here)


def sealed(id_: bytes, journal: Journal, sealer: Sealer) -> bytes:
    """A journal as a record keeps it."""
    packed = pack_journal(journal)
    return sealer.seal(id_, packed) if packed else b""
