"""The options of `oncekey relay` and `oncekey outbox`."""

from __future__ import annotations

import argparse
from collections.abc import Callable

TABLE = "oncekey_outbox"
DAY = 86_400.0


def fill_relay(made: argparse.ArgumentParser, count: Callable[[str], int], seconds: Callable[[str], float]) -> None:
    """What a relay may be told."""
    made.add_argument("--to", metavar="URL", help="the broker (or set ONCEKEY_BROKER)")
    made.add_argument("--once", action="store_true", help="send what is due, then end")
    made.add_argument("--batch", metavar="N", type=count, default=100, help="how many at a time (default 100)")
    made.add_argument(
        "--lease-for",
        metavar="SECONDS",
        type=seconds,
        default=30.0,
        help="how long what a killed relay had taken waits (default 30)",
    )
    made.add_argument(
        "--attempts", metavar="N", type=count, default=12, help="after how many a message is given up (default 12)"
    )
    made.add_argument(
        "--keep-for",
        metavar="SECONDS",
        type=seconds,
        default=DAY,
        help=f"how long to keep what was sent (default {DAY:g})",
    )
    _table(made)


def fill_outbox(made: argparse.ArgumentParser, shared: argparse.ArgumentParser, count: Callable[[str], int]) -> None:
    """Five commands in one."""
    verbs = made.add_subparsers(dest="what", metavar="WHAT", required=True)

    def verb(name: str, help_: str) -> argparse.ArgumentParser:
        text = f"{help_[0].upper()}{help_[1:]}."
        found = verbs.add_parser(name, help=help_, description=text, parents=[shared], allow_abbrev=False)
        _table(found)
        return found

    verb("migrate", "make the outbox's table")
    verb("stats", "count messages")
    listing = verb("ls", "list dead letters")
    listing.add_argument("--limit", metavar="N", type=count, default=50, help="how many at most (default 50)")
    listing.add_argument("--after", metavar="CURSOR", type=int, help="go on where a listing ended")
    listing.add_argument("--body", action="store_true", help="show the bodies as well")
    again = verb("requeue", "send dead letters again")
    again.add_argument("id", nargs="?", metavar="ID", help="a message's id")
    again.add_argument("--all", action="store_true", help="instead of an id: all of them")
    verb("discard", "forget a dead letter").add_argument("id", metavar="ID", help="its id")


def _table(made: argparse.ArgumentParser) -> None:
    made.add_argument("--table", metavar="NAME", default=TABLE, help=f"the outbox's table (default {TABLE})")
