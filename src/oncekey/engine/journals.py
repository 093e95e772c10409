"""The journal of a record, behind its seal."""

from __future__ import annotations

from typing import TYPE_CHECKING

from oncekey.core.journal import EMPTY, Journal, read_journal
from oncekey.core.record import State

if TYPE_CHECKING:
    from oncekey.core.record import Record
    from oncekey.engine.sealing import Sealer


def journal_of(record: Record, sealer: Sealer) -> Journal:
    """What an operation without an outcome has done so far: the calls that a reconciler asks about, and its steps."""
    if not record.outcome or record.state in (State.COMPLETED, State.EXPIRED):
        return EMPTY
    return read_journal(sealer.open(record.id, record.outcome))
