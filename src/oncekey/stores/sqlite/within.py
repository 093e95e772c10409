"""The store's own plan, carried out in a caller's transaction, which has the write lock of the file already."""

from __future__ import annotations

from typing import Any, Final, TypeVar

from oncekey.core.commands import DONE, Claim, Claimed, Settlement, Swap, Won, Written
from oncekey.core.record import Seen
from oncekey.errors import StoreUnavailable
from oncekey.stores.memory import wall_clock
from oncekey.stores.sqlite.plan import SqlitePlan, after, one, text
from oncekey.stores.sqlite.plan import Steps as Planned
from oncekey.stores.sqlite.statements import STATEMENTS, repeated
from oncekey.stores.sqlite.steps import Change, Phase, Rows
from oncekey.stores.within import Ask, Steps

T = TypeVar("T")
# It ends with the transaction in which it was set: so it shows whether that is still the one that is open.
MARK: Final = "oncekey_attempt"
CLAIM: Final = repeated("claim", 1)
_GONE: Final = "no such savepoint"


class SqliteWithin:
    """One attempt in one transaction."""

    mark = MARK

    def __init__(self) -> None:
        self._plan = SqlitePlan()

    def claim(self, claim: Claim) -> Steps[Claimed]:
        """Insert what is not there."""
        if (yield Ask(CLAIM, one(claim, wall_clock()))).changed == 1:
            yield Ask(f"SAVEPOINT {MARK}")
            return Won(claim.lease_for)
        found = yield from self.look(claim.id)
        if found is None:
            raise StoreUnavailable("a record was neither taken nor found: nothing was run, try again")
        return found

    def look(self, id_: bytes) -> Steps[Seen | None]:
        """Read the record."""
        return (yield from _carry_out(self._plan.get(id_)))

    def swap(self, swap: Swap) -> Steps[Written]:
        """Replace the record that was seen."""
        written = yield from _carry_out(self._plan.swap(swap))
        if written == DONE:
            yield Ask(f"SAVEPOINT {MARK}")
        return written

    def complete(self, settlement: Settlement) -> Steps[bool]:
        """Keep the outcome. False: this is another transaction than the one in which the key was claimed."""
        id_, token, _, outcome, keep_for, due_for, _ = settlement
        try:
            yield Ask(f"RELEASE {MARK}")
        except Exception as error:
            if _GONE not in str(error):
                raise
            return False
        now = wall_clock()
        values = (after(now, due_for), after(now, keep_for), outcome, id_, token)
        return (yield Ask(STATEMENTS["complete"], values)).changed == 1

    def doubt(self, settlement: Settlement) -> Steps[bool]:
        """Keep that nobody knows what became of it. The rollback to the mark has shown which transaction this is."""
        yield Ask(f"RELEASE {MARK}")
        values = (after(wall_clock(), settlement.due_for), text(settlement.note), settlement.id, settlement.token)
        return (yield Ask(STATEMENTS["doubt"], values)).changed == 1

    def closing(self, settlement: Settlement) -> Ask | None:
        """None: there is no server, and no way to it to spare."""
        del settlement
        return None

    def missed(self, error: Exception) -> bool:
        """See `closing`."""
        raise TypeError(error)


def _carry_out(planned: Planned[T]) -> Steps[T]:
    """Run a verb of the plan; its phases begin nothing here, and nobody can wait for what nobody sees."""
    answer: Any = None
    try:
        while True:
            step = planned.send(answer)
            answer = None
            if isinstance(step, Phase):
                answer = wall_clock()
            elif isinstance(step, Rows):
                answer = (yield Ask(*step)).rows
            elif isinstance(step, Change):
                answer = (yield Ask(*step)).changed
    except StopIteration as end:
        return end.value  # type: ignore[no-any-return]
