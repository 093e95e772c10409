"""Hit one request at every step, in every way, and look at what the next ones get."""

from __future__ import annotations

import asyncio
import logging
import secrets
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from oncekey.core.record import State
from oncekey.engine.events import log
from oncekey.errors import ConfigurationError
from oncekey.testing.crashes.life import Life, Stage
from oncekey.testing.crashes.report import Report
from oncekey.testing.crashes.steps import WAYS, Place, Step, Way
from oncekey.testing.crashes.store import World
from oncekey.testing.crashes.tracing import Mine, own_code
from oncekey.testing.crashes.trial import Got, Make
from oncekey.testing.crashes.verdict import Case

PATIENCE = 30.0  # seconds after which a request that is not answered has failed


class Hit(NamedTuple):
    """A request that was hit, and the one that came at once after it."""

    step: Step
    way: Way
    key: str
    ids: list[bytes]
    first: Got
    at_once: Got


Hits = Callable[[Stage, int, Way], Hit | None]


def explore(
    make: Make,
    *,
    store: str = "memory://",
    ways: Iterable[Way] = tuple(Way),
    code: Mine = own_code,
    folder: Path | None = None,
) -> Report:
    """Crash one request at every step within this process, and judge what the next requests get.

    `make(store, folder)` builds the application on the store's address that it is given. `store` is where the records
    are: memory:// and sqlite:// have a clock that the exploration moves; a server's lease is waited for, so give the
    policy a short one. `code` says which files are the user's own.
    """
    with staged(make, store, code, folder) as stage:
        clean, steps = undisturbed(stage)
        return run(stage, Report(clean, steps), [way for way in ways if way is not Way.KILL], hit_here)


@contextmanager
def staged(make: Make, store: str, code: Mine, folder: Path | None) -> Iterator[Stage]:
    """Everything that the lives share, in a folder of its own."""
    if asyncio._get_running_loop() is not None:  # noqa: SLF001 - the public one raises where there is none
        raise ConfigurationError("an exploration runs event loops of its own: call it from a test that is not async")
    with tempfile.TemporaryDirectory(prefix="oncekey-crash-") as own:
        stage = Stage(make, World(store, folder or Path(own)), folder or Path(own), code, PATIENCE)
        stage.records.migrate()
        log.addFilter(_unheard)
        try:
            yield stage
        finally:
            log.removeFilter(_unheard)
            stage.close()


def _unheard(_: logging.LogRecord) -> bool:
    """What OnceKey says of trouble that was made on purpose would hide everything else."""
    return False


def run(stage: Stage, report: Report, ways: Iterable[Way], hit: Hits) -> Report:
    """All cases, one after the other; then the leases end, and a new process is asked about each."""
    wanted = list(ways)
    hits = []
    for at, step in enumerate(report.steps):
        for way in (way for way in wanted if way in WAYS[step.place]):
            found = hit(stage, at, way)
            if found is None:
                report.missed.append((step, way))
            else:
                hits.append(found)
    end_leases(stage, hits)
    report.cases = list(afterwards(stage, hits))
    return report


def undisturbed(stage: Stage) -> tuple[Got, list[Step]]:
    """The request without a crash: what it gets, how many effects it has, and its steps."""
    life = Life(stage)
    try:
        key = fresh("clean")
        clean, steps = life.ask(key), life.steps.reached
        again = life.ask(key)
        stage.handler = frozenset(step for step in steps if step.place is Place.LINE) - set(life.steps.reached)
    finally:
        life.end()
    if not clean.final or (again.status, again.effects) != (clean.status, clean.effects):
        raise ConfigurationError(
            f"without a crash the request must be answered and its retry replayed, but it got {clean} and the retry "
            f"{again}: look at the Trial's request= and at the middleware's scope="
        )
    if not clean.effects:
        raise ConfigurationError(
            "without a crash the request had no effect: effects= must count what it does by its key"
        )
    if not stage.handler:
        raise ConfigurationError("no line of the handler was seen: say with code= which files are yours")
    return clean, steps


def hit_here(stage: Stage, at: int, way: Way) -> Hit | None:
    """One case within this process. A life that survives serves the next request too."""
    life, key = Life(stage), fresh(way)
    try:
        first, ids, step = life.ask(key, at, way), list(life.link.ids), life.steps.hit
        if step is None:
            return None
        if not life.over:
            return Hit(step, way, key, ids, first, life.ask(key))
    finally:
        life.end()
    life = Life(stage)
    try:
        return Hit(step, way, key, ids, first, life.ask(key))
    finally:
        life.end()


def end_leases(stage: Stage, hits: list[Hit]) -> None:
    """Let the leases of all that is still in progress end: by the clock, or by waiting."""
    clock = stage.world.clock
    end = time.monotonic() + PATIENCE
    for hit in hits:
        while (until := _lease(stage, hit.ids)) is not None:
            if clock is not None:
                clock.reach(until)
            elif time.monotonic() > end:
                raise ConfigurationError(
                    f"a lease did not end within {PATIENCE:g} s: give the policy a shorter lease_for= in this trial"
                )
            else:
                time.sleep(0.02)
    if clock is not None:
        clock.advance(1)


def _lease(stage: Stage, ids: list[bytes]) -> int | None:
    """When the next request may do more than wait: at the end of the lease, or of the pause after a failure."""
    seen = stage.records.get(ids[0]) if ids else None
    if seen is None:
        return None
    record, now = seen
    waits = {
        State.CLAIMED: record.lease_until,
        State.EXECUTING: record.lease_until,
        State.FAILED_RETRYABLE: record.due_at,
    }
    until = waits.get(record.state)
    return until if until is not None and until > now else None


def afterwards(stage: Stage, hits: list[Hit]) -> Iterator[Case]:
    """What a restarted process tells each of the clients, twice."""
    life = Life(stage)
    try:
        for hit in hits:
            later = life.ask(hit.key)
            yield Case(hit.step, hit.way, hit.key, hit.first, hit.at_once, later, life.ask(hit.key))
    finally:
        life.end()


def fresh(word: str) -> str:
    """A key that nobody has used."""
    return f"crash-{word}-{secrets.token_hex(8)}"


__all__ = ["explore"]
