"""Measures OnceKey beside naive code and beside its peers.

    make bench                                           everything, a quarter of an hour
    make bench BENCH_ARGS="--write-docs"                 the same, and docs/benchmarks.md from it
    make bench BENCH_ARGS="--quick"                      the same with few rounds, for a look
    make bench BENCH_ARGS="redis --rounds 5 --at 32"     one section, one setting
    make bench BENCH_ARGS="redis --only floor oncekey"   some candidates

Rounds are interleaved and ratios are taken within a round; printed are medians. CPU time is the steadier column on a
machine that does other things too.
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import Any

from bench import machine, page, targets, terminal
from bench.candidates import BY_NAME as CANDIDATES
from bench.line import ROOT
from bench.progress import Progress
from bench.sections import BY_NAME, TABLE, Bench, Section

RESULT = ROOT / "build" / "bench.json"
FIGURES = ROOT / "docs" / "benchmarks.json"


def parse(words: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser("bench", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("sections", nargs="*", metavar="SECTION", help=f"what to measure: {', '.join(BY_NAME)}")
    parser.add_argument("--quick", action="store_true", help="few rounds: for a look, not for the page")
    parser.add_argument("--full", action="store_true", help="the sections that take long, too")
    parser.add_argument("--write-docs", action="store_true", help="write docs/benchmarks.md from the figures")
    parser.add_argument("--rounds", type=int, help="rounds of each setting")
    parser.add_argument("--size", type=int, help="requests of one candidate in a round")
    parser.add_argument("--at", type=int, nargs="+", default=[], metavar="N", help="requests at once")
    parser.add_argument("--only", nargs="+", metavar="NAME", help="some candidates instead of all")
    parser.add_argument("--result", type=Path, default=RESULT, help="where the figures go, as JSON")
    options = parser.parse_args(words)
    if options.write_docs and (options.quick or options.only):
        parser.error("--write-docs is for whole runs: leave out --quick and --only")
    unknown = [name for name in options.sections if name not in BY_NAME]
    if unknown:
        parser.error(f"{unknown[0]} is no section: there are {', '.join(BY_NAME)}")
    return options


def chosen(options: argparse.Namespace) -> list[Section]:
    """The sections that were named, or all but those that must be asked for."""
    if options.sections:
        return [BY_NAME[name] for name in options.sections]
    return [section for section in TABLE if options.full or not section.asked]


def run(sections: list[Section], options: argparse.Namespace) -> dict[str, Any]:
    """Measure and print, section by section."""
    progress = Progress({section.name: section.weighs for section in sections})
    bench = Bench(
        options.rounds or (3 if options.quick else 7),
        options.size or (400 if options.quick else 1000),
        tuple(options.at),
        options.only,
        options.quick,
        progress.at,
    )
    found: dict[str, Any] = {}
    for section in sections:
        progress.begin(section.name)
        found[section.name] = section.measure(bench)
        progress.end()
        print(f"## {section.title}\n\n{terminal.show(section.show(found[section.name]))}", flush=True)
    return found


def kept(path: Path) -> dict[str, Any]:
    """The sections of earlier runs, which a run of some sections leaves as they are."""
    sections: dict[str, Any] = json.loads(path.read_text())["sections"] if path.exists() else {}
    return {name: figures for name, figures in sections.items() if name in BY_NAME}


def main(words: list[str]) -> None:
    options = parse(words)
    where = machine.facts()
    found = run(chosen(options), options)
    print(terminal.show([targets.table(targets.verdicts(found, list(CANDIDATES)))]))
    _write(options.result, {"machine": where, "sections": found})
    if options.write_docs:
        result = {"machine": where, "sections": kept(FIGURES) | found}
        _write(FIGURES, result)
        page.written(result, FIGURES.parent)
        print(f"written: {FIGURES.parent / 'benchmarks.md'}")


def _write(path: Path, result: dict[str, Any]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(result, indent=1) + "\n")


if __name__ == "__main__":
    main(sys.argv[1:])
