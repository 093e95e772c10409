"""What each command does: ask oncekey.operations, hand the result to the output, say with which code to end."""

from __future__ import annotations

import argparse
from collections.abc import Callable

from oncekey import operations
from oncekey.cli import changes, checking, copying, erasing
from oncekey.cli.exits import Exit
from oncekey.cli.naming import named, ring
from oncekey.cli.outputs import Output, Showing
from oncekey.cli.stopping import stoppable
from oncekey.errors import MissingExtra
from oncekey.stores.contract import Store

Given = argparse.Namespace
Command = Callable[[Store, Given, Output], Exit]


def ls(store: Store, given: Given, out: Output) -> Exit:
    """List operations."""
    found = operations.listing(store, given.state, due=given.due, after=given.after, limit=given.limit)
    out.listing(found, Showing(keys=given.keys))
    return Exit.OK


def show(store: Store, given: Given, out: Output) -> Exit:
    """Show one operation."""
    out.operation(named(store, given), Showing(keys=given.keys, body=given.body, sealer=ring()))
    return Exit.OK


def migrate(store: Store, given: Given, out: Output) -> Exit:
    """Bring the schema to this version."""
    report = operations.migrate(store, rehearse=given.dry_run)
    out.migrated(report)
    return Exit.FOUND if report.rehearsed and report.done else Exit.OK


def purge(store: Store, given: Given, out: Output) -> Exit:
    """Sweep, then delete what has expired."""
    with stoppable() as stopped:
        with out.progress("purging", given.limit) as told:
            if given.dry_run:
                report = operations.would_purge(store, stop=stopped, progress=told)
            else:
                report = operations.purge(store, limit=given.limit, stop=stopped, progress=told)
        out.purged(report)
    return Exit.INTERRUPTED if report.stopped else Exit.OK


def stats(store: Store, given: Given, out: Output) -> Exit:
    """Count."""
    out.stats(operations.stats(store))
    return Exit.OK


def client(given: Given) -> Exit:
    """Look at the journal of a client. It needs no store."""
    from oncekey.cli import client as journal  # noqa: PLC0415 - no other command needs a client

    return journal.run(given)


def demo(given: Given) -> Exit:
    """Serve the demo. It never uses ONCEKEY_STORE: that may be a real one, and the demo makes its own tables."""
    try:
        from oncekey.demo import serve  # noqa: PLC0415 - needs an extra of its own
    except ModuleNotFoundError as missing:
        if (missing.name or "").startswith("oncekey"):
            raise
        raise MissingExtra("oncekey demo", "demo") from missing
    serve.run(host=given.host, port=given.port, store=given.store or None, workers=given.workers)
    return Exit.OK


# These serve, or look elsewhere.
STORELESS: dict[str, Callable[[Given], Exit]] = {"demo": demo, "client": client}

COMMANDS: dict[str, Command] = {
    "migrate": migrate,
    "ls": ls,
    "show": show,
    "resolve": changes.resolve,
    "retry": changes.retry,
    "dead-letters": changes.dead_letters,
    "erase": erasing.erase,
    "copy": copying.copy,
    "export": copying.export,
    "import": copying.import_,
    "purge": purge,
    "stats": stats,
    "doctor": checking.doctor,
}
