"""Clients that behave badly: they repeat, race, change their minds and hang up, and write down what they got."""

from __future__ import annotations

import asyncio
import json
import random
import time
from collections.abc import Callable, Coroutine
from contextlib import suppress
from math import inf
from typing import Any

from tests.chaos import speech
from tests.chaos.history import Call, History, Kind, Operation
from tests.chaos.payment import CREATED, digest, short
from tests.chaos.settings import NOTE, path_of
from tests.chaos.slot import Slot

CALLERS = ("Bearer alice", "Bearer bob", "Bearer carol")
KINDS = {
    "in-progress": Kind.BUSY,
    "retry-later": Kind.RELEASED,
    "not-executed": Kind.RELEASED,
    "lease-lost": Kind.RELEASED,
    "outcome-unknown": Kind.UNKNOWN,
    "key-reused": Kind.MISMATCH,
    "store-unavailable": Kind.UNAVAILABLE,
    "record-unreadable": Kind.UNAVAILABLE,
    "body-incomplete": Kind.REFUSED,
}
PATIENCE = 3.0
# How many finished or abandoned operations a client may come back to.
REMEMBERED = 400


class Crowd:
    """All clients of a run. `bodies` has what was sent whole, by operation."""

    def __init__(self, slots: list[Slot], history: History, seed: int) -> None:
        self.slots = slots
        self.history = history
        self.dice = random.Random(seed)
        self.bodies: dict[Operation, list[bytes]] = {}
        self.recent: list[Operation] = []
        self.number = 0
        self.habits: dict[Callable[[], Coroutine[Any, Any, None]], int] = {
            self.steady: 10,
            self.twins: 6,
            self.again: 6,
            self.impatient: 4,
            self.other_body: 3,
            self.other_caller: 3,
            self.hang_up: 3,
            self.note: 5,
        }

    async def run(self, clients: int, until: Callable[[], bool]) -> None:
        """So many clients, each doing one thing after another."""
        await asyncio.gather(*(self._client(until) for _ in range(clients)))

    async def _client(self, until: Callable[[], bool]) -> None:
        while not until():
            [habit] = self.dice.choices(list(self.habits), list(self.habits.values()))
            await habit()
            await asyncio.sleep(self.dice.uniform(0, 0.05))

    # ---- habits --------------------------------------------------------------------------------------------------

    async def steady(self) -> None:
        """Repeats until there is an answer, and then once more."""
        operation, body = self.new()
        await self.insist(operation, body)
        await self.ask(operation, body)

    async def twins(self) -> None:
        """Sends the same request several times at once, to all workers."""
        operation, body = self.new()
        await asyncio.gather(*(self.ask(operation, body, slot=slot) for slot in self.slots * 2))
        await self.insist(operation, body)

    async def again(self) -> None:
        """Comes back to an operation of the past."""
        if self.recent:
            operation = self.dice.choice(self.recent)
            await self.ask(operation, self.bodies[operation][0])

    async def impatient(self) -> None:
        """Hangs up before the answer can be there, and tries again."""
        operation, body = self.new(delay=0.3)
        for _ in range(3):
            await self.ask(operation, body, within=self.dice.uniform(0.01, 0.35))
        await self.insist(operation, body)

    async def other_body(self) -> None:
        """Uses its key for another request, at the same time or later."""
        operation, body = self.new()
        other = body.replace(b'"amount": ', b'"amount": 7')
        self.bodies[operation].append(other)
        await asyncio.gather(self.ask(operation, body), self.ask(operation, other))
        await self.ask(operation, other)

    async def other_caller(self) -> None:
        """Is somebody else, with the same key."""
        operation, body = self.new()
        others = [operation._replace(caller=caller) for caller in CALLERS if caller != operation.caller]
        for other in others:
            self.bodies[other] = [body]
        await asyncio.gather(*(self.insist(each, body) for each in (operation, *others)))

    async def hang_up(self) -> None:
        """Leaves in the middle of its upload; some come back and send all of it."""
        operation, body = self.new(whole=False, size=20_000)
        await self.cut_short(operation, body)
        if self.dice.random() < 0.5:
            self.bodies[operation] = [body]
            await self.insist(operation, body)

    async def note(self) -> None:
        """Something that is kept for a short time only, and asked for once."""
        operation, body = self.new(prefix=NOTE, whole=False)
        self.history.brief.add(operation)
        await self.ask(operation, body)

    async def across(self, first: Slot, then: Slot, tries: int = 5) -> None:
        """Has one worker do it, and asks another one for the answer."""
        operation, body = self.new()
        for _ in range(tries):
            call = await self.ask(operation, body, slot=first)
            if call.kind is Kind.FINAL:
                await self.ask(operation, body, slot=then)
                return

    # ---- calls ---------------------------------------------------------------------------------------------------

    def new(
        self, *, prefix: str = "pay-", whole: bool = True, delay: float = 0.05, size: int = 200
    ) -> tuple[Operation, bytes]:
        """An operation that nobody has asked for, and a request for it."""
        self.number += 1
        operation = Operation(self.dice.choice(CALLERS), f"{prefix}{self.number}")
        asked = {
            "amount": self.dice.randrange(1, 1000),
            "delay": self.dice.uniform(0, delay),
            "busy": self.dice.random() < 0.05,
            "pad": "x" * self.dice.randrange(size),
        }
        body = json.dumps(asked).encode()
        if whole:
            self.bodies[operation] = [body]
            self.recent = [*self.recent[-REMEMBERED:], operation]
        return operation, body

    async def insist(self, operation: Operation, body: bytes, tries: int = 12) -> None:
        """Again and again, until there is an answer that stays."""
        for attempt in range(tries):
            call = await self.ask(operation, body)
            if call.kind in {Kind.FINAL, Kind.MISMATCH}:
                return
            await asyncio.sleep(min(0.05 * 2**attempt, 0.6))

    async def ask(
        self,
        operation: Operation,
        body: bytes,
        *,
        slot: Slot | None = None,
        within: float = PATIENCE,
        last: bool = False,
    ) -> Call:
        """One request, written down with what came back."""
        slot = slot or self.dice.choice(self.slots)
        call = self._begun(Call(operation, short(body), time.monotonic(), inf, Kind.INFO, slot.name, last=last))
        try:
            answer = await speech.ask(slot.links["client link"].port, self._said(operation, body), within)
        except speech.Cut as cut:
            call.detail = str(cut)
        except speech.NotSent:
            call.kind, call.whole = Kind.REFUSED, False
        else:
            read(answer, call)
            if call.kind is Kind.UNTYPED and slot.ending:
                call.kind = Kind.INFO  # uvicorn's own 500 for what it cancels at the end of its patience
        return self._ended(call)

    async def cut_short(self, operation: Operation, body: bytes) -> None:
        """Part of a request, and gone."""
        slot = self.dice.choice(self.slots)
        part = body[: self.dice.randrange(len(body))]
        call = self._begun(Call(operation, short(part), time.monotonic(), inf, Kind.INFO, slot.name, whole=False))
        data = self._said(operation, body)
        with suppress(OSError, speech.NotSent):
            async with speech.connected(slot.links["client link"].port) as (_, writer):
                writer.write(data[: len(data) - len(body) + len(part)])
                await asyncio.sleep(self.dice.uniform(0, 0.05))
        self._ended(call)

    def _said(self, operation: Operation, body: bytes) -> bytes:
        headers = {"Authorization": operation.caller, "Idempotency-Key": operation.key}
        return speech.request(path_of(operation), headers | {"Content-Type": "application/json"}, body)

    def _begun(self, call: Call) -> Call:
        self.history.calls.append(call)
        return call

    def _ended(self, call: Call) -> Call:
        call.until = time.monotonic()
        return call


def read(answer: speech.Answer, call: Call) -> None:
    """What an answer means."""
    [problem] = answer.all("idempotency-problem") or [""]
    call.detail = f"{answer.status} {problem}".strip()
    if answer.status == CREATED and not problem:
        told = answer.json()
        call.kind, call.answer = Kind.FINAL, digest(answer)
        call.receipt, call.echo = told["receipt"], told["caller"]
        call.replayed = bool(answer.all("idempotency-replayed"))
    else:
        call.kind = KINDS.get(problem, Kind.UNTYPED)
