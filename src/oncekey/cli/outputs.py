"""How results leave: the one page that both outputs, tables and JSON, fill."""

from __future__ import annotations

import base64
import json
import sys
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import asdict
from typing import Any, NamedTuple, Protocol

from oncekey.core.journal import Audit, Call, Journal
from oncekey.core.keys import key_ref
from oncekey.core.outcome import Answer, Tombstone, Value
from oncekey.core.record import Seen
from oncekey.engine.sealing import Sealer
from oncekey.operations import (
    AppHealth,
    Change,
    CopyReport,
    EraseReport,
    Exported,
    Health,
    Kept,
    Listing,
    MigrationReport,
    PurgeReport,
    described,
    digest,
    history,
    kept,
)
from oncekey.reconcile.rounds import Report


class Showing(NamedTuple):
    """What of an operation may be shown, and who can open its answer."""

    keys: bool = False
    body: bool = False
    sealer: Sealer | None = None


# Told how many are done so far.
Told = Callable[[int], None]


class Output(Protocol):
    """Where results go."""

    def listing(self, found: Listing, showing: Showing) -> None: ...
    def operation(self, seen: Seen, showing: Showing) -> None: ...
    def changed(self, change: Change) -> None: ...
    def reconciled(self, report: Report) -> None: ...
    def migrated(self, report: MigrationReport) -> None: ...
    def progress(self, what: str, total: int | None) -> AbstractContextManager[Told]: ...
    def erased(self, report: EraseReport) -> None: ...
    def copied(self, report: CopyReport) -> None: ...
    def exported(self, done: Exported) -> None: ...
    def purged(self, report: PurgeReport) -> None: ...
    def stats(self, counted: dict[str, int | str]) -> None: ...
    def health(self, health: Health) -> None: ...
    def app_health(self, health: AppHealth) -> None: ...


class JsonOutput:
    """One object on one line for each result; what is only for people is left out."""

    def listing(self, found: Listing, showing: Showing) -> None:
        for record in found.records:
            _say(described(record, found.now, keys=showing.keys))
        if found.after is not None:
            print(json.dumps({"after": found.after}), file=sys.stderr)

    def operation(self, seen: Seen, showing: Showing) -> None:
        fields = described(seen.record, seen.now, keys=showing.keys)
        outcome = _outcome(kept(seen.record, showing.sealer), body=showing.body)
        _say(fields | {"outcome": outcome, "trail": _trail(history(seen.record, showing.sealer))})

    def changed(self, change: Change) -> None:
        _say(
            {
                "id": change.before.id.hex(),
                "ref": key_ref(change.before.id),
                "from": change.before.state.word,
                "to": change.after.state.word,
                "version": change.after.version,
                "note": change.after.note,
                "written": change.written,
                "rehearsed": change.rehearsed,
            }
        )

    def reconciled(self, report: Report) -> None:
        _say(asdict(report))

    def migrated(self, report: MigrationReport) -> None:
        _say({"rehearsed": True, "missing": report.done} if report.rehearsed else {"done": report.done})

    def progress(self, what: str, total: int | None) -> AbstractContextManager[Told]:
        return nullcontext(lambda done: None)

    def erased(self, report: EraseReport) -> None:
        _say(asdict(report))

    def copied(self, report: CopyReport) -> None:
        last = asdict(report.last)
        digests = {side: digest(last.pop(f"sum_{side}")) for side in ("source", "target")}
        said = {name: getattr(report, name) for name in ("passes", "copied", "brought", "stopped", "rehearsed")}
        _say(said | {"identical": report.identical, "settled": report.settled, "digests": digests, "last": last})

    def exported(self, done: Exported) -> None:
        _say({**done.contents._asdict(), "running": done.running, "stopped": done.stopped})

    def purged(self, report: PurgeReport) -> None:
        _say(asdict(report))

    def stats(self, counted: dict[str, int | str]) -> None:
        _say(counted)

    def health(self, health: Health) -> None:
        _say(_health(health))

    def app_health(self, health: AppHealth) -> None:
        routes = [
            {"method": route.method, "path": route.path, "name": route.name, "guarded": route.guarded}
            for route in health.routes
        ]
        _say(
            {
                "app": health.app,
                "exposed": health.exposed,
                "warned": health.warned,
                "routes": routes,
                "findings": [risk._asdict() for risk in health.risks],
                "accepted": health.accepted,
                "stores": [_health(store) for store in health.stores],
            }
        )


def _health(health: Health) -> dict[str, Any]:
    return {
        "store": health.store,
        "reachable": health.reachable,
        "refused": health.refused,
        "warned": health.warned,
        "skew": health.skew,
        "versions": health.versions,
        "findings": [finding._asdict() for finding in health.findings],
    }


def _say(fields: dict[str, Any]) -> None:
    print(json.dumps(fields))


def _outcome(found: Kept | None, *, body: bool) -> dict[str, Any] | None:
    if found is None:
        return None
    outcome = found.outcome
    if isinstance(outcome, Answer):
        headers = [[name.decode("latin-1"), value.decode("latin-1")] for name, value in outcome.headers]
        fields = {"kind": "answer", "status": outcome.status, "headers": headers, "size": len(outcome.body)}
        return fields | (_bytes(outcome.body) if body else {})
    if isinstance(outcome, Tombstone):
        return {"kind": "tombstone", "status": outcome.status, "reason": outcome.reason}
    if isinstance(outcome, Value):
        return {"kind": "value", "size": len(outcome.data)} | (_bytes(outcome.data) if body else {})
    if isinstance(outcome, Journal):
        asked = outcome.asked._asdict() if outcome.asked is not None else None
        calls = [_call(call) for call in outcome.calls]
        return {"kind": "journal", "calls": calls, "steps": _steps(outcome), "asked": asked}
    return {"kind": "unreadable", "size": found.size, "problem": found.problem}


def _call(call: Call) -> dict[str, Any]:
    return call._asdict() | {"state": call.state.word}


def _steps(journal: Journal) -> list[dict[str, Any]]:
    return [{"name": step.name, "size": len(step.result)} for step in journal.steps]


def _trail(lines: Sequence[Audit]) -> list[dict[str, Any]]:
    return [
        {"at": line.at, "by": line.by, "why": line.why, "from": line.source.word, "to": line.target.word}
        for line in lines
    ]


def _bytes(data: bytes) -> dict[str, str]:
    # Whoever reads it must get the exact bytes back, so text is used only where it is one.
    try:
        return {"body": data.decode(), "body_encoding": "utf-8"}
    except UnicodeDecodeError:
        return {"body": base64.b64encode(data).decode(), "body_encoding": "base64"}
