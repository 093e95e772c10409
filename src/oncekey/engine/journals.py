"""The journal of a record, behind its seal."""

from __future__ import annotations

from typing import TYPE_CHECKING

from oncekey.core.journal import EMPTY, Audit, Journal, pack_journal, read_journal
from oncekey.core.keys import key_ref
from oncekey.core.outcome import sign, trail_of
from oncekey.core.record import State
from oncekey.engine.events import log
from oncekey.errors import OnceKeyError

if TYPE_CHECKING:
    from oncekey.core.record import Record
    from oncekey.engine.sealing import Sealer


def journal_of(record: Record, sealer: Sealer) -> Journal:
    """What an operation without an outcome has done so far: the calls that a reconciler asks about, and its steps."""
    if not record.outcome or record.state in (State.COMPLETED, State.EXPIRED):
        return EMPTY
    return read_journal(sealer.open(record.id, record.outcome))


def trail(record: Record, sealer: Sealer) -> tuple[Audit, ...]:
    """Who has changed this record from outside, and why; oldest first."""
    return trail_of(sealer.open(record.id, record.outcome)) if record.outcome else ()


def sealed(id_: bytes, journal: Journal, sealer: Sealer) -> bytes:
    """A journal as a record keeps it."""
    packed = pack_journal(journal)
    return sealer.seal(id_, packed) if packed else b""


def carried(id_: bytes, journal: bytes, outcome: bytes, sealer: Sealer) -> bytes:
    """An outcome with the trail of the journal, sealed as an attempt found it, that it takes the place of."""
    try:
        return sign(outcome, trail_of(sealer.open(id_, journal)))
    except OnceKeyError as trouble:
        # The effect is there: better its outcome without the trail than no outcome.
        log.warning("operation %s loses its trail: %s", key_ref(id_), trouble)
        return outcome
