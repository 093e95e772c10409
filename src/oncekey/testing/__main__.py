"""`python -m oncekey.testing URL`: does this store keep the rules? Prints a table; exit code 1 if a rule is broken."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Sequence

from oncekey.errors import OnceKeyError
from oncekey.stores.open import open_async_store, open_store
from oncekey.testing.bench import AnyStore, Bench
from oncekey.testing.conformance import run
from oncekey.testing.scenarios import SCENARIOS

BROKEN = 1
UNUSABLE = 2


def parser() -> argparse.ArgumentParser:
    """What may be written after `python -m oncekey.testing`."""
    words = argparse.ArgumentParser(
        prog="python -m oncekey.testing",
        description="Run the conformance suite on a store. It writes and purges records: give it a scratch database.",
        epilog="Exit code 0: every rule holds. 1: a rule is broken. 2: the store cannot be used.",
    )
    words.add_argument("url", help="the store, for example sqlite:///scratch.db or redis://127.0.0.1:6379/9")
    words.add_argument("--colour", choices=("sync", "async", "both"), default="both", help="default: both")
    words.add_argument("--only", metavar="WORD", default="", help="only the rules whose name contains this word")
    return words


def main(arguments: Sequence[str] | None = None) -> int:
    """Run it, print the table, return the exit code."""
    asked = parser().parse_args(arguments)
    colours = ("sync", "async") if asked.colour == "both" else (asked.colour,)
    try:
        return max(_run(asked.url, colour, asked.only) for colour in colours)
    except OnceKeyError as trouble:
        sys.stderr.write(f"{trouble}\n")
        return UNUSABLE


def _run(url: str, colour: str, only: str) -> int:
    open_ = _opener(url, colour)
    bench = Bench(open_)
    try:
        bench.store.migrate()
    finally:
        bench.close()
    broken = total = 0
    for verdict in run(open_, scenarios=[one for one in SCENARIOS if only in one.__name__]):
        total += 1
        broken += bool(verdict.trouble)
        sys.stdout.write(f"{'BROKEN' if verdict.trouble else 'holds ':6}  {colour:5}  {verdict.name}\n")
        if verdict.trouble:
            sys.stdout.write(f"{'':15}{verdict.rule}\n{'':15}{verdict.trouble}\n")
        sys.stdout.flush()
    sys.stdout.write(f"{colour}: {total - broken} of {total} rules hold\n")
    return BROKEN if broken or not total else 0


def _opener(url: str, colour: str) -> Callable[[], AnyStore]:
    if url.partition(":")[0] == "memory":
        # Two stores opened by memory:// share nothing, and the suite needs clients of the same records.
        only = open_store(url) if colour == "sync" else open_async_store(url)
        return lambda: only
    return (lambda: open_store(url)) if colour == "sync" else (lambda: open_async_store(url))


if __name__ == "__main__":
    sys.exit(main())
