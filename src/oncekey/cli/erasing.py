"""`oncekey erase`: answers go, keys and statuses stay."""

from __future__ import annotations

import argparse
import sys

from oncekey import operations
from oncekey.cli.changes import signature_of
from oncekey.cli.exits import Exit
from oncekey.cli.naming import named, ring
from oncekey.cli.outputs import Output
from oncekey.cli.stopping import stoppable
from oncekey.operations import Desk
from oncekey.stores.contract import Store

Given = argparse.Namespace


def erase(store: Store, given: Given, out: Output) -> Exit:
    """Erase the answer of one operation, or all answers of a caller."""
    desk, signature = Desk(store, ring(), given.dry_run), signature_of(given)
    digest = _digest(given)
    if digest is None:
        change = desk.erase(named(store, given), signature)
        out.changed(change)
        return Exit.FOUND if change.moved_on else Exit.OK
    with stoppable() as stopped:
        with out.progress("erasing", None) as told:
            report = operations.erase(desk, digest, signature, stop=stopped, progress=told)
        out.erased(report)
    if not report.finished:
        return Exit.INTERRUPTED
    return Exit.OK if report.whole else Exit.FOUND


def _digest(given: Given) -> str | None:
    """Whose answers; None: one operation is named."""
    if given.digest is not None:
        return operations.checked_digest(given.digest.strip().lower())
    if given.scope is None:
        return None
    return operations.digest_of(sys.stdin.readline().rstrip("\r\n") if given.scope == "-" else given.scope)
