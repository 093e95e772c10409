"""One run on one store: processes, clients and what breaks them; then quiet, and the last questions."""

from __future__ import annotations

import asyncio
import contextlib
import json
import tempfile
import time
from collections.abc import AsyncIterator, Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

from oncekey.core.record import IN_PROGRESS, State
from oncekey.errors import OnceKeyError
from oncekey.stores.open import open_store
from tests.chaos import provider, trace, versions
from tests.chaos.backing import Backing, backing
from tests.chaos.checker import Broken, Terms, below_floors, broken
from tests.chaos.crowd import Crowd
from tests.chaos.history import Attempt, History, Kind, Operation, Word
from tests.chaos.launcher import Wish
from tests.chaos.launching import Launcher, launcher
from tests.chaos.nemesis import KILLED, Nemesis
from tests.chaos.settings import LEASE_FOR, RECONCILE_AFTER_FOR, Settings, ref_of
from tests.chaos.slot import Slot

# The clock of the third worker, where the store has one of its own.
SKEW = "+3h"
SKEWED = 2
# How often each of the janitors goes to work, and the version of the records that it has: the first one knows the
# oldest alone, and lives beside all that are newer.
JANITORS = ((0.1, 1), (0.25, versions.EVERYBODYS))
PREFIX = "oncekey-chaos-"
# Until everything open has been swept and reconciled, on a machine that has other things to do.
QUIET_WITHIN = 20.0
LAST_TRIES = 8
LOOK_EACH = 0.25
# A stopped worker has come back by then, and has said what it had to say.
BACK_WITHIN = LEASE_FOR + 3.0
LEAST_STORM = 5.0


@dataclass(frozen=True)
class Plan:
    """What to run. `blows` names the faults, as methods of Nemesis; None: all of them.

    `seconds` are those until the end of the storm, with the time to set it all up, but at least LEAST_STORM of it. It
    goes on for `more_for` at the most where it is still below its `floors`.
    """

    store: str
    seconds: float
    seed: int = 1
    mutant: str = ""
    clients: int = 24
    blows: tuple[str, ...] | None = None
    workers: int = 3
    stop_when_broken: bool = False
    floors: Mapping[str, int] = field(default_factory=dict)
    more_for: float = 0.0
    say: Callable[[dict[str, Any]], None] = field(default=lambda told: None, compare=False)


class Launchers(NamedTuple):
    """What starts processes: under the usual clock, and under another, where there is one to be had."""

    usual: Launcher
    skewed: Launcher | None = None


TERMS = Terms(LEASE_FOR, slack=4.0)


