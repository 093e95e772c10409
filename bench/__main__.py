"""Measures OnceKey beside naive code and beside its peers.

    make bench                                           everything, about a quarter of an hour
    make bench BENCH_ARGS="--quick"                      the same with few rounds, for a look
    make bench BENCH_ARGS="redis --rounds 5 --at 32"     one store, one setting
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

from bench import requests, terminal
from bench.candidates import STORES
from bench.line import ROOT

RESULT = ROOT / "build" / "bench.json"


def parse(words: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser("bench", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("parts", nargs="*", metavar="PART", help=f"what to measure: {', '.join(STORES)}")
    parser.add_argument("--quick", action="store_true", help="few rounds: for a look, not for the page")
    parser.add_argument("--rounds", type=int, help="rounds of each setting")
    parser.add_argument("--size", type=int, help="requests of one candidate in a round")
    parser.add_argument("--at", type=int, nargs="+", default=[], metavar="N", help="requests at once")
    parser.add_argument("--only", nargs="+", metavar="NAME", help="some candidates instead of all")
    parser.add_argument("--result", type=Path, default=RESULT, help="where the figures go, as JSON")
    options = parser.parse_args(words)
    unknown = [part for part in options.parts if part not in STORES]
    if unknown:
        parser.error(f"{unknown[0]} is no part: there are {', '.join(STORES)}")
    return options


def say(what: str) -> None:
    print(f"bench: {what}", file=sys.stderr, flush=True)


def main(words: list[str]) -> None:
    options = parse(words)
    plan = requests.Plan(
        options.rounds or (3 if options.quick else 7),
        options.size or (400 if options.quick else 1000),
        tuple(options.at),
        options.only,
    )
    found: dict[str, Any] = {}
    for part in options.parts or STORES:
        found[part] = requests.measure(part, plan, say)
        for setting in found[part]:
            print(terminal.setting(setting), flush=True)
    options.result.parent.mkdir(parents=True, exist_ok=True)
    options.result.write_text(json.dumps(found, indent=1) + "\n")


if __name__ == "__main__":
    main(sys.argv[1:])
