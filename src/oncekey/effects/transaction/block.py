"""One attempt in one transaction: the key is claimed, the work is done and the outcome is kept in it, or nothing is.

Flows, as in effects.link: the same under threads and under asyncio. The order of things is

    enter      a connection, a transaction, the claim in it. Execute and Replay leave it open, everything else undoes it
    complete   the outcome in it, then the commit. A commit that nobody confirmed is looked for, by a write
    undo       nothing has happened
    doubt      the work is undone and the key is shut: what it has done elsewhere is not known

Who commits in between, by himself, commits a claim without its outcome: `complete` notices and raises, and the
operation is unknown, also if the process dies first. Nobody runs it again before that is resolved.
"""

from __future__ import annotations

import os
import time
from contextlib import suppress
from typing import TYPE_CHECKING, Any, TypeVar

from oncekey.core import flows
from oncekey.core.commands import DONE, Claim, Claimed, Look, Renewal, Settlement, Swap, Won, Written
from oncekey.core.decision import Decision, Execute, InProgress, Replay
from oncekey.core.record import Guarantee, Seen, State
from oncekey.core.transitions import claimed
from oncekey.effects.link import Flow, Link
from oncekey.effects.transaction import trouble
from oncekey.effects.transaction.source import Source, Undone
from oncekey.engine.common import release
from oncekey.engine.events import log
from oncekey.errors import OutcomeUnknown, StoreError, TransactionEnded
from oncekey.stores.within import Ask, InFlight, Steps

if TYPE_CHECKING:
    from oncekey.effects.transaction.records import Records
    from oncekey.http.exchange import Exchange
    from oncekey.stores.within import Within

T = TypeVar("T")

# How often a claim that met other transactions is tried, before anything of the caller's has run.
TRIES = 5
# What is announced for a key that another transaction has: nobody can see for how long.
BUSY_FOR = 1000
# A duplicate that waits looks again after this long, then ever more seldom.
FIRST_LOOK, LAST_LOOK = 0.02, 0.5
FIRST_PAUSE = 0.02
UNSURE = "the handler raised OutcomeUnknown: what it has done elsewhere is not known"
ENDED = "the transaction was ended by the code inside of it"


class Performer:
    """Single commands, on the caller's connection."""

    def __init__(self, link: Link, plan: Within) -> None:
        self._link = link
        self._plan = plan

    def claim(self, command: Claim) -> Flow[Claimed]:
        return talk(self._plan.claim(command), self._link)

    def look(self, command: Look) -> Flow[Seen | None]:
        return talk(self._plan.look(command.id), self._link)

    def swap(self, command: Swap) -> Flow[Written]:
        return talk(self._plan.swap(command), self._link)

    def settle(self, command: Settlement) -> Flow[Written]:
        raise TypeError(command)

    def renew(self, command: Renewal) -> Flow[Written]:
        raise TypeError(command)


