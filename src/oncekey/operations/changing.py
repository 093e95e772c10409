"""To change operations by hand: settle one that nobody else can, or have it asked about again. All of it is signed.

Each change and the line that says who made it and why are one write, guarded by the version that was seen. The trail
moves with the record and ends with it; `oncekey.audit` in the log has every line as well.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass
from typing import NamedTuple

from oncekey.core.commands import Done, Swap
from oncekey.core.journal import Audit, Journal, Trace
from oncekey.core.keys import key_ref
from oncekey.core.outcome import Answer, Tombstone, Value, pack, pack_value, sign, tombstone
from oncekey.core.policy import Policy, ms
from oncekey.core.record import IN_PROGRESS, Record, Seen, State
from oncekey.core.transitions import Aftermath, Facts, moved
from oncekey.engine.journals import journal_of, lasting, sealed, trail
from oncekey.engine.sealing import Sealer
from oncekey.errors import ConfigurationError, OnceKeyError
from oncekey.operations.looking import kept
from oncekey.stores.contract import Store

log = logging.getLogger("oncekey.audit")

# What of a reason and a name is kept; whoever has more to say keeps it elsewhere and refers to it.
LONGEST_WHY, LONGEST_BY = 500, 100
KEEP_FOR = Policy().keep_for
# What a retry is told of an answer that is gone, and the status of one that had none.
ERASED, NO_STATUS = "it was erased on request", 200


class Signature(NamedTuple):
    """Who changes something, and why. Both are kept in the record."""

    by: str
    why: str

    def checked(self) -> Signature:
        """Refuse what says nothing, and what is too long to be kept."""
        for name, text, most in (("by", self.by, LONGEST_BY), ("reason", self.why, LONGEST_WHY)):
            if not text.strip():
                raise ConfigurationError(f"the {name} is empty: every change is signed with who made it and why")
            if len(text) > most:
                raise ConfigurationError(f"the {name} has {len(text)} characters, and {most} are kept: shorten it")
        return self


@dataclass(frozen=True, slots=True)
class Change:
    """What was done to one operation. It is not `written` if it was rehearsed, or if the record had moved on."""

    before: Record
    after: Record
    now: int
    written: bool
    rehearsed: bool = False

    @property
    def moved_on(self) -> bool:
        """Whether somebody else changed the record in between, so that nothing was done."""
        return not self.written and not self.rehearsed


Kept = Answer | Tombstone | Value


def packed(outcome: Kept) -> bytes:
    """What is kept of a finished operation, as bytes."""
    match outcome:
        case Answer():
            return pack(*outcome)
        case Tombstone():
            return tombstone(*outcome)
        case Value():
            return pack_value(outcome.data)


@dataclass(frozen=True, slots=True)
class Desk:
    """Where an operator works: a store, the ring that its answers are sealed with, and whether this is a rehearsal."""

    store: Store
    sealer: Sealer
    rehearse: bool = False

    def complete(
        self, seen: Seen, outcome: Kept, signature: Signature, *, keep_for: float = KEEP_FOR, force: bool = False
    ) -> Change:
        """Override: the effect is there, and this is the answer that every retry gets. Needs no proof but a name.

        `force` overrides what is finished already, or is still at work.
        """
        _check_override(seen, force=force)
        audit = _audit(seen, signature, State.COMPLETED)
        signed = sign(packed(outcome), (*self._lasting(seen.record), audit))
        after = Aftermath(None, ms(keep_for), _note(audit), self.sealer.seal(seen.record.id, signed))
        return self._move("override_completed", seen, audit, after)

    def retryable(self, seen: Seen, signature: Signature, *, keep_for: float = KEEP_FOR, force: bool = False) -> Change:
        """Override: the effect is not there and cannot come any more, so that the next retry may run. As `complete`."""
        _check_override(seen, force=force)
        audit = _audit(seen, signature, State.FAILED_RETRYABLE)
        journal = sealed(seen.record.id, self._journal(seen.record).asking(None).signed(audit), self.sealer)
        return self._move("override_retryable", seen, audit, Aftermath(None, ms(keep_for), _note(audit), journal))

    def ask_again(self, seen: Seen, signature: Signature) -> Change:
        """Have the reconciler ask about an unknown outcome now, as if for the first time: out of the dead letters."""
        if seen.record.state is not State.UNKNOWN:
            raise ConfigurationError(
                f"operation {key_ref(seen.record.id)} is {seen.record.state.word}: only an unknown outcome can be "
                f"asked about"
            )
        audit = _audit(seen, signature, State.UNKNOWN)
        journal = sealed(seen.record.id, self._journal(seen.record).asking(None).signed(audit), self.sealer)
        return self._move("ask_again", seen, audit, Aftermath(0, None, _note(audit), journal))

    def erase(self, seen: Seen, signature: Signature) -> Change:
        """Take away the answer of what is completed. Its key and its status stay, as long as they would have."""
        record, now = seen
        if record.state is not State.COMPLETED:
            raise ConfigurationError(
                f"operation {key_ref(record.id)} is {record.state.word}: only a finished one has an answer to erase"
            )
        audit = _audit(seen, signature, State.COMPLETED)
        signed = sign(tombstone(self._status(record), ERASED), (*self._lasting(record), audit))
        left_for = record.expires_at - now if record.expires_at is not None else None
        return self._move(
            "override_completed",
            seen,
            audit,
            Aftermath(None, left_for, _note(audit), self.sealer.seal(record.id, signed)),
        )

    def _status(self, record: Record) -> int:
        found = kept(record, self.sealer)
        if found is not None and found.problem:
            raise _unsignable(record, found.problem)
        outcome = found.outcome if found is not None else None
        return outcome.status if isinstance(outcome, Answer | Tombstone) else NO_STATUS

    def _move(self, row: str, seen: Seen, audit: Audit, after: Aftermath) -> Change:
        record, now = seen
        new = moved(row, record, Facts(now, reason=audit.why), after)
        if new is None:
            raise ConfigurationError(f"the table has no row {row} from {record.state.word}")
        written = not self.rehearse and isinstance(self.store.swap(Swap(record, new)), Done)
        if written:
            told(record.id, audit)
        return Change(record, new, now, written, self.rehearse)

    def _lasting(self, record: Record) -> tuple[Audit | Trace, ...]:
        try:
            return lasting(record, self.sealer)
        except OnceKeyError as trouble:
            raise _unsignable(record, trouble) from trouble

    def _journal(self, record: Record) -> Journal:
        """What an unfinished record has done so far; of a finished one, what lasts."""
        if record.state in (State.COMPLETED, State.EXPIRED):
            return Journal(self._lasting(record))
        try:
            return journal_of(record, self.sealer)
        except OnceKeyError as trouble:
            raise _unsignable(record, trouble) from trouble


def told(id_: bytes, audit: Audit) -> None:
    """Say a change in the log."""
    words = key_ref(id_), audit.source.word, audit.target.word, audit.by, audit.why
    log.info("operation %s: %s to %s by %s: %s", *words)


def history(record: Record, sealer: Sealer | None = None) -> tuple[Audit, ...]:
    """Who has changed an operation from outside, oldest first; nothing where it cannot be read here."""
    try:
        return trail(record, sealer or Sealer())
    except OnceKeyError:
        return ()


def _check_override(seen: Seen, *, force: bool) -> None:
    record, now = seen
    if force:
        return
    ref = key_ref(record.id)
    if record.state in (State.COMPLETED, State.EXPIRED):
        raise ConfigurationError(
            f"operation {ref} is {record.state.word}: a client may have been told its answer already. Add --force to "
            f"override it all the same"
        )
    if record.state in IN_PROGRESS and (record.lease_until is None or record.lease_until > now):
        raise ConfigurationError(
            f"operation {ref} is still at work, and may have its effect after you have decided: stop it and wait for "
            f"the end of its lease, or add --force"
        )


def _audit(seen: Seen, signature: Signature, target: State) -> Audit:
    by, why = signature.checked()
    return Audit(by, why, seen.now, seen.record.state, target)


def _note(audit: Audit) -> str:
    return f"{audit.by}: {audit.why}"


def _unsignable(record: Record, trouble: OnceKeyError | str) -> ConfigurationError:
    return ConfigurationError(
        f"operation {key_ref(record.id)} cannot be signed, because what is kept of it cannot be read here: {trouble}"
    )
