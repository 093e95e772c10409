"""The reconciler for asyncio. Its twin is reconcile.threaded: read them side by side."""

from __future__ import annotations

import asyncio
import contextlib
import inspect
import random
import time
from collections.abc import Callable
from types import TracebackType
from typing import Any, Self, cast

from oncekey.core.flows import Terms
from oncekey.core.policy import ms
from oncekey.core.record import Seen, State
from oncekey.engine.common import tell_lapsed
from oncekey.engine.events import Events, Sink
from oncekey.errors import StoreError
from oncekey.operations.cleaning import SweepReport, sweeping
from oncekey.reconcile.findings import Finding
from oncekey.reconcile.rounds import PAGE, TAKEN, Report, draw, failed, judged, log, pause, tell
from oncekey.reconcile.triage import Ending, Inquire, Rules, triage
from oncekey.stores.contract import AsyncStore


class AsyncReconciler:
    """Finds out about unknown outcomes. Resolvers may be coroutines; plain functions run in threads.

    `async with reconciler:` runs it as a task beside the work.
    """

    def __init__(self, store: AsyncStore, rules: Rules, sinks: tuple[Sink, ...] = ()) -> None:
        self.store = store
        self.rules = rules
        self.said = Events(sinks)
        self.total = Report()
        self._sweep_at = 0.0 if rules.pace.sweep_for is not None else None
        self._stop = asyncio.Event()
        self._task: asyncio.Task[Report] | None = None

    async def run_once(self) -> Report:
        """Sweep lapsed leases if it is time, then ask about everything that is due."""
        report = Report()
        if self._sweep_at is not None and time.monotonic() >= self._sweep_at:
            report.swept = await self._sweep()
        asked: set[bytes] = set()
        while not self._stop.is_set():
            due = [seen for seen in await self._due() if seen.record.id not in asked]
            if not due:
                break
            taken = random.sample(due, min(TAKEN, len(due)))
            asked.update(seen.record.id for seen in taken)
            for ending in await self._settle_all(taken):
                report.count(ending)
        self.total.add(report)
        return report

    async def _sweep(self) -> SweepReport:
        policy = self.rules.policy
        terms = Terms(ms(policy.keep_key_for or policy.keep_for), ms(policy.reconcile_after_for))
        steps = sweeping(terms, self._stop.is_set, lambda record: tell_lapsed(self.said, record))
        answer: Any = None
        try:
            while True:
                answer = await steps.send(answer)(self.store)
        except StopIteration as end:
            self._sweep_at = time.monotonic() + (self.rules.pace.sweep_for or 0)
            return cast("SweepReport", end.value)

    async def _due(self) -> list[Seen]:
        page = await self.store.scan((State.UNKNOWN,), due_before=0, limit=PAGE)
        return [Seen(record, page.now) for record in page.records]

    async def _settle_all(self, taken: list[Seen]) -> list[Ending]:
        endings: list[Ending] = []
        left = iter(taken)

        async def one_after_another() -> None:
            for seen in left:
                if self._stop.is_set():
                    return
                endings.append(await self._settle(seen))

        async with asyncio.TaskGroup() as group:
            for _ in range(min(self.rules.pace.at_once, len(taken))):
                group.create_task(one_after_another())
        return endings

    async def _settle(self, seen: Seen) -> Ending:
        steps = triage(seen, self.rules, draw())
        answer: Any = None
        try:
            while True:
                step = steps.send(answer)
                answer = await (self._inquire(step) if isinstance(step, Inquire) else step(self.store))
        except StopIteration as end:
            return tell(self.said, seen.record.id, end.value)

    async def _inquire(self, step: Inquire) -> tuple[Finding, int]:
        began = time.monotonic()
        resolver, inquiry = step.found.resolver, step.inquiry
        try:
            if inspect.iscoroutinefunction(resolver):
                async with asyncio.timeout(self.rules.pace.answer_for):
                    finding = judged(inquiry, await resolver(inquiry))
            else:
                finding = judged(inquiry, await asyncio.to_thread(resolver, inquiry))
        except Exception as error:  # noqa: BLE001 - whatever a resolver does, the record stays and is asked about again
            finding = failed(inquiry, error)
        return finding, round((time.monotonic() - began) * 1000)

    # ---- as a service --------------------------------------------------------------------------------------------

    async def run(self, told: Callable[[Report], None] = lambda report: None) -> Report:
        """Round after round until `stop`; inquiries at hand are ended first. Returns what it came to altogether."""
        while not self._stop.is_set():
            try:
                told(await self.run_once())
            except* StoreError as trouble:
                log.warning("the store did not answer, and will be asked again: %s", trouble.exceptions[0])
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(pause(self.rules.pace)):
                    await self._stop.wait()
        return self.total

    def stop(self) -> None:
        """Begin no more inquiries. It must be called in the loop's own thread."""
        self._stop.set()

    async def __aenter__(self) -> Self:
        """Run as a task beside the work."""
        self._stop.clear()
        self._task = asyncio.create_task(self.run(), name="oncekey-reconciler")
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    async def close(self) -> None:
        """Stop, and wait for the inquiries at hand. The store is left open."""
        self.stop()
        if self._task is not None:
            await self._task
            self._task = None