class Block:
    """One attempt. `connection` is what the work writes on.

    `whole`: whatever transaction is open on it already is ended here too, for somebody is answered after the end.
    """

    def __init__(self, records: Records, exchange: Exchange, given: Any, *, awaited: bool, whole: bool = False) -> None:
        self._records = records
        self._exchange = exchange
        self._source = Source(given, awaited=awaited)
        self._link: Link | None = None
        self._plan: Within | None = None
        self._begun = False
        self._whole = whole
        self._taken = False
        id_, token, fingerprint, lease_for, _, _, label = exchange.claim
        self._claim = Claim(id_, token, fingerprint, lease_for, State.EXECUTING, Guarantee.AT_MOST_ONCE, label)

    @property
    def awaited(self) -> bool:
        """The colour of the connection."""
        return self._source.awaited

    @property
    def connection(self) -> Any:
        """What the work writes on."""
        return self._source.connection

    # ---- begin ---------------------------------------------------------------------------------------------------

    def enter(self, wait_for: float | None = None) -> Flow[Decision]:
        """What may be done now. After Execute and Replay the transaction is open."""
        until, pause = time.monotonic() + (wait_for or 0), FIRST_LOOK
        decision = yield from self._enter()
        while isinstance(decision, InProgress) and (left := until - time.monotonic()) > 0:
            yield from self._source.pause(min(pause, left))
            pause = min(pause * 2, LAST_LOOK)
            decision = yield from self._enter()
        return decision

    def _enter(self) -> Flow[Decision]:
        for attempt in range(TRIES):
            try:
                return (yield from self._claimed())
            except Exception as error:
                # What was open before us may have done things that are not ours to do again.
                again = attempt < TRIES - 1 and not self._joined and not self._taken
                if not (again and trouble.collided(error)):
                    raise
            yield from self._source.pause(jittered(FIRST_PAUSE * 2**attempt))
        raise AssertionError

    def _claimed(self) -> Flow[Decision]:
        try:
            yield from self._begin()
            decision = yield from self._decide()
        except BaseException as error:
            yield from self.undo()
            if isinstance(error, InFlight) or trouble.busy(error):
                return InProgress(claimed(None, self._claim, 0), BUSY_FOR)
            explained = self._records.explained(error)
            if explained is not error:
                raise explained from error
            raise
        if not isinstance(decision, Execute | Replay):
            yield from self.undo()
        return decision

    def _begin(self) -> Flow[None]:
        self._link = link = yield from self._source.open()
        self._plan = self._records.plan(link)
        # What `connect` gave may be in a transaction already, which it ends itself: then nothing else is needed.
        if not (self._source.reopens and link.open):
            self._taken = self._whole and link.open
            yield from link.take() if self._whole else link.begin(asking=True)
            self._begun = True

    def _decide(self) -> Flow[Decision]:
        if self._link is None or self._plan is None:
            raise TypeError(self)
        performer: Any = Performer(self._link, self._plan)
        exchange = self._exchange
        flow = flows.enter(self._claim, exchange, exchange.gate.terms, late=exchange.late)
        try:
            command = next(flow)
            while True:
                answer = yield from command.on(performer)
                command = flow.send(answer)
        except StopIteration as end:
            return end.value  # type: ignore[no-any-return]

    # ---- end -----------------------------------------------------------------------------------------------------

    def complete(self, settlement: Settlement) -> Flow[None]:
        """Keep the outcome and commit. If this returns it is durable, or part of the caller's own open transaction."""
        if self._link is None or self._plan is None:
            raise TypeError(self)
        closing = self._plan.closing(settlement) if self._begun and self._link.closes else None
        if closing is None:
            yield from self._keep(settlement)
        refused: Exception | None = None
        try:
            refused = yield from self._commit(closing)
        except Exception as error:
            joined = self._joined
            yield from self.undo()
            if joined or trouble.told(error) or not (yield from self._landed(settlement, error)):
                raise
        except BaseException:
            # Nobody waits for the commit any more: the same key finds out. What was opened is given back.
            yield from self.undo()
            raise
        if refused is not None:
            yield from self.undo()
            if self._plan.missed(refused):
                yield from self._ended()
            raise refused

    def _keep(self, settlement: Settlement) -> Flow[None]:
        """The outcome, in a statement of its own."""
        if self._link is None or self._plan is None:
            raise TypeError(self)
        try:
            whole = yield from talk(self._plan.complete(settlement), self._link)
        except BaseException:
            yield from self.undo()
            raise
        if not whole:
            yield from self.undo()
            yield from self._ended()

    def undo(self) -> Flow[None]:
        """Keep nothing. What cannot be rolled back is a lost connection, and the database has done it."""
        begun, self._begun = self._begun, False
        stopped: BaseException | None = None
        try:
            if begun and self._link is not None:
                yield from self._link.rollback()
        except BaseException as error:  # noqa: BLE001 - what was opened is given back all the same
            stopped = None if isinstance(error, Exception) else error
        with suppress(Exception):
            yield from self._source.leave(Undone())
        if stopped is not None:
            raise stopped

    @property
    def _joined(self) -> bool:
        """Whether the caller's own transaction is the one that commits."""
        return not self._source.reopens and self._link is not None and self._link.joined

    def _commit(self, closing: Ask | None) -> Flow[Exception | None]:
        """Commit, with the outcome if it is not kept yet. What comes back is why it could not be: nothing stands."""
        if self._begun and self._link is not None:
            if closing is None:
                yield from self._link.commit()
            elif (refused := (yield from self._link.close(closing.sql, closing.values))) is not None:
                if not trouble.told(refused):
                    # Whatever broke on the way is heard in place of the first answer, and the commit was behind it.
                    raise refused
                return refused
            self._begun = False
        yield from self._source.leave()
        return None

    def doubt(self, note: str) -> Flow[None]:
        """Undo the work and shut the key, for nobody knows what it has done elsewhere.

        In one commit, so that nobody comes between; where that fails, or somebody else commits, one after the other.
        """
        for way in (self._doubted, self._doubted_beside):
            try:
                kept = yield from way(self._unknown(note))
            except Exception as error:  # noqa: BLE001 - there is another way
                kept = False
                log.warning("a key could not be shut in the transaction that had claimed it: %s", error)
            finally:
                yield from self.undo()
            if kept:
                return
        yield from self.shut(note)

    def _doubted(self, unknown: Settlement) -> Flow[bool]:
        """Where we end the transaction, or whoever does so knows that somebody is answered after it."""
        link, plan = self._link, self._plan
        if link is None or plan is None or not self._begun or (link.joined and not self._whole):
            return False
        yield from link.execute(f"ROLLBACK TO SAVEPOINT {plan.mark}")
        if not (yield from talk(plan.doubt(unknown), link)):
            return False
        yield from link.commit_asked()
        self._begun = False
        return True

    def _doubted_beside(self, unknown: Settlement) -> Flow[bool]:
        """In the caller's transaction on SQLite, which lets no other connection write: true when the caller commits."""
        link, plan = self._link, self._plan
        if link is None or plan is None or link.database != "sqlite" or not (self._joined and link.open):
            return False
        decision = yield from self._decide()
        return isinstance(decision, Execute) and (yield from talk(plan.doubt(unknown), link))

    def _unknown(self, note: str) -> Settlement:
        due_for = self._exchange.gate.terms.reconcile_after_for
        return Settlement(self._claim.id, self._claim.token, State.UNKNOWN, due_for=due_for, note=note)

    def shut(self, note: str) -> Flow[None]:
        """Mark the operation as unknown, whatever became of the transaction: nobody runs it before somebody looks."""
        unknown = self._unknown(note)
        try:
            if (yield from self._ask("settle", unknown)) != DONE:
                # Our claim was rolled back. What came after that may have been committed, statement by statement.
                again = self._claim._replace(token=os.urandom(16))
                yield from self._ask("claim", again)
                yield from self._ask("settle", unknown._replace(token=again.token))
        except StoreError as error:
            log.error("an operation that may have had an effect could not be marked as unknown (%s): %s", note, error)

    def _ended(self) -> Flow[None]:
        """The transaction was ended behind our back. Raises."""
        yield from self.shut(ENDED)
        raise TransactionEnded(
            "the code inside has committed or rolled back by itself, and what it has done is unknown until somebody "
            "looks. Leave the end of the transaction to OnceKey: no commit(), no rollback(), no `with connection:`"
        )

    def _landed(self, settlement: Settlement, error: BaseException) -> Flow[bool]:
        """Whether a commit without answer took place.

        A write waits for a transaction that is still ending, which a look would not see. And if it took place, its
        record is written again: what is acknowledged after it carries it along to other servers.
        """
        log.warning("the answer to a commit was lost, and it is looked for: %s", error)
        again = self._claim._replace(token=os.urandom(16))
        try:
            found = yield from self._ask("claim", again)
            if isinstance(found, Won):
                # It did not take place, and from now on it cannot.
                yield from self._ask("settle", release(again))
                return False
            if found.record.token != self._claim.token or found.record.state is not State.COMPLETED:
                return False
            written: Written = yield from self._ask("settle", settlement)
        except StoreError as trouble_:
            raise OutcomeUnknown(
                f"the answer to the commit was lost and the database cannot be asked ({trouble_}): it was carried out "
                "whole or not at all; the same key finds out"
            ) from error
        return written == DONE

    def _ask(self, verb: str, command: Any) -> Flow[Any]:
        """One verb on a connection of our own; one that is away is given a little time."""
        store: Any = self._records.async_store() if self._source.awaited else self._records.store()
        answer: list[Any] = []
        for attempt in range(TRIES):
            try:
                answer = yield getattr(store, verb)([command])
                break
            except StoreError:
                if attempt == TRIES - 1:
                    yield store.close()
                    raise
            yield from self._source.pause(FIRST_PAUSE * 4**attempt)
        yield store.close()
        return answer[0]


def talk(steps: Steps[T], link: Link) -> Flow[T]:
    """Carry out a plan on the caller's connection."""
    try:
        ask = next(steps)
        while True:
            try:
                answer = yield from link.ask(*ask)
            except Exception as error:  # noqa: BLE001 - the plan decides what it means
                ask = steps.throw(error)
            else:
                ask = steps.send(answer)
    except StopIteration as end:
        return end.value  # type: ignore[no-any-return]


def jittered(seconds: float) -> float:
    """Half to one and a half of it, so that those who collided do not return together."""
    return seconds * (0.5 + os.urandom(1)[0] / 255)
