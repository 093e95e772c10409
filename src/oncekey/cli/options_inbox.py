"""The options of `oncekey inbox`."""

from __future__ import annotations

import argparse
from collections.abc import Callable

TABLE = "oncekey_inbox"


def fill(made: argparse.ArgumentParser, shared: argparse.ArgumentParser, count: Callable[[str], int]) -> None:
    """Five commands in one."""
    verbs = made.add_subparsers(dest="what", metavar="WHAT", required=True)

    def verb(name: str, help_: str) -> argparse.ArgumentParser:
        text = f"{help_[0].upper()}{help_[1:]}."
        found = verbs.add_parser(name, help=help_, description=text, parents=[shared], allow_abbrev=False)
        found.add_argument("--table", metavar="NAME", default=TABLE, help=f"the inbox's table (default {TABLE})")
        return found

    verb("migrate", "make the inbox's tables")
    verb("stats", "count messages")
    listing = verb("ls", "list parked messages")
    listing.add_argument("--source", metavar="NAME", help="only those of this source")
    listing.add_argument("--limit", metavar="N", type=count, default=50, help="how many at most (default 50)")
    listing.add_argument("--after", metavar="CURSOR", help="go on where a listing ended")
    listing.add_argument("--body", action="store_true", help="show the bodies as well")
    verb("requeue", "let a parked message be run again").add_argument("id", metavar="ID", help="its id, as listed")
    verb("discard", "forget a parked message").add_argument("id", metavar="ID", help="its id, as listed")
