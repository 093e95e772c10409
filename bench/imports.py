"""What `import oncekey` costs in a fresh process, and what it brings along; beside it the peers."""

from __future__ import annotations

import json
import statistics
import subprocess
from pathlib import Path
from typing import Any

from bench.candidates import MAIN, PEERS
from bench.line import ROOT
from bench.pieces import Bar, Chart, Piece, Table, number
from bench.rounds import turns
from bench.sections import Bench

PROGRAM = """
import json, sys, time
before, began = set(sys.modules), time.perf_counter()
import {name}
took = time.perf_counter() - began
roots = {{module.partition(".")[0] for module in set(sys.modules) - before}}
known = sys.stdlib_module_names
print(json.dumps({{"took": took, "foreign": sorted(r for r in roots - known if not r.startswith("_"))}}))
"""
NAMES = {
    "oncekey": MAIN,
    "idemkit": PEERS,
    "fastapi_idempotency": PEERS,
    "fastapi_idempotency_key": PEERS,
    "ichido": PEERS,
    "idempotency_header_middleware": PEERS,
    "mobius_idempotence": PEERS,
}


def measure(bench: Bench) -> dict[str, Any]:
    """Fresh processes in turn; medians in milliseconds."""
    rounds = 3 if bench.quick else 15
    found: dict[str, list[float]] = {name: [] for name in NAMES}
    foreign: dict[str, list[str]] = {}
    for number_, names in turns(list(NAMES), rounds):
        bench.progress(number_ / rounds, "fresh processes")
        for name in names:
            answer = fresh(ROOT / NAMES[name] / "bin" / "python", name)
            found[name].append(answer["took"] * 1000)
            foreign[name] = [one for one in answer["foreign"] if one != name]
    return {name: {"ms": statistics.median(times), "foreign": foreign[name]} for name, times in found.items()}


def fresh(python: Path, name: str) -> dict[str, Any]:
    """Import it in a new process. Isolated: neither this folder nor anybody's PYTHONPATH takes part."""
    words = [str(python), "-I", "-c", PROGRAM.format(name=name)]
    done = subprocess.run(words, capture_output=True, text=True, check=True, timeout=60)
    answer: dict[str, Any] = json.loads(done.stdout)
    return answer


def show(found: dict[str, Any]) -> list[Piece]:
    """One table."""
    rows = [(name, number(row["ms"]), ", ".join(row["foreign"]) or "-") for name, row in found.items()]
    bars = [Bar(name, row["ms"], f"{number(row['ms'])} ms") for name, row in found.items()]
    return [
        Table("Importing it in a fresh process", ("", "ms", "third-party packages that come along"), rows),
        Chart("import", "import, milliseconds", [("", bars)]),
    ]
