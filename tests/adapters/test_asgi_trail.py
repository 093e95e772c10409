from __future__ import annotations

import asyncio

from oncekey import NotExecuted
from oncekey.core.record import State
from oncekey.engine.sealing import Sealer
from oncekey.operations import Desk, Signature, history
from tests.adapters.asgi_kit import Guarded, Shop, call


class Fails(Shop):
    """Fails without effect the first time."""

    async def __call__(self, scope: object, receive: object, send: object) -> None:
        """Serve."""
        if not self.scopes:
            self.scopes.append(scope)
            raise NotExecuted
        await super().__call__(scope, receive, send)


async def test_a_retry_keeps_the_trail_of_who_allowed_it() -> None:
    """The answer of a run that an operator allowed is replayed, and its record still says who allowed it."""
    guarded = Guarded(Fails())
    await call(guarded)
    assert guarded.state is State.FAILED_RETRYABLE
    assert Desk(guarded.store, Sealer()).retryable(guarded.seen(), Signature("ann", "the card was changed")).written
    first, second = await call(guarded), await call(guarded)
    assert (first.status, second.body) == (201, first.body)
    assert [line.by for line in history(guarded.records[0])] == ["ann"]


async def test_over_a_journal_that_cannot_be_read_nothing_runs() -> None:
    """It may name calls and steps of earlier attempts: the client is told to come back, and nothing is overwritten."""
    guarded = Guarded(shop := Fails())
    await call(guarded)
    record = guarded.records[0]
    guarded.store._records[record.id] = record._replace(outcome=b"\xffgarbage")
    assert (await call(guarded))[b"idempotency-problem"] == b"record-unreadable"
    assert shop.effects == []
    while guarded.state is not State.FAILED_RETRYABLE:
        await asyncio.sleep(0.01)
    assert guarded.records[0].outcome == b"\xffgarbage"
