"""The reconciler for threads. Its twin is reconcile.aio: read them side by side."""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from types import TracebackType
from typing import Any, Self

from oncekey.core.flows import Terms
from oncekey.core.policy import ms
from oncekey.core.record import Seen, State
from oncekey.engine.common import tell_lapsed
from oncekey.engine.events import Events, Sink
from oncekey.errors import ConfigurationError, StoreError
from oncekey.operations.cleaning import SweepReport, sweep
from oncekey.reconcile.findings import Finding
from oncekey.reconcile.rounds import PAGE, TAKEN, Report, draw, failed, judged, log, pause, tell
from oncekey.reconcile.triage import Ending, Inquire, Rules, triage
from oncekey.stores.contract import Store


class Reconciler:
    """Finds out about unknown outcomes. Any number may work on one store, in any number of processes.

    `run_once` is a round; `run` goes on until `stop`. For a small application, `with reconciler:` runs it in a thread
    beside the work.
    """

    def __init__(self, store: Store, rules: Rules, sinks: tuple[Sink, ...] = ()) -> None:
        if rules.resolvers.awaited:
            raise ConfigurationError("a resolver must be awaited: use the reconciler for asyncio, or write it with def")
        self.store = store
        self.rules = rules
        self.said = Events(sinks)
        self.total = Report()
        self._sweep_at = 0.0 if rules.pace.sweep_for is not None else None
        self._stop = threading.Event()
        self._thread: threading.Thread | None = None

    def run_once(self) -> Report:
        """Sweep lapsed leases if it is time, then ask about everything that is due."""
        report = Report()
        if self._sweep_at is not None and time.monotonic() >= self._sweep_at:
            report.swept = self._sweep()
        asked: set[bytes] = set()
        with ThreadPoolExecutor(self.rules.pace.at_once, thread_name_prefix="oncekey-reconcile") as pool:
            while not self._stop.is_set():
                due = [seen for seen in self._due() if seen.record.id not in asked]
                if not due:
                    break
                taken = random.sample(due, min(TAKEN, len(due)))
                asked.update(seen.record.id for seen in taken)
                for ending in pool.map(self._settle, taken):
                    if ending is not None:
                        report.count(ending)
        self.total.add(report)
        return report

    def _sweep(self) -> SweepReport:
        policy = self.rules.policy
        terms = Terms(ms(policy.keep_key_for or policy.keep_for), ms(policy.reconcile_after_for))
        swept = sweep(self.store, terms, stop=self._stop.is_set, told=lambda record: tell_lapsed(self.said, record))
        self._sweep_at = time.monotonic() + (self.rules.pace.sweep_for or 0)
        return swept

    def _due(self) -> list[Seen]:
        page = self.store.scan((State.UNKNOWN,), due_before=0, limit=PAGE)
        return [Seen(record, page.now) for record in page.records]

    def _settle(self, seen: Seen) -> Ending | None:
        if self._stop.is_set():
            return None
        steps = triage(seen, self.rules, draw())
        answer: Any = None
        try:
            while True:
                step = steps.send(answer)
                answer = self._inquire(step) if isinstance(step, Inquire) else step(self.store)
        except StopIteration as end:
            return tell(self.said, seen.record.id, end.value)

    def _inquire(self, step: Inquire) -> tuple[Finding, int]:
        began = time.monotonic()
        try:
            finding = judged(step.inquiry, step.found.resolver(step.inquiry))
        except Exception as error:  # noqa: BLE001 - whatever a resolver does, the record stays and is asked about again
            finding = failed(step.inquiry, error)
        return finding, round((time.monotonic() - began) * 1000)

    # ---- as a service --------------------------------------------------------------------------------------------

    def run(self, told: Callable[[Report], None] = lambda report: None) -> Report:
        """Round after round until `stop`; inquiries at hand are ended first. Returns what it came to altogether."""
        while not self._stop.is_set():
            try:
                told(self.run_once())
            except StoreError as trouble:
                log.warning("the store did not answer, and will be asked again: %s", trouble)
            self._stop.wait(pause(self.rules.pace))
        return self.total

    def stop(self) -> None:
        """Begin no more inquiries. It may be called from a signal handler."""
        self._stop.set()

    def __enter__(self) -> Self:
        """Run in a thread beside the work."""
        self._stop.clear()
        self._thread = threading.Thread(target=self.run, name="oncekey-reconciler", daemon=True)
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Stop, and wait for the inquiries at hand. The store is left open."""
        self.stop()
        if self._thread is not None:
            self._thread.join()
            self._thread = None
