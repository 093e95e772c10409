"""What breaks things: by chance, and at the very instants at which it hurts."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import random
import signal
import time
from collections.abc import Awaitable, Callable, Collection

from tests.chaos.backing import Backing
from tests.chaos.history import Fault, History, Operation
from tests.chaos.proxy import Ill, Link, Seen, Way
from tests.chaos.rarities import LINK
from tests.chaos.settings import LEASE_FOR
from tests.chaos.slot import Slot
from tests.chaos.versions import MOST

# How long somebody who waits for an instant waits for it.
INSTANT_WITHIN = 3.0
# From one blow of a deck to the next.
RECOVERED_WITHIN = 5.0
GAP = (0.1, 0.4)
# How much longer than a lease somebody is frozen: beyond the time in which nobody knows, or into it; in turns.
PAUSES = ((1.6, 2.2), (0.05, 0.35))
KILLED = "killed"
FINAL_ANSWER, REPLAYED = b"HTTP/1.1 201", b"idempotency-replayed"

Blow = Callable[[], Awaitable[None]]


async def _nothing(newer: Slot, older: Slot) -> None:
    """Nobody looks."""


class Nemesis:
    """One run's. `landed` is called by the provider for every effect, before it replies."""

    def __init__(self, slots: list[Slot], store: Backing, history: History, seed: int) -> None:
        self.slots = slots
        self.store = store
        self.history = history
        self.dice = random.Random(seed)
        self.version = 1
        self.pauses = itertools.cycle(PAUSES)
        # In turns: for longer than a lease, or until somebody was told that nobody knows.
        self.until_unknown = itertools.cycle((False, True, True))
        self.told_unknown: dict[Operation, asyncio.Event] = {}
        # Told of the operation whose effect has just landed; whoever acts on it answers True and is forgotten.
        self.waiting: list[Callable[[int, Operation], bool]] = []
        # Told of an operation whose worker was killed, or only stopped, at its effect.
        self.watched: Callable[[Operation, str], None] = lambda operation, kind: None
        # Told of a worker that has just been renewed, and of one that has not.
        self.mixed: Callable[[Slot, Slot], Awaitable[None]] = _nothing

    # ---- instants ------------------------------------------------------------------------------------------------

    def landed(self, pid: int, operation: Operation) -> None:
        """An effect has landed at the provider, and its reply has not left."""
        for act in self.waiting:
            if act(pid, operation):
                self.waiting.remove(act)
                return

    async def _at_the_effect(self, act: Callable[[Slot, Operation], None]) -> None:
        done = asyncio.Event()

        def landed(pid: int, operation: Operation) -> bool:
            for slot in self.slots:
                if slot.pid == pid and slot.up.is_set():
                    act(slot, operation)
                    done.set()
                    return True
            return False

        self.waiting.append(landed)
        await self._until(done)
        if landed in self.waiting:
            self.waiting.remove(landed)

    async def _until(self, done: asyncio.Event, within: float = INSTANT_WITHIN) -> None:
        """The instant that somebody waits for, or the end of the waiting."""
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(done.wait(), within)

    def fault(self, kind: str, target: str, pid: int = 0, operation: Operation | None = None) -> None:
        """Write down what was broken."""
        self.history.faults.append(Fault(kind, target, time.monotonic(), pid, operation))

    def hit(self, kind: str) -> None:
        """A link has hit somebody."""
        self.fault(kind, LINK)

    async def recovered(self) -> None:
        """Wait until most workers are up: an outage of all of them would show nothing but itself."""
        ends = time.monotonic() + RECOVERED_WITHIN
        while sum(slot.up.is_set() for slot in self.slots) < len(self.slots) - 1 and time.monotonic() < ends:
            await asyncio.sleep(0.02)

    def one(self) -> Slot:
        """A worker, by chance, of those that are up."""
        return self.dice.choice([slot for slot in self.slots if slot.up.is_set()] or self.slots)

    # ---- processes -----------------------------------------------------------------------------------------------

    async def kill_at_random(self) -> None:
        slot = self.one()
        self.fault("kill at random", slot.name, slot.signal(signal.SIGKILL))

    async def kill_at_the_effect(self) -> None:
        def act(slot: Slot, operation: Operation) -> None:
            self.fault("kill at the effect", slot.name, slot.signal(signal.SIGKILL), operation)
            self.watched(operation, KILLED)

        await self._at_the_effect(act)

    async def kill_at_the_answer(self) -> None:
        """The first byte of a first answer has left the worker, and reaches its client."""
        done = asyncio.Event()

        def seen_of(slot: Slot) -> Seen:
            async def seen(data: bytes) -> bool:
                if done.is_set() or not data.startswith(FINAL_ANSWER) or REPLAYED in data.lower():
                    return done.is_set()
                done.set()
                self.fault("kill at the answer", slot.name, slot.signal(signal.SIGKILL))
                return True

            return seen

        for slot in self.slots:
            slot.links["client link"].seen[Way.BACK] = seen_of(slot)
        await self._until(done)
        done.set()

    async def stop_at_random(self) -> None:
        slot = self.one()
        await self._pause("stop at random", slot)

    async def stop_at_the_effect(self) -> None:
        paused: list[tuple[Slot, Operation]] = []

        def act(slot: Slot, operation: Operation) -> None:
            slot.pause()
            paused.append((slot, operation))
            self.watched(operation, "stopped")

        await self._at_the_effect(act)
        for slot, operation in paused:
            if next(self.until_unknown):
                await self._pause_until_unknown("stop at the effect", slot, operation)
            else:
                await self._pause("stop at the effect", slot, operation)

    async def stop_before_the_effect(self) -> None:
        """The charge is on its way, its worker freezes, and it arrives when the worker has long been given up."""
        slot, done = self.one(), asyncio.Event()
        link = slot.links["provider link"]

        async def seen(data: bytes) -> bool:
            done.set()
            await self._pause("stop before the effect", slot)
            return True

        link.seen[Way.THERE] = seen
        await self._until(done)

    async def _pause(self, kind: str, slot: Slot, operation: Operation | None = None) -> None:
        """Longer than the lease; some for so long that the operation has been reconciled meanwhile."""
        pid = slot.pause()
        self.fault(kind, slot.name, pid, operation)
        await asyncio.sleep(LEASE_FOR + self.dice.uniform(*next(self.pauses)))
        slot.go_on(pid)

    async def _pause_until_unknown(self, kind: str, slot: Slot, operation: Operation) -> None:
        """What its owner then still has to say is late, and welcome."""
        pid = slot.pause()
        self.fault(kind, slot.name, pid, operation)
        await self._until(self.told_unknown.setdefault(operation, asyncio.Event()), LEASE_FOR + INSTANT_WITHIN)
        slot.go_on(pid)

    async def end_under_load(self) -> None:
        slot = self.one()
        self.fault("SIGTERM under load", slot.name)
        await slot.renewed(slot.settings.version)

    async def roll(self) -> None:
        """A rolling restart to the next version of the records, worker by worker."""
        self.version = min(self.version + 1, MOST)
        for slot, older in zip(self.slots, [*self.slots[1:], None], strict=True):
            self.fault("rolling restart to the next version", slot.name)
            await slot.renewed(self.version)
            if older is not None:
                await self.mixed(slot, older)

    async def store_away(self) -> None:
        self.fault(self.store.trouble, self.store.name)
        await self.store.suffer(self.dice.uniform(0.1, 2.0))

    # ---- links ---------------------------------------------------------------------------------------------------

    async def break_a_link(self) -> None:
        slot = self.one()
        link = self.dice.choice(list(slot.links.values()))
        await self.dice.choice(LINK_BLOWS)(self, link)

    async def lose_the_providers_reply(self) -> None:
        self.one().links["provider link"].ail(Ill.DROP, Way.BACK)

    async def _reset(self, link: Link) -> None:
        link.cut()

    async def _lose(self, link: Link) -> None:
        link.ail(Ill.DROP, self.dice.choice(list(Way)))

    async def _halve(self, link: Link) -> None:
        link.ail(Ill.HALVE, self.dice.choice(list(Way)))

    async def _slow(self, link: Link) -> None:
        link.ail_for(Ill.SLOW, self.dice.choice(list(Way)), self.dice.uniform(0.2, 1.0))

    async def _hole(self, link: Link) -> None:
        link.ail_for(Ill.HOLE, self.dice.choice(list(Way)), self.dice.uniform(0.3, 1.5))

    # ---- the run -------------------------------------------------------------------------------------------------

    async def run(self, blows: list[Blow], until: Callable[[], bool]) -> None:
        """Deal the blows like cards: each comes before any comes again."""
        deck: list[Blow] = []
        while not until():
            if not deck:
                deck = self.dice.sample(blows, len(blows))
            await self.recovered()
            await deck.pop()()
            await asyncio.sleep(self.dice.uniform(*GAP))

    def decks(self, wanted: Collection[str] | None) -> list[list[Blow]]:
        """What happens at the same time: ends and outages, pauses and restarts, and the links."""
        decks: tuple[tuple[Blow, ...], ...] = (
            (
                self.kill_at_random,
                self.kill_at_the_effect,
                self.kill_at_the_answer,
                self.end_under_load,
                self.store_away,
            ),
            (self.stop_at_random, self.stop_at_the_effect, self.stop_before_the_effect, self.roll),
            (self.break_a_link, self.break_a_link, self.break_a_link, self.lose_the_providers_reply),
        )
        named = [[blow for blow in deck if wanted is None or name_of(blow) in wanted] for deck in decks]
        return [deck for deck in named if deck]


def name_of(blow: Blow) -> str:
    """The name by which a run asks for it."""
    return str(getattr(blow, "__name__", ""))


LINK_BLOWS = (Nemesis._reset, *[Nemesis._lose] * 2, *[Nemesis._halve] * 2, Nemesis._slow, Nemesis._hole)
