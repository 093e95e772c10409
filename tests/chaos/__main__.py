"""Breaks OnceKey on purpose, on each store at the same time, and judges what happened. See docs/chaos.md.

make chaos                                              ten minutes, all stores
make chaos CHAOS_ARGS="--seconds 60 --store redis"      one minute, one store
make chaos CHAOS_ARGS="--mutant fail-open"              with a bug that must be caught
make chaos CHAOS_ARGS=--write-docs                      ten minutes, and the figures into the docs
"""

from __future__ import annotations

import argparse
import asyncio
import json
import secrets
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

from tests.chaos import backing, history, mutants, page, trials, versions
from tests.chaos.arena import TERMS, Plan, run
from tests.chaos.checker import Terms
from tests.chaos.floors import floors
from tests.chaos.launching import FAKETIME
from tests.chaos.report import Report, read, report, show
from tests.infra import EngineMissing

TEN_MINUTES = 600.0
# Of the time that is given, what is left for the end: everything is settled, and every key is asked for once more.
QUIET_SHARE, QUIET = 0.1, 12.0
# A short storm on a busy machine goes on for so long until every rare event has been seen.
PATIENT_FOR = 240.0
SHORTEST = 30.0


def parse(words: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser("chaos", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=TEN_MINUTES, help="how long, in all (600)")
    parser.add_argument("--store", choices=backing.NAMES, action="append", help="one store instead of all; may repeat")
    parser.add_argument("--seed", type=int, help="which faults and which clients; timing stays its own")
    parser.add_argument("--mutant", choices=mutants.NAMES, default="", help="a bug to switch on; it must be caught")
    parser.add_argument("--mutants", action="store_true", help="all bugs, one after another, until each is caught")
    parser.add_argument("--json", action="store_true", help="print the figures as JSON instead of a table")
    parser.add_argument("--histories", type=Path, metavar="FOLDER", help="keep each history there, as JSON lines")
    parser.add_argument(
        "--write-docs", action="store_true", help="put the figures into docs/chaos.json and docs/chaos.md"
    )
    parser.add_argument("--alone", action="store_true", help=argparse.SUPPRESS)  # one store, told to another of us
    options = parser.parse_args(words)
    if options.seconds < SHORTEST:
        parser.error(f"--seconds {options.seconds:g} is too short to mean anything: write {SHORTEST:g} or more")
    if options.write_docs and (options.store or options.mutant):
        parser.error("--write-docs is for a run on all stores and without a bug: leave --store and --mutant out")
    options.seed = secrets.randbelow(1 << 30) if options.seed is None else options.seed
    options.store = options.store or list(backing.NAMES)
    return options


def say(told: dict[str, Any]) -> None:
    """A line for the process that shows us."""
    print(json.dumps(told), flush=True)  # noqa: T201 - this is the line


def alone(options: argparse.Namespace) -> None:
    """Run one store and tell the process that has started us."""
    [store] = options.store
    versions.write(versions.EVERYBODYS)  # at the end we list what all of them have written
    storm = options.seconds - max(QUIET, options.seconds * QUIET_SHARE)
    least = floors(store, storm)
    plan = Plan(store, storm, options.seed, options.mutant, floors=least, more_for=max(storm, PATIENT_FOR), say=say)
    try:
        found = asyncio.run(run(plan))
    except EngineMissing as missing:
        say({"missing": str(missing)})
        return
    terms = Terms(TERMS.lease_for, TERMS.slack, least)
    told = report(found, terms, store=store, seconds=storm, seed=options.seed, mutant=options.mutant)
    if options.histories:
        options.histories.mkdir(parents=True, exist_ok=True)
        (options.histories / f"{store}.jsonl").write_text("\n".join(history.lines(found)))
    say({"report": told.told()})


def side_by_side(options: argparse.Namespace, progress: Progress) -> list[Report]:
    """A process for each store."""
    given = ["--seconds", str(options.seconds), "--seed", str(options.seed), "--alone"]
    given += ["--mutant", options.mutant] if options.mutant else []
    given += ["--histories", str(options.histories)] if options.histories else []
    found: dict[str, Report] = {}
    threads = []
    for store in options.store:
        bar = progress.add_task(store, total=1.0, told="starting")
        words = [sys.executable, "-m", "tests.chaos", "--store", store, *given]
        threads.append(threading.Thread(target=_follow, args=(words, store, found, progress, bar)))
        threads[-1].start()
    for thread in threads:
        thread.join()
    return [found[store] for store in options.store if store in found]


def _follow(words: list[str], store: str, found: dict[str, Report], progress: Progress, bar: Any) -> None:
    with subprocess.Popen(words, stdout=subprocess.PIPE, text=True) as child:
        assert child.stdout is not None
        for line in child.stdout:
            told = json.loads(line)
            if "report" in told:
                found[store] = read(told["report"])
                progress.update(bar, completed=1.0, told="done")
            elif "missing" in told:
                progress.update(bar, told=told["missing"])
            else:
                words_ = f"{told['phase']}: {told['operations']:,} operations, {told['faults']:,} faults"
                progress.update(bar, completed=told["done"], told=words_)


def main(words: list[str]) -> int:
    options = parse(words)
    if options.alone:
        alone(options)
        return 0
    console = Console(stderr=options.json)
    if options.mutants:
        tried = asyncio.run(trials.all_of_them())
        trials.show(tried, console)
        return 0 if all(each.caught for each in tried) else 1
    columns = (TextColumn("{task.description:9}"), BarColumn(), TimeElapsedColumn(), TextColumn("{task.fields[told]}"))
    with Progress(*columns, console=console) as progress:
        reports = side_by_side(options, progress)
    if options.json:
        print(json.dumps([each.told() for each in reports], indent=1))  # noqa: T201 - asked for
    else:
        show(reports, console)
        console.print(f"seed {options.seed}" + ("" if FAKETIME else "; clocks were not skewed: libfaketime is missing"))
    complete = len(reports) == len(options.store)
    if not complete:
        console.print("[red]A store has given no report; see above.")
    passed = complete and all(each.passed for each in reports)
    if options.write_docs and passed:
        page.write(reports)
    elif options.write_docs:
        console.print("[red]The docs stay as they are: only a run that has passed is shown there.")
    return 0 if passed else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
