"""One HTTP request in one transaction of the application's own session: claim, work, answer, commit; then the client.

Flows, as in effects.link. An adapter reads the request, lets the framework find the session, and calls in this order

    enter      None: run the handler. A Reply: give that instead, the handler is not run
    answered   the handler has answered: the answer stands in the commit, or, where it is not one that is kept, nothing
    failed     the handler has raised: nothing stands anywhere, but for a Declined, whose answer is kept

The transaction is ended here, also where a dependency or a before_request has opened it with a read: who is answered
after a commit must know that it took place.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any, NoReturn

from oncekey.core.decision import Execute, Replay
from oncekey.core.keys import key_ref
from oncekey.core.record import State
from oncekey.effects import connections
from oncekey.effects.link import Flow
from oncekey.effects.transaction import trouble
from oncekey.effects.transaction.block import UNSURE, Block
from oncekey.engine import events
from oncekey.engine.common import say
from oncekey.engine.events import log
from oncekey.engine.operation import Operation
from oncekey.errors import ConfigurationError, Declined, NotExecuted, OnceKeyError, OutcomeUnknown, StoreUnavailable
from oncekey.http.exchange import STREAMED, TOO_LONG

if TYPE_CHECKING:
    from oncekey.core.commands import Settlement
    from oncekey.effects.transaction.context import House
    from oncekey.engine.attempt import Attempt
    from oncekey.http.exchange import Exchange
    from oncekey.http.messages import Headers, Reply

# How much of an error's own words is passed on.
NOTE = 200


class TransactionOperation(Operation):
    """The operation at hand, where its record is not to be seen before the commit. `connection` is the session."""

    def __init__(self, attempt: Attempt, key: str, connection: Any) -> None:
        super().__init__(None, attempt, key)  # type: ignore[arg-type] # it asks its engine for nothing
        self.connection = connection

    def external(self, step: str, **_: Any) -> NoReturn:
        """Not here: an intent that stands in an open transaction warns nobody."""
        raise ConfigurationError(
            f"external({step!r}) needs a record that others see, and in a transaction nobody sees it before the "
            "commit: stage a message in the outbox instead, or guard this route without guarantee='transactional'"
        )

    def step(self, name: str, *_: Any, **__: Any) -> NoReturn:
        """Not here: a step's result would be rolled back with the rest."""
        raise ConfigurationError(
            f"step({name!r}) keeps a result for a later attempt, and a transaction that fails keeps nothing: write it "
            "as part of the work, or guard this route without guarantee='transactional'"
        )


