"""`oncekey inbox`: lines for people, or an object a line for machines."""

from __future__ import annotations

import argparse
import json
import sqlite3
import sys
from contextlib import closing
from typing import Any

from oncekey.cli.exits import Exit
from oncekey.cli.naming import NotFound
from oncekey.effects.inbox.operators import InboxDesk
from oncekey.effects.inbox.parked import Parked
from oncekey.errors import ConfigurationError
from oncekey.operations.words import many, size, visible
from oncekey.stores.sqlite import path_of


def inbox(given: argparse.Namespace) -> Exit:
    """Carry out one of the five."""
    if not given.store:
        raise ConfigurationError("no store was named: write --store postgresql://..., or set ONCEKEY_STORE")
    desk = InboxDesk(given.store, table=given.table, store_for=given.store_for)
    if given.what == "migrate":
        return _migrate(given, desk)
    if given.what == "stats":
        counted = desk.count()._asdict()
        lines = [f"{name:<11}{value:>9,}" for name, value in counted.items()]
        return _say(given, counted, "\n".join(lines))
    return _ls(given, desk) if given.what == "ls" else _change(given, desk)


def _migrate(given: argparse.Namespace, desk: InboxDesk) -> Exit:
    if given.store.startswith("sqlite:"):
        # As `oncekey migrate` does: this is the one command that may make a file.
        with closing(sqlite3.connect(path_of(given.store))):
            pass
    desk.migrate()
    return _say(given, {"done": [given.table]}, f"the tables of {given.table} are there")


def _change(given: argparse.Namespace, desk: InboxDesk) -> Exit:
    id_ = _bytes(given.id)
    if not (desk.requeue(id_) if given.what == "requeue" else desk.discard(id_)):
        raise NotFound(f"{visible(given.id)} is no parked message: `oncekey inbox ls` lists them")
    return _say(given, {given.what: 1}, f"{given.what}: 1")


def _ls(given: argparse.Namespace, desk: InboxDesk) -> Exit:
    page = desk.parked(given.source, after=_cursor(given.after), limit=given.limit)
    for message in page.parked:
        _say(given, _fields(message, body=given.body), _line(message, body=given.body))
    if not page.parked and not given.json:
        print("nothing is parked", file=sys.stderr)
    if page.after is not None:
        after = f"{page.after[0]}/{page.after[1].hex()}"
        print(json.dumps({"after": after}) if given.json else f"there are more: add --after {after}", file=sys.stderr)
    return Exit.OK


def _fields(message: Parked, *, body: bool) -> dict[str, Any]:
    fields: dict[str, Any] = {
        "id": message.id.hex(),
        "consumer": message.consumer,
        "source": message.source,
        "message_id": message.message_id,
        "attempts": message.attempts,
        "first_at": message.first_at,
        "parked_at": message.parked_at,
        "requeued_at": message.requeued_at,
        "reason": message.reason,
        "size": len(message.body),
    }
    return fields | ({"body": message.body.decode(errors="backslashreplace")} if body else {})


def _line(message: Parked, *, body: bool) -> str:
    whose = f" for {visible(message.consumer)}" if message.consumer else ""
    again = ", to be run again" if message.requeued_at is not None else ""
    head = (
        f"{message.id.hex()} {visible(message.source)} {visible(message.message_id)}{whose}, "
        f"{size(len(message.body))}, {many(message.attempts, 'attempt')}{again}"
    )
    shown = f"\n  {visible(message.body.decode(errors='backslashreplace'), lines=True)}" if body else ""
    return f"{head}\n  {visible(message.reason)}{shown}"


def _bytes(text: str) -> bytes:
    try:
        return bytes.fromhex(text)
    except ValueError:
        raise ConfigurationError(
            f"{visible(text)!r} is no parked message's id: write it as `oncekey inbox ls` shows it"
        ) from None


def _cursor(text: str | None) -> tuple[int, bytes] | None:
    if text is None:
        return None
    at, _, id_ = text.partition("/")
    if not at.isdecimal():
        raise ConfigurationError(f"--after {visible(text)} is no cursor: write it as the listing before has said it")
    return int(at), _bytes(id_)


def _say(given: argparse.Namespace, fields: dict[str, Any], text: str) -> Exit:
    print(json.dumps(fields) if given.json else text)
    return Exit.OK
