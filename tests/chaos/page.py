"""The figures of a run in docs/chaos.json, and the part of docs/chaos.md that is made from them; a test holds it so."""

from __future__ import annotations

import json
import os
import platform
import re
import sqlite3
import subprocess
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from tests.chaos.report import SHUT, Report, bound, read, rows
from tests.infra import RedisServer
from tests.infra.postgres import programs

DOCS = Path(__file__).parents[2] / "docs"
FIGURES, PAGE = DOCS / "chaos.json", DOCS / "chaos.md"
_PLACE = re.compile(r"(<!-- figures -->\n\n).*?\n?(<!-- end -->)", re.DOTALL)
# The table of the page has no line for how calls ended: that is for those who run it.
LEFT_OUT = "answered: "
FAULT = "fault: "


def machine() -> dict[str, str]:
    """Where a run was made, in a few words."""
    servers = {"PostgreSQL": [str(programs() / "postgres"), "--version"], "Redis": [RedisServer.program(), "--version"]}
    versions = {name: _version(words) for name, words in servers.items()}
    versions |= {"Python": platform.python_version(), "SQLite": sqlite3.sqlite_version}
    told = {"day": datetime.now(UTC).strftime("%Y-%m-%d"), "cores": f"{os.cpu_count()} cores"}
    return told | {name: f"{name} {version}" for name, version in sorted(versions.items())}


def _version(words: list[str]) -> str:
    said = subprocess.run(words, capture_output=True, text=True, check=True).stdout
    found = re.search(r"\d+\.\d+(\.\d+)?", said)
    return found[0] if found else said.strip()


def figures(reports: Sequence[Report], where: dict[str, str]) -> dict[str, Any]:
    """What is kept of a run."""
    kept = []
    for each in reports:
        told = {name: value for name, value in each.told().items() if name not in {"stories", "passed", "mutant"}}
        kept.append(told | {"shut_for": [round(seconds, 2) for seconds in each.shut_for]})
    return {"machine": where, "reports": kept}


def text(kept: dict[str, Any]) -> str:
    """The part of the page."""
    reports = [read(each) for each in kept["reports"]]
    minutes = max(each.seconds for each in reports) / 60
    about = ", ".join(str(value) for value in kept["machine"].values())
    storm = f"A storm of {minutes:.1f} minutes on each store, all at the same time, on one machine"
    lines = [
        f"{storm} ({about}); seed {reports[0].seed}:",
        "",
        "| | " + " | ".join(each.store for each in reports) + " |",
        "| --- " + "| ---: " * len(reports) + "|",
    ]
    table = [row for row in rows(reports) if not row[0].startswith(LEFT_OUT)]
    table.sort(key=lambda row: row[0].startswith(FAULT))
    lines += [f"| {name.replace(SHUT, f'a key {SHUT}')} | {' | '.join(cells)} |" for name, *cells in table]
    return "\n".join([*lines, "", bound(reports)])


def page(kept: dict[str, Any], before: str) -> str:
    """The whole page with that part renewed."""
    return _PLACE.sub(lambda place: f"{place[1]}{text(kept)}\n\n{place[2]}", before)


def write(reports: Sequence[Report]) -> None:
    """Renew both files."""
    kept = figures(reports, machine())
    FIGURES.write_text(json.dumps(kept, indent=1) + "\n")
    PAGE.write_text(page(kept, PAGE.read_text()))
