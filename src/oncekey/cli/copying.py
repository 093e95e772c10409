"""`oncekey copy`, `export` and `import`: records move from one store to another, and what has arrived is proved."""

from __future__ import annotations

import argparse
from pathlib import Path

from oncekey import operations
from oncekey.cli.changes import signature_of
from oncekey.cli.exits import Exit
from oncekey.cli.outputs import Output
from oncekey.cli.stopping import stoppable
from oncekey.errors import ConfigurationError
from oncekey.operations import CopyReport, File, Source, Walk
from oncekey.stores.contract import Store

Given = argparse.Namespace


def copy(store: Store, given: Given, out: Output) -> Exit:
    """Copy every record of the store into another one."""
    if given.to == given.store:
        raise ConfigurationError("--to is the store that --store names: name the store that the records shall go to")
    target = operations.opened(given.to, store_for=given.store_for, option="--to")
    try:
        operations.check_clocks(store, target)
        return _copied(Walk(store), target, given, out)
    finally:
        target.close()


def import_(store: Store, given: Given, out: Output) -> Exit:
    """Bring the records of a file into the store."""
    file = File(Path(given.file))
    file.check()
    return _copied(file, store, given, out)


def export(store: Store, given: Given, out: Output) -> Exit:
    """Write every record of the store into a file."""
    with stoppable() as stopped:
        with out.progress("exporting", None) as told:
            done = operations.export(Walk(store), Path(given.file), stop=stopped, progress=told)
        out.exported(done)
    if done.stopped:
        return Exit.INTERRUPTED
    return Exit.FOUND if done.running else Exit.OK


def _copied(source: Source, target: Store, given: Given, out: Output) -> Exit:
    _refuse_memory(target)
    with stoppable() as stopped:
        with out.progress(f"{given.command}ing", None) as told:
            report: CopyReport = operations.copy(
                source, target, signature_of(given), rehearse=given.dry_run, stop=stopped, progress=told
            )
        out.copied(report)
    if report.stopped:
        return Exit.INTERRUPTED
    return Exit.OK if report.settled else Exit.FOUND


def _refuse_memory(target: Store) -> None:
    if target.url.startswith("memory:"):
        raise ConfigurationError("memory:// is gone when this command ends: name a store that lasts")
