"""What a worker does beside answering: sweep lapsed leases, purge what has expired, and end with its starter."""

from __future__ import annotations

import asyncio
import os
import signal
import time

from oncekey.core.flows import Terms
from oncekey.core.policy import ms
from oncekey.demo.apis.api import LEASE_FOR
from oncekey.engine.common import tell_lapsed
from oncekey.engine.events import Events, Sink, log
from oncekey.errors import OnceKeyError
from oncekey.operations import purge, sweep
from oncekey.stores.contract import Store

# Often enough that an unknown outcome shows soon after its lease; a sweep of nothing is one small query.
SWEEP_EACH = LEASE_FOR / 4
PURGE_EACH = 60.0
# At most this many batches in one go, so that a worker that is asked to end does not wait for a purge of millions.
BATCHES = 10
BATCH = 500
TERMS = Terms(keep_for=ms(86_400), reconcile_after_for=ms(LEASE_FOR))


class Housekeeper:
    """One worker's; every worker has one, which is harmless because each of its writes is compared and set."""

    def __init__(self, store: Store, sinks: tuple[Sink, ...], starter: int) -> None:
        self.store = store
        self.said = Events(sinks)
        self.starter = starter
        self._purge_at = time.monotonic() + PURGE_EACH
        self._down = False
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Begin, in a task."""
        self._task = asyncio.create_task(self._run())

    async def stop(self) -> None:
        """End, and close the store."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait([self._task])
        await asyncio.to_thread(self.store.close)

    async def _run(self) -> None:
        while True:
            await asyncio.sleep(SWEEP_EACH)
            if self.starter and os.getppid() != self.starter:
                # Killed, it could not end us; without it nobody could, and the port would stay taken.
                os.kill(os.getpid(), signal.SIGTERM)
                return
            try:
                await asyncio.to_thread(self.once)
            except OnceKeyError as error:
                # Once per outage: who runs a demo reads its terminal.
                if not self._down:
                    log.warning("the store cannot be swept until it answers again: %s", error)
                self._down = True
            except Exception:  # noqa: BLE001 - the next round may do better; without sweeps keys stay in flight for ever
                log.exception("a sweep failed")
            else:
                self._down = False

    def once(self) -> None:
        """Sweep, and purge when it is time."""
        sweep(self.store, TERMS, told=lambda record: tell_lapsed(self.said, record))
        if time.monotonic() < self._purge_at:
            return
        self._purge_at = time.monotonic() + PURGE_EACH
        purge(self.store, limit=BATCHES * BATCH, batch=BATCH, sinks=self.said.sinks)
