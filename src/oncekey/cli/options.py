"""The commands and their options, as argparse knows them. docs/cli.md is compared with this."""

from __future__ import annotations

import argparse
import math
import textwrap
from collections.abc import Callable, Sequence
from importlib import metadata
from typing import NoReturn

from oncekey.cli import options_client, options_inbox, options_moving, options_outbox
from oncekey.cli.exits import MEANINGS
from oncekey.operations import CHOICES, KEEP_FOR
from oncekey.reconcile.pace import Pace

STORE_FOR = 10.0
TRIES, AT_ONCE = Pace().tries, Pace().at_once
PORTS = range(65_536)
# How commands that name one operation are told to take many.
MANY = {"retry": ("--all",), "erase": ("--scope", "--digest")}
CONSOLE_PORT = 8765
# argparse leaves two columns of an ordinary terminal free.
WIDTH = 78


class UsageError(Exception):
    """The command line makes no sense; the message says which part."""


class Parser(argparse.ArgumentParser):
    """argparse, with complaints that machines can read where they asked for JSON."""

    def error(self, message: str) -> NoReturn:
        """Leave the complaint to whoever knows how it is to be shown."""
        raise UsageError(f"{message} (try: {self.prog} --help)")


def parser() -> Parser:
    """The whole command line."""
    top = Parser(
        prog="oncekey",
        description="Look at, clean up and check a store of idempotency records.",
        epilog=_exit_codes(),
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    top.add_argument("--version", action="version", version=f"oncekey {metadata.version('oncekey')}")
    _globals(top, first=True)
    # The same again behind the command; there they have no defaults, which would undo what was given in front of it.
    shared = Parser(add_help=False, allow_abbrev=False)
    _globals(shared, first=False)
    commands = top.add_subparsers(dest="command", metavar="COMMAND", required=True)

    def command(name: str, help_: str, fill: Callable[[argparse.ArgumentParser], None]) -> None:
        made = commands.add_parser(
            name, help=help_, description=f"{help_[0].upper()}{help_[1:]}.", parents=[shared], allow_abbrev=False
        )
        fill(made)

    command("demo", "serve a payments API to try it all on", _demo)
    command("migrate", "bring the store's schema to this version", _migrate)
    command("ls", "list operations", _ls)
    command("show", "show one operation", _show)
    command("resolve", "settle an operation by hand, signed with a reason", _resolve)
    command("retry", "have unknown outcomes asked about again", _retry)
    command("dead-letters", "list unknown outcomes that nobody asks about any more", _dead_letters)
    options_moving.fill(command, _named, _signed)
    command("reconcile", "ask an application's resolvers about unknown outcomes, until SIGTERM", _reconcile)
    command("purge", "sweep lapsed leases and delete what has expired", _purge)
    command("stats", "count operations by state", lambda made: None)
    command("client", "finish what a client has begun", lambda made: options_client.fill(made, shared, _seconds))
    command("relay", "send what was committed into an outbox, until SIGTERM", _relay)
    command("outbox", "look after an outbox", lambda made: options_outbox.fill_outbox(made, shared, _count))
    command("inbox", "look after an inbox", lambda made: options_inbox.fill(made, shared, _count))
    command("console", "serve a web page to look at operations and settle them", _console)
    command("doctor", "check the store, its settings and this machine, or an application", _doctor)
    return top


def _exit_codes() -> str:
    lines = [
        textwrap.fill(meaning, WIDTH, initial_indent=f"  {code:>3}  ", subsequent_indent=" " * 7)
        for code, meaning in MEANINGS.items()
    ]
    return "\n".join(["exit codes:", *lines])


def _globals(made: Parser, *, first: bool) -> None:
    def default(value: object) -> object:
        return value if first else argparse.SUPPRESS

    made.add_argument("--store", metavar="URL", default=default(None), help="the store (or set ONCEKEY_STORE)")
    made.add_argument(
        "--store-for",
        metavar="SECONDS",
        type=_seconds,
        default=default(STORE_FOR),
        help=f"how long to wait for one answer of the store (default {STORE_FOR:g})",
    )
    made.add_argument("--json", action="store_true", default=default(value=False), help="JSON instead of tables")
    made.add_argument(
        "--no-color", action="store_true", default=default(value=False), help="no colours (or set NO_COLOR)"
    )


def _relay(made: argparse.ArgumentParser) -> None:
    options_outbox.fill_relay(made, _count, _seconds)


def _demo(made: argparse.ArgumentParser) -> None:
    made.add_argument("--host", default="127.0.0.1", help="where to listen (default 127.0.0.1)")
    made.add_argument("--port", metavar="N", type=_port, default=8000, help="on which port (default 8000)")
    made.add_argument("--workers", metavar="N", type=_count, help="how many processes (default 2)")


def _console(made: argparse.ArgumentParser) -> None:
    made.add_argument("--host", default="127.0.0.1", help="where to listen (default 127.0.0.1)")
    made.add_argument(
        "--port", metavar="N", type=_port, default=CONSOLE_PORT, help=f"on which port (default {CONSOLE_PORT})"
    )
    made.add_argument(
        "--metrics", metavar="URL", help="the application's page of metrics, for rates; without it there are none"
    )


def _migrate(made: argparse.ArgumentParser) -> None:
    made.add_argument("--dry-run", action="store_true", help="change nothing; exit 1 if there is something to do")


def _ls(made: argparse.ArgumentParser) -> None:
    made.add_argument(
        "--state",
        choices=sorted(CHOICES),
        default="open",
        metavar="STATE",
        help=f"only these: {', '.join(sorted(CHOICES))} (default open: in progress, unknown or failed)",
    )
    made.add_argument("--due", action="store_true", help="only those whose lease or waiting time is over")
    _paged(made)


def _named(made: argparse.ArgumentParser) -> None:
    """How one operation is named."""
    made.add_argument(
        "id", nargs="?", metavar="ID", help="an id, its beginning of at least 6 digits, or the ok_... of a log"
    )
    made.add_argument(
        "--finished", action="store_true", help="look for a beginning among finished ones too (reads all)"
    )
    made.add_argument("--key", help="instead of an id: the client's key")
    made.add_argument(
        "--caller", metavar="TEXT", help="whose key: what the scope returned; - reads it from standard input"
    )
    made.add_argument(
        "--endpoint", metavar="TEXT", default="", help="where: 'POST /orders', if it is part of the scope"
    )


def _signed(made: argparse.ArgumentParser) -> None:
    """Who changes something, and why."""
    made.add_argument("--reason", metavar="TEXT", required=True, help="why; kept in the record")
    made.add_argument("--by", metavar="NAME", help="who; your login name if not given")
    made.add_argument("--dry-run", action="store_true", help="change nothing, and say what would be changed")


def _show(made: argparse.ArgumentParser) -> None:
    _named(made)
    made.add_argument("--body", action="store_true", help="show the body of the kept answer")
    made.add_argument("--keys", action="store_true", help="show the client's key as well")


def _resolve(made: argparse.ArgumentParser) -> None:
    _named(made)
    end = made.add_mutually_exclusive_group(required=True)
    end.add_argument(
        "--completed",
        metavar="FILE",
        help="the effect is there: retries get the answer in this file (- for standard input)",
    )
    end.add_argument(
        "--retryable", action="store_true", help="the effect is not there and cannot come any more: a retry may run"
    )
    _signed(made)
    made.add_argument(
        "--keep-for",
        metavar="SECONDS",
        type=_seconds,
        default=KEEP_FOR,
        help=f"how long it is remembered from now on (default {KEEP_FOR:g})",
    )
    made.add_argument("--force", action="store_true", help="override what is finished already, or is still at work")


def _retry(made: argparse.ArgumentParser) -> None:
    _named(made)
    made.add_argument("--all", action="store_true", help="instead of an id: all dead letters")
    _signed(made)


def _dead_letters(made: argparse.ArgumentParser) -> None:
    _paged(made)


def _paged(made: argparse.ArgumentParser) -> None:
    """A part of a list."""
    made.add_argument("--limit", metavar="N", type=_count, default=50, help="how many at most (default 50)")
    made.add_argument("--after", metavar="CURSOR", help="go on where a listing ended")
    made.add_argument("--keys", action="store_true", help="show the clients' keys as well")


def _reconcile(made: argparse.ArgumentParser) -> None:
    made.add_argument(
        "--app",
        metavar="MODULE:NAME",
        required=True,
        help="the OnceKey installation with its resolvers, such as shop:once",
    )
    made.add_argument("--once", action="store_true", help="one round, then end")
    made.add_argument(
        "--tries", metavar="N", type=_count, default=TRIES, help=f"when to give an outcome up (default {TRIES})"
    )
    made.add_argument(
        "--at-once",
        metavar="N",
        type=_count,
        default=AT_ONCE,
        help=f"how many to ask about at a time (default {AT_ONCE})",
    )


def _purge(made: argparse.ArgumentParser) -> None:
    made.add_argument("--limit", metavar="N", type=_count, help="delete at most so many")
    made.add_argument("--dry-run", action="store_true", help="change nothing, and say what would be done (reads all)")


def _doctor(made: argparse.ArgumentParser) -> None:
    made.add_argument("--strict", action="store_true", help="exit 1 if there is a warning")
    made.add_argument(
        "--app", metavar="MODULE:NAME", help="an application instead: its routes, its choices and its store; shop:app"
    )
    made.add_argument(
        "--allow",
        metavar="NAME",
        action="append",
        default=[],
        help="with --app: accept what is found: 'POST /login'",
    )
    made.add_argument("--no-store", action="store_true", help="with --app: do not ask the store")


def _count(text: str) -> int:
    number = _number(text)
    if number < 1:
        raise argparse.ArgumentTypeError(f"{text} makes no sense here: write a number of 1 or more")
    return number


def _port(text: str) -> int:
    number = _number(text)
    if number not in PORTS:
        raise argparse.ArgumentTypeError(f"{text} is not a port: write a number from 0 to {PORTS[-1]}")
    return number


def _number(text: str) -> int:
    try:
        return int(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number") from None


def _seconds(text: str) -> float:
    try:
        seconds = float(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number of seconds") from None
    if not 0 < seconds < math.inf:
        raise argparse.ArgumentTypeError(f"{text} makes no sense here: write a number of seconds above 0")
    return seconds


def parsed(arguments: Sequence[str] | None) -> argparse.Namespace:
    """The command line, read; ends the program if it makes no sense."""
    given = parser().parse_args(arguments)
    if "caller" in given:
        _check_named(given)
    return given


def _check_named(given: argparse.Namespace) -> None:
    name = given.command
    many = MANY.get(name, ())
    every = sum(getattr(given, option.lstrip("-")) not in (None, False) for option in many)
    if bool(given.id) + bool(given.key) + every != 1:
        ways = "or --key with --caller, and not both"
        if many:
            ways = f"--key with --caller, or {' or '.join(many)}, and only one of them"
        raise UsageError(f"{name} needs an ID, {ways} (try: oncekey {name} --help)")
    if given.key and given.caller is None:
        raise UsageError("--key needs --caller: a key alone names nothing (for scope=SHARED write --caller shared)")
    if given.caller == "-" and getattr(given, "completed", None) == "-":
        raise UsageError("--caller and --completed cannot both be read from standard input: write one to a file")
