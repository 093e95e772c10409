"""`oncekey client`: the journal of a client's operations, for people. It needs no store."""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from oncekey.cli.exits import Exit
from oncekey.client.carriage import carriage
from oncekey.client.journal import VARIABLE, Entry, Journal
from oncekey.client.machine import Retries
from oncekey.errors import ConfigurationError, MissingExtra
from oncekey.operations.words import brief, visible

if TYPE_CHECKING:
    from oncekey.client.resuming import Report

Told = Callable[[Entry, str], object]


def run(given: argparse.Namespace) -> Exit:
    """Carry out one of the three."""
    journal = _journal(given)
    try:
        if given.what == "forget":
            return _forget(journal, given)
        if given.what == "pending" or given.dry_run:
            return _pending(journal, given)
        return _resume(journal, given)
    finally:
        journal.close()


def _journal(given: argparse.Namespace) -> Journal:
    path = given.journal or os.environ.get(VARIABLE, "")
    if not path:
        raise ConfigurationError(f"no journal is named: add --journal FILE, or set {VARIABLE}")
    if not Path(path).is_file():
        raise ConfigurationError(f"there is no journal at {path}: it is the file that the client was given")
    return Journal(path, keep_for=given.keep_for, remember_for=max(given.keep_for, 90 * 86_400.0))


def _fields(journal: Journal, entry: Entry) -> dict[str, Any]:
    request = entry.request
    return {
        "name": entry.name,
        "identity": list(entry.identity),
        "key": entry.key,
        "queue": entry.queue,
        "made_at": int(entry.made_at * 1000),
        "attempts": entry.attempts,
        "trouble": entry.trouble,
        "request": None if request is None else f"{request.method} {request.url}",
        "unresolved": journal.unresolved(entry),
    }


def _pending(journal: Journal, given: argparse.Namespace) -> Exit:
    found = journal.pending(given.queue)
    if given.json:
        for entry in found:
            print(json.dumps(_fields(journal, entry)))
    else:
        _table(journal, found, color=not given.no_color)
    return Exit.FOUND if any(journal.unresolved(entry) for entry in found) else Exit.OK


def _table(journal: Journal, found: list[Entry], *, color: bool) -> None:
    tables = _tables()
    paper = tables.Paper(no_color=None if color else True, highlight=False)
    if not found:
        tables.Paper(stderr=True, highlight=False).print("no open operations")
        return
    table = tables.Table(box=None, padding=(0, 1, 0, 0), pad_edge=False, header_style="bold")
    for title in ("INTENT", "AGE", "TRY", "KEY"):
        table.add_column(title, overflow="fold")
    table.add_column("REQUEST, TROUBLE", overflow="fold")
    now = time.time()
    for entry in found:
        about = [
            f"{entry.request.method} {entry.request.url}" if entry.request else "only its program knows the request"
        ]
        about += [entry.trouble] if entry.trouble else []
        about += ["unresolved: older than the server keeps answers"] if journal.unresolved(entry) else []
        words = [" ".join((entry.name, *entry.identity)), brief(int((now - entry.made_at) * 1000)), str(entry.attempts)]
        table.add_row(*(tables.Text(visible(word)) for word in (*words, entry.key, "\n".join(about))))
    paper.print(table)


def _forget(journal: Journal, given: argparse.Namespace) -> Exit:
    if not journal.forget(given.key):
        print(f"oncekey: no operation with the key {given.key}", file=sys.stderr)
        return Exit.FOUND
    print(json.dumps({"forgotten": given.key}) if given.json else f"forgotten: {given.key}")
    return Exit.OK


def _resume(journal: Journal, given: argparse.Namespace) -> Exit:
    try:
        from oncekey.client import resuming  # noqa: PLC0415 - httpx is an extra
    except ModuleNotFoundError as missing:
        if (missing.name or "").startswith("oncekey"):
            raise
        raise MissingExtra("oncekey client resume", "httpx") from missing
    found = journal.pending(given.queue, limit=journal.at_most)
    headers = _headers(given.header, given.headers_from)
    _one_origin(headers, given.origin, resuming.origins(found))
    how = carriage(given.dialect)
    client = resuming.sender(journal, headers=headers, retries=Retries(try_for=given.try_for), carriage=how)
    with client, _progress(len(found), quiet=given.json) as told:
        report = resuming.resume(journal, client, queue=given.queue, origin=given.origin, told=told)
    _say(report, as_json=given.json)
    return Exit.OK if report.finished and not report.refused else Exit.FOUND


def _headers(lines: list[str], path: str | None) -> dict[str, str]:
    if path is not None:
        text = sys.stdin.read() if path == "-" else Path(path).read_text("utf-8")
        lines = lines + [line for line in text.splitlines() if line.strip()]
    headers = {}
    for line in lines:
        name, colon, value = line.partition(":")
        if not colon or not name.strip():
            raise ConfigurationError(f"{line.split()[0]!r} is no header: write 'Name: value'")
        headers[name.strip()] = value.strip()
    return headers


def _one_origin(headers: dict[str, str], origin: str | None, found: set[str]) -> None:
    """Credentials for one server are not for another."""
    if headers and origin is None and len(found) > 1:
        raise ConfigurationError(
            f"the open operations go to {', '.join(sorted(found))}: say with --origin which of them gets these headers"
        )


def _say(report: Report, *, as_json: bool) -> None:
    counted = {
        "done": len(report.done),
        "refused": len(report.refused),
        "left": len(report.left),
        "waiting": len(report.waiting),
        "unresolved": len(report.unresolved),
        "unsent": len(report.unsent),
    }
    if as_json:
        print(
            json.dumps(
                counted
                | {"unresolved_keys": report.unresolved, "left_keys": report.left, "refused_keys": report.refused}
            )
        )
        return
    print(", ".join(f"{number} {word}" for word, number in counted.items() if number) or "nothing was open")


@contextmanager
def _progress(total: int, *, quiet: bool) -> Iterator[Told]:
    if quiet:
        yield lambda entry, word: None
        return
    tables = _tables()
    columns = (tables.TextColumn("resuming"), tables.BarColumn(), tables.MofNCompleteColumn())
    paper = tables.Paper(stderr=True, highlight=False)
    with tables.Progress(*columns, console=paper, transient=True) as progress:
        task = progress.add_task("", total=total)
        yield lambda entry, word: progress.advance(task)


def _tables() -> Any:
    try:
        from oncekey.cli import tables  # noqa: PLC0415 - rich is an extra; JSON does without
    except ModuleNotFoundError as missing:
        if missing.name is None or missing.name.partition(".")[0] != "rich":
            raise
        raise MissingExtra("output for people", "cli", "add --json") from missing
    return tables
