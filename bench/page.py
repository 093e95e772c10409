"""docs/benchmarks.md and its charts, from the figures of a run: nothing on the page is written by hand."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from bench import svg, targets
from bench.candidates import BY_NAME as CANDIDATES
from bench.pieces import Chart, Note, Piece, Table
from bench.sections import TABLE

IMAGES = "img/bench"
INTRO = """\
# Benchmarks

What OnceKey costs, measured side by side with naive code and with the peers that guard a Python web application. This
page is written by `make bench` from the figures in [benchmarks.json](benchmarks.json); a test holds it to them.

*Floor* is what one would write by hand with the same driver, correct only without faults: Redis `SET NX EX`, then
`SET EX`; Postgres two autocommitted statements on a pool of 16 connections; SQLite one transaction for each
statement, `synchronous=FULL`; memory a dict. It checks no fingerprint, knows no scope, has no lease, and loses what a
crash interrupts. *No layer* is the application alone. Every candidate runs in a process of its own, the peers in a
virtual environment of their own, and answers the same small payment through the ASGI interface. Rounds are
interleaved, ratios are taken within a round, and shown are medians. CPU is that of the candidate's process; *server*
is the database's.
"""
REPEAT = """\
## How to repeat

```
make bench BENCH_ARGS="--write-docs"     all of it, a quarter of an hour, and this page
make bench BENCH_ARGS="--quick"          for a look
make bench BENCH_ARGS="millions"         ten million records, and nothing else
```

It installs what is missing (`tools/provision servers bench`), makes its virtual environments, and starts its own
servers on free ports. On a machine that does other things too, the CPU columns are the steadier ones.
"""


def written(result: dict[str, Any], folder: Path) -> None:
    """Write the page and its charts into a folder of documents."""
    images = folder / IMAGES
    images.mkdir(parents=True, exist_ok=True)
    for old in images.glob("*.svg"):
        old.unlink()
    for name, text in files(result).items():
        (folder / name).write_text(text, encoding="utf-8")


def files(result: dict[str, Any]) -> dict[str, str]:
    """Every file by its name."""
    found = result["sections"]
    made: dict[str, str] = {}
    parts = [INTRO, _verdicts(found), _machine(result["machine"])]
    for section in TABLE:
        if section.name in found:
            pieces = section.show(found[section.name])
            parts.append(f"## {section.title}\n\n" + "\n".join(map(_shown, pieces)))
            made |= {f"{IMAGES}/{piece.name}.svg": svg.drawn(piece) for piece in pieces if isinstance(piece, Chart)}
    return made | {"benchmarks.md": "\n".join([*parts, REPEAT])}


def _verdicts(found: dict[str, Any]) -> str:
    made = targets.verdicts(found, list(CANDIDATES))
    lines = ["## Targets", "", _shown(targets.table(made)._replace(title=""))]
    missed = [verdict for verdict in made if not verdict.met]
    reasons: dict[str, list[str]] = {}
    for verdict in missed:
        reasons.setdefault(verdict.target.why, []).append(verdict.target.what)
    if missed:
        lines.append(f"{len(missed)} of {len(made)} targets are missed.\n")
        lines += [f"* {'; '.join(whats)}. {why}".rstrip() for why, whats in reasons.items()]
        lines.append("")
    return "\n".join(lines)


def _machine(machine: dict[str, Any]) -> str:
    def listed(versions: dict[str, str]) -> str:
        return ", ".join(f"{name} {version}" for name, version in versions.items())

    return (
        f"## Machine\n\n{machine['day']}, {machine['processor']}, {machine['cores']} cores, {machine['memory']}, "
        f"{machine['system']}, load before the run {machine['load']}.\n\n"
        f"* Servers: {listed(machine['servers'])}, on the same machine. Postgres commits to the disk (`fsync`, "
        f"`synchronous_commit`); Redis has no append-only file.\n"
        f"* OnceKey and the floors: {listed(machine['ours'])}\n* Peers: {listed(machine['peers'])}\n"
    )


def _shown(piece: Piece) -> str:
    if isinstance(piece, Note):
        return f"{piece.text}\n"
    if isinstance(piece, Chart):
        return f"![{piece.title}]({IMAGES}/{piece.name}.svg)\n"
    return _table(piece)


def _table(table: Table) -> str:
    lines = [f"**{table.title}**\n"] if table.title else []
    lines += [_row(table.head), "| --- |" + " ---: |" * (len(table.head) - 1)]
    return "\n".join([*lines, *map(_row, table.rows), ""])


def _row(cells: tuple[str, ...]) -> str:
    return f"| {' | '.join(cells)} |"
