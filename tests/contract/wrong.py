"""Stores that do one thing wrong, as home-made ones do: whoever tests stores must find them out."""

from __future__ import annotations

from collections.abc import Sequence

from oncekey.core.commands import DONE, Claim, Claimed, Purged, Settlement, Written
from oncekey.core.record import Record, State, replace
from oncekey.stores.memory import MemoryStore


class Forgetful(MemoryStore):
    """Overwrites what stands there, as a plain SET would."""

    def _claim(self, claim: Claim, now: int) -> Claimed:
        self._records.pop(claim.id, None)
        self._open.pop(claim.id, None)
        return super()._claim(claim, now)


class Trusting(MemoryStore):
    """Settles without looking at the token."""

    def settle(self, many: Sequence[Settlement]) -> list[Written]:
        """Borrow the token that stands there."""
        stands = {one.id: self._records.get(one.id) for one in many}
        return super().settle([one._replace(token=r.token) if (r := stands[one.id]) else one for one in many])


class Greedy(MemoryStore):
    """Purges whatever has an expiry, open or not."""

    def purge(self, limit: int = 500) -> Purged:
        """Look at the time alone."""
        old = [id_ for id_, r in self._records.items() if r.expires_at is not None and r.expires_at <= self.clock()]
        for id_ in old[:limit]:
            del self._records[id_]
            self._open.pop(id_, None)
        return Purged(len(old[:limit]), len(old) > limit)


class Rewriting(MemoryStore):
    """A repeated completion overwrites the first answer."""

    def settle(self, many: Sequence[Settlement]) -> list[Written]:
        """Forget that it was settled before."""
        for one in many:
            record = self._records.get(one.id)
            if record is not None and record.state is one.target is State.COMPLETED and record.token == one.token:
                self._records[one.id] = replace(record, outcome=one.outcome)
        return super().settle(many)


class Amnesiac(MemoryStore):
    """An end that is none takes the journal away with it."""

    def settle(self, many: Sequence[Settlement]) -> list[Written]:
        """Write the outcome that was brought, even if none was."""
        before = {one.id: self._records.get(one.id) for one in many}
        written = super().settle(many)
        for one in many:
            record = self._records.get(one.id)
            if record is not None and record is not before[one.id] and not one.outcome:
                self._records[one.id] = replace(record, outcome=b"")
        return written


class Backwards(MemoryStore):
    """Answers a batch in the order of ids."""

    def claim(self, many: Sequence[Claim]) -> list[Claimed]:
        """Sort, and forget to sort back."""
        return super().claim(sorted(many))


class Bulldozing(MemoryStore):
    """What comes from another store takes the place of what stands."""

    def put(self, many: Sequence[Record]) -> list[Written]:
        """Write whatever comes."""
        for record in many:
            self._put(record)
        return [DONE] * len(many)


WRONG = (Forgetful, Trusting, Greedy, Rewriting, Amnesiac, Backwards, Bulldozing)
