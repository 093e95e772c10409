"""The options of `oncekey client`."""

from __future__ import annotations

import argparse
from collections.abc import Callable

DAY = 86_400.0


def fill(made: argparse.ArgumentParser, shared: argparse.ArgumentParser, seconds: Callable[[str], float]) -> None:
    """Three commands in one: pending, resume, forget."""
    verbs = made.add_subparsers(dest="what", metavar="WHAT", required=True)

    def verb(name: str, help_: str) -> argparse.ArgumentParser:
        text = f"{help_[0].upper()}{help_[1:]}."
        found = verbs.add_parser(name, help=help_, description=text, parents=[shared], allow_abbrev=False)
        found.add_argument("--journal", metavar="FILE", help="the client's journal (or set ONCEKEY_JOURNAL)")
        found.add_argument(
            "--keep-for",
            metavar="SECONDS",
            type=seconds,
            default=DAY,
            help=f"how long the server keeps answers; older operations are never sent (default {DAY:g})",
        )
        return found

    pending = verb("pending", "list operations without a definite answer")
    resume = verb("resume", "send them again, each under its key")
    for found in (pending, resume):
        found.add_argument("--queue", metavar="NAME", help="only this queue")
    _resume(resume, seconds)
    forget = verb("forget", "drop one that was settled by other means")
    forget.add_argument("key", metavar="KEY", help="its key")


def _resume(made: argparse.ArgumentParser, seconds: Callable[[str], float]) -> None:
    made.add_argument("--header", metavar="'NAME: VALUE'", action="append", default=[], help="a header to add")
    made.add_argument("--headers-from", metavar="FILE", help="headers to add, one a line; - reads standard input")
    made.add_argument("--origin", metavar="URL", help="only requests to this origin: https://api.example.com")
    made.add_argument("--dialect", default="ietf", help="where the key travels (default ietf)")
    made.add_argument(
        "--try-for", metavar="SECONDS", type=seconds, default=60.0, help="for each operation (default 60)"
    )
    made.add_argument("--dry-run", action="store_true", help="send nothing; list what would be sent")
