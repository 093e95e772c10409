"""One life of a process that serves the application: from its start to its end, or to its crash."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from oncekey.core.record import IN_PROGRESS, State
from oncekey.testing.crashes.asgi import AsgiServer, Heard
from oncekey.testing.crashes.steps import Step, Steps, Way, on_purpose
from oncekey.testing.crashes.store import Link, World
from oncekey.testing.crashes.tracing import Mine, Tracing
from oncekey.testing.crashes.trial import Got, Make, Trial
from oncekey.testing.crashes.wsgi import WsgiServer

# How long work that its client has left, and outcomes that are owed, may take to reach the store.
SETTLED_FOR = 1.0
FATAL = (SystemExit, KeyboardInterrupt)


class Stage:
    """What every life of one exploration shares."""

    def __init__(self, make: Make, world: World, folder: Path, mine: Mine, patience: float) -> None:
        self.make = make
        self.world = world
        self.folder = folder
        self.mine = mine
        self.patience = patience
        self.records = world.open_sync()
        # The lines that run for a first request and not for a replay.
        self.handler: frozenset[Step] = frozenset()

    def state(self, ids: list[bytes]) -> State | None:
        """What stands in the store of this operation."""
        seen = self.records.get(ids[0]) if ids else None
        return seen.record.state if seen is not None else None

    @contextlib.contextmanager
    def let_go(self) -> Iterator[None]:
        """Meanwhile nothing is open: what a process forks has open files and locks in common with it."""
        self.records.close()
        try:
            yield
        finally:
            self.records = self.world.open_sync()

    def close(self) -> None:
        """Let go of the records."""
        self.records.close()


class Life:
    """A process, as far as one process can hold several."""

    def __init__(self, stage: Stage, last_words: Callable[[], None] = lambda: None) -> None:
        self.stage = stage
        self.heard = Heard()
        self.steps = Steps(last_words)
        self.link = Link(stage.world, self.steps)
        self.dead = False
        self.trial: Trial = stage.make(self.link.url, stage.folder)
        self._server = (
            AsgiServer(self.trial.asgi, self.steps, stage.patience)
            if self.trial.asgi is not None
            else WsgiServer(self.trial.wsgi, self.steps)
        )
        self._server.start()

    def ask(self, key: str, at: int | None = None, way: Way | None = None) -> Got:
        """Send the request once; at step `at` this happens."""
        self.send(key, at, way)
        if way is not None and not self.dead:
            self._settle(way)
        ran = not self.stage.handler.isdisjoint(self.steps.reached)
        return self.heard.got(self.stage.state(self.link.ids), self.trial.effects(key), ran=ran)

    def send(self, key: str, at: int | None = None, way: Way | None = None) -> None:
        """The same, and nobody looks yet at what came of it."""
        self.heard = Heard()
        ask = self.trial.request(key)
        self.link.ids.clear()
        self.steps.begin(at, way)
        try:
            with Tracing(self.steps, self.stage.mine):
                self._server.serve(ask, self.heard)
        except BaseException as error:
            if isinstance(error, FATAL) and not on_purpose(error):
                raise
            self.heard.raised = type(error).__name__
            self.dead = isinstance(error, FATAL)
        finally:
            self.steps.end()

    @property
    def over(self) -> bool:
        """Whether it takes no more requests."""
        return self.dead or self._server.ended

    def _settle(self, way: Way) -> None:
        """Wait until the work that still runs has told the store of its end; without a store there is no end."""
        end = time.monotonic() + (0 if way in {Way.DOWN, Way.DEAF} else SETTLED_FOR)
        while self.stage.state(self.link.ids) in IN_PROGRESS and time.monotonic() < end:
            self._server.wait()
            time.sleep(0.001)

    def end(self) -> None:
        """End in good order if it is alive; otherwise it is simply gone."""
        if not self.dead:
            with contextlib.suppress(Exception):
                self._server.stop()
        self._server.close([client.close() for client in self.link.async_clients])
        self.link.close()


__all__ = ["Life", "Stage"]