class Arena:
    """All that lives during one run."""

    def __init__(self, plan: Plan, folder: Path, store: Backing, launchers: Launchers) -> None:
        self.plan = plan
        self.folder = folder
        self.store = store
        self.launchers = launchers
        self.history = History()
        self.slots: list[Slot] = []
        self.crowd = Crowd(self.slots, self.history, plan.seed)
        self.nemesis = Nemesis(self.slots, store, self.history, plan.seed + 1)
        self.nemesis.watched = lambda operation, kind: self._spawn(self._watch(operation, kind))
        self.nemesis.mixed = self._mix
        self.began = time.monotonic()
        self.over = False
        self.found: list[Broken] = []
        self._helpers: list[int] = []
        self._tasks: set[asyncio.Task[None]] = set()
        self._provider: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        self._harness: asyncio.Server | None = None

    # ---- set up --------------------------------------------------------------------------------------------------

    @contextlib.asynccontextmanager
    async def open(self) -> AsyncIterator[None]:
        """Start all processes; end them all."""
        try:
            await self._start()
            yield
        finally:
            for task in self._tasks:
                task.cancel()
            await asyncio.gather(*self._tasks, return_exceptions=True)
            for slot in self.slots:
                await slot.close()
            for pid in self._helpers:
                self.launchers.usual.drop(pid)
            if self._harness is not None:
                self._harness.close()

    async def _start(self) -> None:
        self._harness = await asyncio.start_server(self._hear, "127.0.0.1", 0)
        port = str(self._harness.sockets[0].getsockname()[1])
        await self._help(Wish("provider", f"{self.folder}/provider.log", words=(str(self.folder / "ledger"), port)))
        settings = Settings(self.store.url, await self._provider, "", mutant=self.plan.mutant)
        for number, (each, version) in enumerate(JANITORS):
            own = settings._replace(trace=f"{self.folder}/janitor{number}.trace", version=version, each=each)
            await self._help(Wish("janitor", f"{own.trace}.log", own.told()))
        for number in range(self.plan.workers):
            wait_for = 0.5 if number == 1 else None
            own = settings._replace(trace=f"{self.folder}/w{number}.trace", wait_for=wait_for)
            self.slots.append(Slot(number, own, self.nemesis.hit))
        for number, slot in enumerate(self.slots):
            skewed = self.launchers.skewed if number == SKEWED and self.store.server is not None else None
            await slot.open(skewed or self.launchers.usual, self.store.port, self.store.through)
        for slot in self.slots:
            await slot.until_up()

    async def _help(self, wish: Wish) -> None:
        self._helpers.append(await self.launchers.usual.run(wish))

    async def _hear(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """The provider's line: one word for each effect, answered when whatever shall happen then has happened."""
        with contextlib.suppress(asyncio.CancelledError):
            while line := await reader.readline():
                told = json.loads(line)
                self._heard(told)
                writer.write(b"%d\n" % told["number"])
        writer.close()

    def _heard(self, told: dict[str, Any]) -> None:
        if told["word"] == "ready":
            self._provider.set_result(told["port"])
            return
        operation = Operation(told["caller"], told["key"])
        if told["word"] == "landed":
            self.nemesis.landed(told["pid"], operation)
        else:
            self.history.words.append(Word(told["word"], told["at"], operation))

    def _spawn(self, work: Any) -> None:
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    # ---- the storm -----------------------------------------------------------------------------------------------

    async def storm(self) -> None:
        """Clients and faults, until the time is up."""
        self._spawn(self._look_on())
        for deck in self.nemesis.decks(self.plan.blows):
            self._spawn(self.nemesis.run(deck, self._is_over))
        await self.crowd.run(self.plan.clients, self._is_over)

    def _is_over(self) -> bool:
        return self.over

    async def _look_on(self) -> None:
        ends = max(self.began + self.plan.seconds, time.monotonic() + LEAST_STORM)
        while not self.found and self._goes_on(time.monotonic() - ends):
            await asyncio.sleep(LOOK_EACH)
            done = min(0.95, (time.monotonic() - self.began) / (ends - self.began))
            self.plan.say({"phase": "storm", "done": done, **self._figures()})
            if self.plan.stop_when_broken:
                self.found = broken(self.gathered(), TERMS)
        self.over = True

    def _goes_on(self, late_by: float) -> bool:
        if late_by < 0:
            return True
        return late_by < self.plan.more_for and bool(below_floors(self.gathered(), self.plan.floors))

    def _figures(self) -> dict[str, int]:
        return {"operations": len(self.history.calls), "faults": len(self.history.faults)}

    async def _watch(self, operation: Operation, kind: str) -> None:
        """Ask for a key whose worker has gone at its effect.

        If it was killed, note how long the key stays shut; if it was stopped, go on until it has come back.
        """
        died = time.monotonic()
        bodies = list(self.crowd.bodies.get(operation, ()))
        while bodies and time.monotonic() < died + QUIET_WITHIN:
            call = await self.crowd.ask(operation, bodies[0], slot=self.nemesis.one(), within=1.0)
            if call.kind is Kind.UNKNOWN:
                self.nemesis.told_unknown.setdefault(operation, asyncio.Event()).set()
            if call.kind is Kind.MISMATCH:
                bodies.pop(0)
            elif call.kind is Kind.FINAL and kind == KILLED:
                self.history.shut_for.append(call.until - died)
                return
            elif call.kind is Kind.FINAL and call.at > died + BACK_WITHIN:
                return
            await asyncio.sleep(0.05)

    async def _mix(self, newer: Slot, older: Slot) -> None:
        """Show a record of a newer worker to an older one."""
        with contextlib.suppress(TimeoutError):
            await newer.until_up()
            await self.crowd.across(newer, older)

    # ---- the quiet -----------------------------------------------------------------------------------------------

    async def quiet(self) -> None:
        """No more faults: everything is settled, and every key is asked for once more."""
        self.plan.say({"phase": "quiet", "done": 0.99, **self._figures()})
        while self._tasks:
            await asyncio.wait(list(self._tasks), timeout=QUIET_WITHIN)
        for slot in self.slots:
            for link in slot.links.values():
                link.heal()
        latest = self.nemesis.version
        await asyncio.gather(*(slot.renewed(latest) for slot in self.slots if slot.settings.version != latest))
        for slot in self.slots:
            await slot.until_up()
        await asyncio.sleep(LEASE_FOR + RECONCILE_AFTER_FOR)
        await asyncio.to_thread(self._until_settled)
        await self._ask_all()
        self.history.ended = True

    def _until_settled(self) -> None:
        """Wait for the janitors; what is unknown after that is listed."""
        store = open_store(self.store.url)
        ends = time.monotonic() + QUIET_WITHIN
        listed: set[str] = set()
        while time.monotonic() < ends:
            with contextlib.suppress(OnceKeyError):
                page = store.scan((*IN_PROGRESS, State.UNKNOWN))
                listed = {record.label.key for record in page.records if record.state is State.UNKNOWN}
                if not page.records:
                    break
            time.sleep(0.1)
        store.close()
        self.history.unsettled = {operation for operation in self.crowd.bodies if operation.key in listed}

    async def _ask_all(self) -> None:
        waiting = list(self.crowd.bodies.items())

        async def client() -> None:
            while waiting:
                await self._ask_last(*waiting.pop())

        await asyncio.gather(*(client() for _ in range(self.plan.clients)))

    async def _ask_last(self, operation: Operation, bodies: list[bytes]) -> None:
        """With each request that was sent under this key, until one gets its answer."""
        for attempt in range(LAST_TRIES):
            for body in bodies:
                call = await self.crowd.ask(operation, body, last=True)
                if call.kind is Kind.FINAL:
                    return
            await asyncio.sleep(0.1 * attempt)

    # ---- the history ---------------------------------------------------------------------------------------------

    def gathered(self) -> History:
        """The history with what the ledger and the traces have."""
        known = {operation for call in self.history.calls for operation in (call.operation,)}
        refs = {ref_of(operation): operation for operation in known}
        attempts, words = _told(self.folder, refs)
        gathered = History(**{name: getattr(self.history, name) for name in History.__slots__})
        gathered.effects = provider.effects(self.folder / "ledger")
        gathered.attempts = attempts
        gathered.words = [*self.history.words, *words]
        return gathered


def _told(folder: Path, refs: dict[str, Operation]) -> tuple[list[Attempt], list[Word]]:
    attempts: list[Attempt] = []
    running: dict[tuple[int, str, int], Attempt] = {}
    words: list[Word] = []
    for line in trace.lines(folder):
        if line["word"] in {"start", "end"}:
            operation = Operation(line["caller"], line["key"])
            mark = (line["pid"], f"{operation}", line["attempt"])
            if line["word"] == "start":
                running[mark] = Attempt(operation, line["attempt"], line["at"], pid=line["pid"])
                attempts.append(running[mark])
            elif mark in running:
                running[mark].end = line["at"]
        else:
            operation_or_none = refs.get(line.get("ref", ""))
            words += [Word(line["word"], line["at"], operation_or_none)] * line.get("times", 1)
    return attempts, words


async def run(plan: Plan) -> History:
    """One run on its own, with launchers that end with it."""
    with tempfile.TemporaryDirectory(prefix=PREFIX) as name:
        async with launcher(Path(name)) as usual, launcher(Path(name), SKEW) as skewed:
            return await run_with(plan, Launchers(usual, skewed))


async def run_with(plan: Plan, launchers: Launchers) -> History:
    """One run, from an empty store to the last answer."""
    with tempfile.TemporaryDirectory(prefix=PREFIX) as name, backing(plan.store, Path(name)) as store:
        arena = Arena(plan, Path(name), store, launchers)
        async with arena.open():
            await arena.storm()
            if not arena.found:
                await arena.quiet()
            return await asyncio.to_thread(arena.gathered)