class Guarding:
    """One request with a key."""

    def __init__(self, house: House, exchange: Exchange) -> None:
        self._house = house
        self._exchange = exchange
        self._block: Block | None = None
        self._attempt: Attempt | None = None
        self._entered = 0.0
        self.operation: TransactionOperation | None = None

    @property
    def running(self) -> bool:
        """Whether the handler was let in, and its end is not recorded yet."""
        return self._attempt is not None

    @property
    def awaited(self) -> bool:
        """The colour of the session."""
        return self._block is not None and self._block.awaited

    # ---- begin ---------------------------------------------------------------------------------------------------

    def enter(self, connection: Any, *, awaited: bool) -> Flow[Reply | None]:
        """Claim the key on this session. None: run the handler. Whatever goes wrong is refused, and nothing is run."""
        exchange, started = self._exchange, time.monotonic()
        try:
            connections.recognised(connection)
            self._block = block = Block(self._house.records, exchange, connection, awaited=awaited, whole=True)
            decision = yield from block.enter(exchange.gate.policy.wait_for)
            say(self._house.said, decision, exchange.claim, started)
            if isinstance(decision, Execute):
                self._attempt, self._entered = exchange.attempt(decision, started), time.monotonic()
                self.operation = TransactionOperation(self._attempt, exchange.key, connection)
                return None
            if isinstance(decision, Replay):
                yield from block.undo()
            return exchange.answer(decision)
        except Exception as error:  # noqa: BLE001 - nothing has run yet, and nothing will
            return (yield from self._refused(error))

    def _refused(self, error: Exception) -> Flow[Reply]:
        if self._block is not None:
            yield from self._block.undo()
        if trouble.collided(error):
            return self._exchange.refuse(NotExecuted())
        log.error("operation %s was refused: %s", key_ref(self._exchange.claim.id), error)
        ours = error if isinstance(error, OnceKeyError) else StoreUnavailable(str(error))
        return self._exchange.refuse(ours)

    # ---- end -----------------------------------------------------------------------------------------------------

    def answered(self, status: int, headers: Headers, body: bytes | None) -> Flow[Headers | Reply]:
        """The handler has answered: headers to add to that, or what to answer instead. A stream has no body to keep."""
        block, attempt = self._ending()
        kept, lack = (bytes(body), "") if body is not None else (None, STREAMED)
        if kept is not None and len(kept) > self._exchange.gate.policy.max_kept:
            kept, lack = None, TOO_LONG
        try:
            answered = self._exchange.answered(attempt, status, headers, kept, lack)
        except BaseException:
            # An answer that cannot be written down (a key of encryption that is gone...) leaves nothing open.
            yield from block.undo()
            raise
        if answered.settlement.target is not State.COMPLETED:
            # Not an answer to keep (5xx, 429...): here that means that nothing was done.
            yield from block.undo()
            self._say(events.FAILED_RETRYABLE, answered.settlement.note)
            return answered.marks
        refused = yield from self._committed(block, answered.settlement)
        return answered.marks if refused is None else refused

    def failed(self, error: BaseException) -> Flow[Reply | None]:
        """The handler has raised. A Reply is the answer to that; None: the framework answers, as to any error."""
        block, attempt = self._ending()
        if isinstance(error, OutcomeUnknown):
            yield from block.doubt(UNSURE)
            self._say(events.TURNED_UNKNOWN, UNSURE)
            return self._exchange.refuse(error)
        yield from block.undo()
        if isinstance(error, Declined):
            return (yield from self._declined(block, attempt, error))
        self._say(events.FAILED_RETRYABLE, f"{type(error).__name__}: {error}"[:NOTE])
        if isinstance(error, NotExecuted) or trouble.collided(error):
            return self._exchange.refuse(NotExecuted())
        return None

    def rolled_back(self) -> Flow[None]:
        """The code has asked for a rollback by itself, in a way that its framework knows."""
        block, _ = self._ending()
        yield from block.undo()
        self._say(events.FAILED_RETRYABLE, "the code has asked for a rollback")

    def _ending(self) -> tuple[Block, Attempt]:
        block, attempt = self._block, self._attempt
        if block is None or attempt is None:
            raise TypeError(self)
        self._attempt = None
        return block, attempt

    def _say(self, name: str, detail: str = "") -> None:
        ran_for = time.monotonic() - self._entered
        self._house.said.say(name, self._exchange.claim.id, detail, ran_for=ran_for)

    def _declined(self, block: Block, attempt: Attempt, error: Declined) -> Flow[Reply]:
        """A final no: what was written is gone, and the answer is kept by itself."""
        kept = self._exchange.failed(attempt, error)
        try:
            decision = yield from block.enter()
        except Exception as trouble_:  # noqa: BLE001 - nothing stands, and the retry hears it anew
            self._say(events.FAILED_RETRYABLE, str(trouble_)[:NOTE])
            return (yield from self._refused(trouble_))
        if not isinstance(decision, Execute):
            yield from block.undo()
            return self._exchange.answer(decision)
        return (yield from self._committed(block, kept)) or self._exchange.failure(kept, error)

    def _committed(self, block: Block, settlement: Settlement) -> Flow[Reply | None]:
        """Commit. A Reply says to the client that it did not take place, or that nobody knows."""
        refs = key_ref(settlement.id)
        try:
            yield from block.complete(settlement)
        except OnceKeyError as error:
            log.error("the outcome of operation %s is unknown: %s", refs, error)
            self._say(events.TURNED_UNKNOWN, str(error)[:NOTE])
            return self._exchange.refuse(OutcomeUnknown())
        except Exception as error:
            if not trouble.passing(error):
                raise
            log.warning("operation %s was not committed, and may be sent again: %s", refs, error)
            self._say(events.FAILED_RETRYABLE, str(error)[:NOTE])
            return self._exchange.refuse(NotExecuted())
        self._say(events.COMPLETED)
        return None
