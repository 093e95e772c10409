"""Bugs that people write, to be switched on from outside: a chaos run that does not catch each of them proves nothing.

`install` runs in a worker or a janitor, before it opens its store. Nothing of this is in the shipped package.
"""

from __future__ import annotations

import asyncio
import json
import sqlite3
import time
from collections.abc import Callable, Sequence
from contextlib import closing
from typing import Any, NamedTuple

from oncekey.adapters.asgi_answer import Answering
from oncekey.core.commands import Claim, Claimed, Purged, Won
from oncekey.core.decision import Decision, Execute
from oncekey.core.record import Guarantee, Record, Seen
from oncekey.engine.aio import AsyncEngine
from oncekey.errors import StoreError
from oncekey.http import capture
from oncekey.http import scope as scopes
from oncekey.http.exchange import Exchange
from oncekey.http.messages import Reply
from oncekey.stores.contract import Store
from oncekey.stores.planned import AsyncPlannedStore
from oncekey.stores.sqlite.statements import STATEMENTS

# From a look to an act, from an answer to its record: as long as a round trip to a busy server.
MOMENT = 0.03
TOO_OLD_MS = 250


def check_then_act() -> None:
    """Looks whether there is a record, and writes its own if there was none."""
    real = AsyncPlannedStore.claim

    async def claim(self: AsyncPlannedStore, many: Sequence[Claim]) -> list[Claimed]:
        seen = [await self.get(each.id) for each in many]
        await asyncio.sleep(MOMENT)
        written = await real(self, many)
        return [
            Won(each.lease_for) if before is None and isinstance(after, Seen) else after
            for each, before, after in zip(many, seen, written, strict=True)
        ]

    AsyncPlannedStore.claim = claim  # type: ignore[method-assign]


def take_over() -> None:
    """Takes a lease that is over for a permission to run the work again."""
    Guarantee.may_take_over = property(lambda self: True)  # type: ignore[method-assign,assignment]


def unfenced_complete() -> None:
    """Writes how its attempt ended into the record, whoever owns it by now."""
    guards = " AND token = s.column2 AND token <> x'' AND (s.column4 >> state) & 1"
    fenced = STATEMENTS["settle"]
    assert guards in fenced
    STATEMENTS["settle"] = fenced.replace(guards, "")


def delete_on_error() -> None:
    """Gives the key back on every error, as if an error meant that nothing was done."""
    real = capture._unfinished  # the one place that decides it
    capture._unfinished = lambda policy, note, *, nothing_done: real(policy, note, nothing_done=True)


def answer_before_durable() -> None:
    """Answers first, and records that it has done so a moment later."""

    async def commit(self: Any, body: bytes | None, lack: str) -> bool:
        answered = self._exchange.answered(self._attempt, self._start["status"], self._headers, body, lack)
        await self._send({**self._start, "headers": self._headers + answered.marks})
        self.settled = True
        self._upload.end()
        loop = asyncio.get_running_loop()
        loop.call_later(MOMENT, lambda: loop.create_task(self._engine.settle(self._attempt, answered.settlement)))
        return True

    Answering._commit = commit  # type: ignore[method-assign]


def purge_of_in_progress() -> None:
    """Deletes what is old, whatever state it is in: see janitors_store."""


def no_scope() -> None:
    """One namespace of keys for all callers."""
    scopes.required = lambda scope: scopes.SHARED


def no_fingerprint() -> None:
    """Asks for the key alone, and not for what was sent under it."""
    Exchange.same_request = lambda self, stored: True  # type: ignore[method-assign]


def fail_open() -> None:
    """Runs the work when the store cannot be asked: better twice than not at all."""
    real = AsyncEngine.enter

    async def enter(self: AsyncEngine, claim: Claim, *asked: Any, **more: Any) -> Decision:
        try:
            return await real(self, claim, *asked, **more)
        except StoreError:
            return Execute(claim.id, claim.token, 1, claim.lease_for)

    AsyncEngine.enter = enter  # type: ignore[method-assign]


def reserialised_body() -> None:
    """Keeps what the JSON means, and writes it anew for every replay."""
    real = Exchange.replay

    def replay(self: Exchange, record: Record) -> Reply:
        stored = real(self, record)
        body = json.dumps(json.loads(stored.body)).encode()
        rest = [header for header in stored.headers if header[0] != b"content-length"]
        return Reply(stored.status, [*rest, (b"content-length", b"%d" % len(body))], body)

    Exchange.replay = replay  # type: ignore[method-assign]


class Mutant(NamedTuple):
    """How a bug is switched on, which faults are aimed at it (by name; none: clients alone), and who must catch it."""

    install: Callable[[], None]
    rules: frozenset[str]
    blows: tuple[str, ...] = ()


R1, R2, R4, R5, R6 = (frozenset({rule}) for rule in ("R1", "R2", "R4", "R5", "R6"))

MUTANTS = {
    "check-then-act": Mutant(check_then_act, R1),
    "take-over": Mutant(take_over, R1, ("stop_at_the_effect", "kill_at_the_effect")),
    "unfenced-complete": Mutant(unfenced_complete, R1 | R4, ("stop_at_the_effect",)),
    "delete-on-error": Mutant(delete_on_error, R1, ("lose_the_providers_reply",)),
    "answer-before-durable": Mutant(answer_before_durable, R4),
    "purge-of-in-progress": Mutant(purge_of_in_progress, R1),
    "no-scope": Mutant(no_scope, R5),
    "no-fingerprint": Mutant(no_fingerprint, R6),
    "fail-open": Mutant(fail_open, R1, ("store_away",)),
    "re-serialised-body": Mutant(reserialised_body, R2),
}
NAMES = tuple(MUTANTS)


def install(name: str) -> None:
    """Have this bug from now on; no name, no bug."""
    if name:
        MUTANTS[name].install()


def janitors_store(store: Store, name: str) -> Store:
    """The store as a janitor sees it; one mutant deletes by age."""
    if name == "purge-of-in-progress":
        path = store.url.removeprefix("sqlite:///")

        def purge(limit: int = 500) -> Purged:
            with closing(sqlite3.connect(path, timeout=1.0, isolation_level=None)) as file:
                before = int(time.time() * 1000) - TOO_OLD_MS
                file.execute("DELETE FROM oncekey_record WHERE state <> 3 AND claimed_at < ?", (before,))
            return Purged(0, more=False)

        store.purge = purge  # type: ignore[method-assign]
    return store
