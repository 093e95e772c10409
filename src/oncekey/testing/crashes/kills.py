"""Kill the process at every step of a request, and ask other processes what has become of it."""

from __future__ import annotations

import os
from pathlib import Path

from oncekey.errors import ConfigurationError
from oncekey.testing.crashes.explore import Hit, fresh, run, staged, undisturbed
from oncekey.testing.crashes.life import Life, Stage
from oncekey.testing.crashes.nursery import Nursery
from oncekey.testing.crashes.report import Report
from oncekey.testing.crashes.steps import Way
from oncekey.testing.crashes.tracing import Mine, own_code
from oncekey.testing.crashes.trial import Got, Make


def explore_kills(
    make: Make,
    *,
    store: str = "sqlite://",
    code: Mine = own_code,
    folder: Path | None = None,
) -> Report:
    """Kill a process by SIGKILL at every step of one request, and judge what the next requests get from others.

    `make(store, folder)` is called in each of the processes. What `effects` counts must outlive them as the records do:
    in a file in `folder`, or in a database. `store` and `code` are those of `explore`, but memory is no place here.
    Linux and macOS only.
    """
    if not hasattr(os, "fork"):
        raise ConfigurationError("processes are forked to be killed, and this system cannot fork: use explore")
    if store.startswith("memory:"):
        raise ConfigurationError(
            "records in memory die with the process that is killed: write store='sqlite://', or a server's address"
        )
    with staged(make, store, code, folder) as stage:
        clean, _ = undisturbed(stage)
        with stage.let_go():
            nursery = Nursery(stage)
        with nursery:
            return _explored(stage, nursery, clean)


def _explored(stage: Stage, nursery: Nursery, clean: Got) -> Report:
    """Each case: a life that is killed, and another that runs beside it and is asked at once."""
    beside = Life(stage)

    def hit(at: int) -> Hit | None:
        key = fresh(Way.KILL)
        words = nursery.live(key, at)
        if not words.killed:
            return None
        ran = not stage.handler.isdisjoint(words.steps)
        first = words.heard.got(stage.state(words.ids), beside.trial.effects(key), ran=ran)
        return Hit(words.steps[-1], Way.KILL, key, words.ids, first, beside.ask(key))

    try:
        key = fresh("unharmed")
        words = nursery.live(key)
        if beside.trial.effects(key) != clean.effects:
            raise ConfigurationError(
                f"a request that a child of this process served had {clean.effects} effects there, and effects= counts "
                f"{beside.trial.effects(key)} here: let it count what outlives a process, a file in the folder say"
            )
        return run(stage, Report(clean, words.steps), [Way.KILL], lambda stage, at, way: hit(at))
    finally:
        beside.end()


__all__ = ["explore_kills"]
