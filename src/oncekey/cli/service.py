"""`oncekey reconcile`: the worker that finds out about unknown outcomes, as a service."""

from __future__ import annotations

import argparse
import asyncio
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from oncekey.cli.exits import Exit
from oncekey.cli.loading import named_object
from oncekey.cli.outputs import Output
from oncekey.errors import ConfigurationError
from oncekey.once import OnceKey
from oncekey.reconcile import Pace, Report

ENDS = (signal.SIGINT, signal.SIGTERM)


def reconcile(given: argparse.Namespace, out: Output) -> Exit:
    """Ask the resolvers of an application about what is due, once or until SIGTERM."""
    once = loaded(given.app)
    if not once.resolvers:
        raise ConfigurationError(f"{given.app} has no resolver: write one with @once.resolver('POST /payments')")
    pace = Pace(tries=given.tries, at_once=given.at_once)
    if once.resolvers.awaited:
        asyncio.run(_awaited(once, pace, out, rounds=1 if given.once else None))
    else:
        _threaded(once, pace, out, rounds=1 if given.once else None)
    return Exit.OK


def _threaded(once: OnceKey, pace: Pace, out: Output, rounds: int | None) -> None:
    worker = once.reconciler(pace)
    try:
        with _stopped_by_signals(worker.stop):
            if rounds is not None:
                out.reconciled(worker.run_once())
            else:
                worker.run(_telling(out))
    finally:
        once.close()


async def _awaited(once: OnceKey, pace: Pace, out: Output, rounds: int | None) -> None:
    worker = once.async_reconciler(pace)
    loop = asyncio.get_running_loop()
    for number in ENDS:
        loop.add_signal_handler(number, worker.stop)
    try:
        if rounds is not None:
            out.reconciled(await worker.run_once())
        else:
            await worker.run(_telling(out))
    finally:
        await once.aclose()


def _telling(out: Output) -> Callable[[Report], None]:
    """Print the rounds in which something happened."""

    def told(report: Report) -> None:
        if report != Report():
            out.reconciled(report)
            sys.stdout.flush()

    return told


@contextmanager
def _stopped_by_signals(stop: Callable[[], None]) -> Iterator[None]:
    """While this lasts, Ctrl-C and SIGTERM end it after the inquiries at hand; a second one ends at once."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = {number: signal.getsignal(number) for number in ENDS}

    def ask(number: int, frame: object) -> None:
        for again, handler in before.items():
            signal.signal(again, handler)
        stop()

    for number in ENDS:
        signal.signal(number, ask)
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def loaded(app: str) -> OnceKey:
    """The installation that `module:name` names, as seen from the folder at hand."""
    found = named_object(app)
    if not isinstance(found, OnceKey):
        raise ConfigurationError(f"--app {app} is a {type(found).__name__}: name the OnceKey installation itself")
    return found
