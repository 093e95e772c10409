"""The commands that change operations by hand."""

from __future__ import annotations

import argparse
import getpass
import sys
from collections.abc import Iterator
from pathlib import Path

from oncekey import operations
from oncekey.cli.exits import Exit
from oncekey.cli.naming import named, ring
from oncekey.cli.outputs import Output, Showing
from oncekey.core.record import Seen
from oncekey.errors import ConfigurationError
from oncekey.operations import Desk, Signature
from oncekey.stores.contract import Store

Given = argparse.Namespace


def resolve(store: Store, given: Given, out: Output) -> Exit:
    """Settle one operation by hand."""
    desk = Desk(store, ring(), given.dry_run)
    answer = operations.read_answer(_text(given.completed)) if given.completed else None
    seen, signature = named(store, given), signature_of(given)
    if answer is not None:
        change = desk.complete(seen, answer, signature, keep_for=given.keep_for, force=given.force)
    else:
        change = desk.retryable(seen, signature, keep_for=given.keep_for, force=given.force)
    out.changed(change)
    return Exit.FOUND if change.moved_on else Exit.OK


def retry(store: Store, given: Given, out: Output) -> Exit:
    """Have one unknown outcome, or all dead letters, asked about again."""
    desk, signature = Desk(store, ring(), given.dry_run), signature_of(given)
    moved_on = False
    for seen in _dead(store) if given.all else (named(store, given),):
        change = desk.ask_again(seen, signature)
        out.changed(change)
        moved_on |= change.moved_on
    return Exit.FOUND if moved_on else Exit.OK


def _dead(store: Store) -> Iterator[Seen]:
    after: str | None = None
    while True:
        found = operations.dead_letters(store, after=after, limit=operations.PAGE)
        yield from (Seen(record, found.now) for record in found.records)
        after = found.after
        if after is None:
            return


def dead_letters(store: Store, given: Given, out: Output) -> Exit:
    """List what nobody asks about any more."""
    out.listing(operations.dead_letters(store, after=given.after, limit=given.limit), Showing(keys=given.keys))
    return Exit.OK


def signature_of(given: Given) -> Signature:
    """Who changes something, and why."""
    try:
        by = given.by or getpass.getuser()
    except (KeyError, OSError) as nameless:
        raise ConfigurationError("this machine does not know your name: write --by NAME") from nameless
    return Signature(by, given.reason).checked()


def _text(path: str) -> str:
    if path == "-":
        return sys.stdin.read()
    try:
        return Path(path).read_text(encoding="utf-8")
    except OSError as wrong:
        raise ConfigurationError(f"the file {path} cannot be read: {wrong.strerror}") from wrong
    except UnicodeDecodeError as wrong:
        raise ConfigurationError(f"the file {path} cannot be read: it is no text in UTF-8") from wrong
