"""`with once.transaction(...)`, `async with once.transaction(...)`, and both as decorators."""

from __future__ import annotations

import asyncio
import functools
import inspect
import time
from collections.abc import Callable, Iterator
from types import TracebackType
from typing import TYPE_CHECKING, Any, Concatenate, NamedTuple, ParamSpec, Self, TypeVar, cast

from oncekey.core.commands import Settlement
from oncekey.core.decision import Execute, Replay
from oncekey.core.keys import key_ref
from oncekey.effects.link import Flow, drive, drive_async
from oncekey.effects.transaction import trouble, values
from oncekey.effects.transaction.block import FIRST_PAUSE, UNSURE, Block, jittered
from oncekey.effects.transaction.request import Request
from oncekey.engine import events
from oncekey.engine.common import say
from oncekey.errors import ConfigurationError, OutcomeUnknown
from oncekey.http.answer import not_granted

if TYPE_CHECKING:
    from oncekey.effects.transaction.records import Records
    from oncekey.engine.events import Events
    from oncekey.http.exchange import Exchange
    from oncekey.http.gate import Gate


P = ParamSpec("P")
T = TypeVar("T")


class Again(NamedTuple):
    """Whether, and how often, the whole block is run again when the database asks for it."""

    database_only: bool
    tries: int

    def wanted(self, error: BaseException) -> bool:
        """Whether the database asks for it, and nothing else was touched."""
        return self.database_only and trouble.collided(error)

    def pauses(self) -> Iterator[float]:
        """How long to wait before each further try."""
        return (jittered(FIRST_PAUSE * 2**attempt) for attempt in range(self.tries - 1))


class House(NamedTuple):
    """What all transactions of one installation share."""

    gate: Gate
    records: Records
    said: Events


class Transaction:
    """One operation in one transaction of yours. See OnceKey.transaction.

    `connection` is what to write on, `replayed` whether this was done before, `value` what it gave then. `attempt`
    counts from 1; `ref` is a short name for logs, from which the key cannot be read.
    """

    def __init__(self, house: House, given: Any, request: Request, again: Again) -> None:
        self._house = house
        self._again = again
        self._given = given
        self._request = request
        self._block: Block | None = None
        self._exchange: Exchange | None = None
        self._outcome: bytes | None = None
        self.replayed = False
        self.value: Any = None
        self.attempt = 0
        self.ref = ""

    @property
    def connection(self) -> Any:
        """What to write on."""
        if self._block is None:
            raise ConfigurationError("the transaction has not begun: write `with once.transaction(...) as tx`")
        return self._block.connection

    def complete(self, value: Any = None) -> None:
        """Say what retries are given: bytes, what JSON can say, or an Answer of HTTP. Kept when the block ends."""
        outcome = values.packed(value)
        most = self._house.gate.policy.max_kept
        if len(outcome) > most:
            raise ConfigurationError(f"the result has {len(outcome)} bytes, and max_kept={most} are kept: give less")
        self.value, self._outcome = value, outcome

    # ---- flows ---------------------------------------------------------------------------------------------------

    def _enter(self, *, awaited: bool) -> Flow[Self]:
        house = self._house
        self._request.check()
        self._exchange = exchange = self._request.exchange(house.gate)
        self._block = block = Block(house.records, exchange, self._given, awaited=awaited)
        decision = yield from block.enter(house.gate.policy.wait_for)
        say(house.said, decision, exchange.claim)
        self.ref = key_ref(exchange.claim.id)
        if isinstance(decision, Execute):
            self.attempt, self.replayed, self.value, self._outcome = decision.attempt, False, None, None
        elif isinstance(decision, Replay):
            yield from self._replay(block, decision)
        else:
            raise not_granted(decision)
        return self

    def _replay(self, block: Block, decision: Replay) -> Flow[None]:
        record = decision.record
        try:
            self.value = values.unpacked(self._house.gate.sealer.open(record.id, record.outcome))
        except BaseException:
            yield from block.undo()
            raise
        self.replayed, self.attempt = True, record.attempts

    def _exit(self, error: BaseException | None) -> Flow[None]:
        block, exchange = self._block, self._exchange
        if block is None or exchange is None:
            raise TypeError(self)
        if isinstance(error, OutcomeUnknown) and not self.replayed:
            yield from block.doubt(UNSURE)
            self._house.said.say(events.TURNED_UNKNOWN, exchange.claim.id, UNSURE)
            return
        # What a replay has written was not meant: it is undone too.
        if error is not None or self.replayed:
            yield from block.undo()
            return
        gate, claim = self._house.gate, exchange.claim
        if self._outcome is None:
            self.complete()
        ending = gate.kept
        outcome = gate.sealer.seal(claim.id, self._outcome or b"")
        settlement = Settlement(claim.id, claim.token, ending.target, outcome, ending.keep_for, ending.due_for)
        yield from block.complete(settlement)
        self._house.said.say(events.COMPLETED, claim.id)

    # ---- both colours --------------------------------------------------------------------------------------------

    def __enter__(self) -> Self:
        return drive(self._enter(awaited=False))

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        drive(self._exit(error))

    async def __aenter__(self) -> Self:
        return await drive_async(self._enter(awaited=True))

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await drive_async(self._exit(error))

    def __call__(self, work: Callable[Concatenate[Any, P], T]) -> Callable[P, T]:
        """Make a function run in such a transaction; it is given the connection before what it is called with."""
        if inspect.iscoroutinefunction(work):

            @functools.wraps(work)
            async def call_async(*args: Any, **kwargs: Any) -> Any:
                pauses = self._again.pauses()
                while True:
                    try:
                        return await _run_async(self._called(*args, **kwargs), work, args, kwargs)
                    except Exception as error:
                        if not self._again.wanted(error) or (pause := next(pauses, None)) is None:
                            raise
                    await asyncio.sleep(pause)

            return cast("Callable[P, T]", call_async)

        @functools.wraps(work)
        def call(*args: Any, **kwargs: Any) -> Any:
            pauses = self._again.pauses()
            while True:
                try:
                    return _run(self._called(*args, **kwargs), work, args, kwargs)
                except Exception as error:
                    if not self._again.wanted(error) or (pause := next(pauses, None)) is None:
                        raise
                time.sleep(pause)

        return call

    def _called(self, *args: Any, **kwargs: Any) -> Transaction:
        return Transaction(self._house, self._given, self._request.called(*args, **kwargs), self._again)


def _run(tx: Transaction, work: Callable[..., Any], args: Any, kwargs: Any) -> Any:
    with tx:
        if not tx.replayed:
            tx.complete(work(tx.connection, *args, **kwargs))
    return tx.value


async def _run_async(tx: Transaction, work: Callable[..., Any], args: Any, kwargs: Any) -> Any:
    async with tx:
        if not tx.replayed:
            tx.complete(await work(tx.connection, *args, **kwargs))
    return tx.value
