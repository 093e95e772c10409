"""Claim, look, swap and complete in a caller's own transaction: one statement each, on any driver."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from typing import Any

from oncekey.core.commands import DONE, Claim, Claimed, Settlement, Stale, Swap, Won, Written
from oncekey.core.record import Guarantee, Record, Seen
from oncekey.errors import StoreUnavailable
from oncekey.stores.postgres.binary import text
from oncekey.stores.postgres.plan import seen
from oncekey.stores.postgres.statements import texts_of
from oncekey.stores.within import Ask, InFlight, Steps

ROUNDS = 3
UNREADABLE_TEXT = "22P02"
# Behind the claim: what the work has written can be undone while the key stays taken.
MARK = "oncekey_claimed"
SAVEPOINT = f"SAVEPOINT {MARK}"


@cache
def _known(table: str) -> dict[str, str]:
    return texts_of("within.sql", table)


class PostgresWithin:
    """One attempt in one transaction, at any isolation level."""

    mark = MARK

    def __init__(self, table: str) -> None:
        self._known = _known(table)
        self._number: str | None = None
        self._locked = False

    def claim(self, claim: Claim) -> Steps[Claimed]:
        """Insert what is not there. Raises InFlight where nothing can be seen yet."""
        label = [text(part) for part in claim.label]
        values = (claim.id, _lock(claim.id), claim.token, claim.fingerprint, Guarantee.AT_MOST_ONCE.value)
        for _ in range(ROUNDS):
            ((self._locked, self._number, _, *row),) = (
                yield Ask(self._known["claim"], (*values, claim.lease_for, *label), SAVEPOINT)
            ).rows
            if self._number is not None:
                return Won(claim.lease_for)
            found = _read(row)
            if found is None and not self._locked:
                raise InFlight
            # A record that was committed after the statement had begun is seen by the next one.
            found = found or (yield from self.look(claim.id))
            if found is not None:
                return found
        raise StoreUnavailable("a record came and went while it was claimed; nothing was run, try again")

    def look(self, id_: bytes) -> Steps[Seen | None]:
        """Read the record."""
        (row,) = (yield Ask(self._known["look"], (id_,))).rows
        return _read(row)

    def swap(self, swap: Swap) -> Steps[Written]:
        """Replace the record that was seen; without the lock another transaction is doing it."""
        if not self._locked:
            raise InFlight
        seen_, new = swap
        guard = (seen_.id, seen_.version, seen_.token or None, seen_.expires_at)
        rows = (yield Ask(self._known["swap"], (*guard, *_columns(new)), SAVEPOINT)).rows
        if not rows:
            return Stale((yield from self.look(seen_.id)))
        self._number = rows[0][0]
        return DONE

    def complete(self, settlement: Settlement) -> Steps[bool]:
        """Keep the outcome. False: this is another transaction than the one in which the key was claimed."""
        return bool((yield Ask(self._known["complete"], self._kept(settlement))).rows)

    def doubt(self, settlement: Settlement) -> Steps[bool]:
        """Keep that nobody knows what became of it."""
        id_, token, _, _, _, due_for, note = settlement
        return bool((yield Ask(self._known["doubt"], (id_, token, due_for, text(note), self._number))).rows)

    def closing(self, settlement: Settlement) -> Ask | None:
        """The same, so that the server lets nothing behind it happen: a commit may be sent along."""
        return Ask(self._known["close"], self._kept(settlement))

    def missed(self, error: Exception) -> bool:
        """Whether it was another transaction: nothing else in that statement is read from text."""
        return getattr(error, "sqlstate", None) == UNREADABLE_TEXT

    def _kept(self, settlement: Settlement) -> tuple[Any, ...]:
        id_, token, _, outcome, keep_for, due_for, _ = settlement
        return id_, token, outcome, keep_for, due_for, self._number, Guarantee.TRANSACTIONAL.value


def _lock(id_: bytes) -> int:
    """The number of a key's lock: two keys with one number would only find each other in flight."""
    return int.from_bytes(id_[:8], "big", signed=True)


def _read(row: Sequence[Any]) -> Seen | None:
    # Some drivers give a view of bytes.
    plain = tuple(bytes(value) if isinstance(value, memoryview) else value for value in row)
    return seen(plain) if plain[1] is not None else None


def _columns(new: Record) -> tuple[Any, ...]:
    times = (new.claimed_at, new.lease_until, new.due_at, new.expires_at)
    head = (new.state.value, new.version, new.token or None, new.fingerprint, new.guarantee.value, new.attempts)
    return (*head, *times, new.waited, *map(text, new.label), text(new.note), new.outcome)
