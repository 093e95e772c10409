"""`oncekey relay` and `oncekey outbox`: lines for people, or an object a line for machines."""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import signal
import sqlite3
import sys
from contextlib import closing
from typing import Any

from oncekey.cli.exits import Exit
from oncekey.cli.naming import NotFound
from oncekey.effects.brokers.publishers import open_publisher
from oncekey.effects.inbox import Patience
from oncekey.effects.outbox import Letter, OutboxDesk, Pace, Relay, Report
from oncekey.effects.outbox.relay import PATIENCE
from oncekey.errors import ConfigurationError
from oncekey.operations.words import brief, many, size, visible
from oncekey.stores.sqlite import path_of

BROKER = "ONCEKEY_BROKER"


def relay(given: argparse.Namespace) -> Exit:
    """Send what was committed, once or until SIGTERM."""
    return asyncio.run(_relay(given))


async def _relay(given: argparse.Namespace) -> Exit:
    to = given.to or os.environ.get(BROKER, "")
    if not to:
        raise ConfigurationError(f"no broker was named: write --to amqp://host/, or set {BROKER}")
    pace = Pace(given.batch, given.lease_for, given.keep_for, given.store_for)
    patience = Patience(given.attempts, PATIENCE.first_for, PATIENCE.most_for)
    async with Relay(_store(given), open_publisher(to), patience=patience, pace=pace, table=given.table) as running:
        if given.once:
            return await _once(running, given)
        _stopped_by_signals(running)
        # A database that is away at the start is waited for like one that goes away later; a missing table is not.
        await running.run(lambda report: _told(report, given))
    return Exit.OK


async def _once(running: Relay, given: argparse.Namespace) -> Exit:
    total = Report()
    while (report := await running.run_once()).taken:
        total += report
        if report.trouble:
            break
    _told(total, given)
    return Exit.FOUND if total.trouble or total.refused or total.parked else Exit.OK


def _stopped_by_signals(running: Relay) -> None:
    """The first Ctrl-C or SIGTERM ends it after the batch at hand; a second one at once."""
    loop = asyncio.get_running_loop()
    ends = (signal.SIGINT, signal.SIGTERM)

    def ask() -> None:
        for number in ends:
            loop.remove_signal_handler(number)
        running.stop()

    for number in ends:
        loop.add_signal_handler(number, ask)


def _told(report: Report, given: argparse.Namespace) -> None:
    fields = {"sent": report.sent, "refused": report.refused, "parked": report.parked, "untried": report.untried}
    if given.json:
        print(json.dumps(fields | {"trouble": report.trouble}))
    else:
        words = ", ".join(f"{count} {name}" for name, count in fields.items() if count or name == "sent")
        print(words + (f"; {visible(report.trouble)}" if report.trouble else ""))
    sys.stdout.flush()


# ---- operators ---------------------------------------------------------------------------------------------------


def outbox(given: argparse.Namespace) -> Exit:
    """Carry out one of the five."""
    if given.what == "requeue" and bool(given.id) == given.all:
        raise ConfigurationError("requeue needs an ID or --all, and not both")
    store = _store(given)
    if given.what == "migrate" and store.startswith("sqlite:"):
        # As `oncekey migrate` does: this is the one command that may make a file.
        with closing(sqlite3.connect(path_of(store))):
            pass
    return asyncio.run(_outbox(given, store))


async def _outbox(given: argparse.Namespace, store: str) -> Exit:
    async with OutboxDesk(store, table=given.table, store_for=given.store_for) as desk:
        if given.what == "migrate":
            await desk.migrate()
            return _say(given, {"done": [given.table]}, f"the table {given.table} is there")
        if given.what == "stats":
            return _stats(given, (await desk.count())._asdict())
        if given.what == "ls":
            return await _ls(given, desk)
        return await _change(given, desk)


async def _change(given: argparse.Namespace, desk: OutboxDesk) -> Exit:
    if given.what == "requeue" and given.all:
        count = await desk.requeue_all()
    else:
        count = int(await (desk.requeue(given.id) if given.what == "requeue" else desk.discard(given.id)))
        if not count:
            raise NotFound(f"{given.id} is no dead letter: `oncekey outbox ls` lists them")
    return _say(given, {given.what: count}, f"{given.what}: {count}")


async def _ls(given: argparse.Namespace, desk: OutboxDesk) -> Exit:
    found = await desk.letters(after=given.after, limit=given.limit)
    for letter in found.letters:
        _say(given, _fields(letter, body=given.body), _line(letter, body=given.body))
    if not found.letters and not given.json:
        print("no dead letters", file=sys.stderr)
    if found.after is not None:
        more = json.dumps({"after": found.after}) if given.json else f"there are more: add --after {found.after}"
        print(more, file=sys.stderr)
    return Exit.OK


def _fields(letter: Letter, *, body: bool) -> dict[str, Any]:
    message = letter.message
    fields: dict[str, Any] = {
        "id": message.id,
        "topic": message.topic,
        "key": message.key,
        "type": message.type,
        "attempts": message.attempts,
        "staged_at": round(message.staged_at * 1000),
        "parked_at": letter.parked_at,
        "reason": letter.reason,
        "headers": dict(message.headers),
        "size": len(message.body),
    }
    return fields | ({"body": message.body.decode(errors="backslashreplace")} if body else {})


def _line(letter: Letter, *, body: bool) -> str:
    message = letter.message
    key = f" key {visible(message.key)}" if message.key is not None else ""
    head = f"{message.id} {visible(message.topic)}{key}, {size(len(message.body))}, {many(message.attempts, 'attempt')}"
    shown = f"\n  {visible(message.body.decode(errors='backslashreplace'), lines=True)}" if body else ""
    return f"{head}\n  {visible(letter.reason)}{shown}"


def _stats(given: argparse.Namespace, counted: dict[str, int | None]) -> Exit:
    oldest = counted["oldest_for"]
    lines = [f"{name:<8}{value:>9,}" for name, value in counted.items() if value is not None and name != "oldest_for"]
    return _say(given, counted, "\n".join([*lines, f"{'oldest':<8}{brief(oldest) if oldest is not None else '-':>9}"]))


def _say(given: argparse.Namespace, fields: dict[str, Any], text: str) -> Exit:
    print(json.dumps(fields) if given.json else text)
    return Exit.OK


def _store(given: argparse.Namespace) -> str:
    if not given.store:
        raise ConfigurationError("no store was named: write --store postgresql://..., or set ONCEKEY_STORE")
    return str(given.store)
