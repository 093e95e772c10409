"""Where `oncekey` begins and ends: every end is an exit code and at most a sentence, never a trace."""

from __future__ import annotations

import argparse
import io
import os
import sys
import traceback
from collections.abc import Sequence
from contextlib import suppress

from oncekey.cli.checking import doctor_of_app
from oncekey.cli.commands import COMMANDS, STORELESS
from oncekey.cli.exits import Exit, code_of
from oncekey.cli.naming import NotFound
from oncekey.cli.options import UsageError, parsed
from oncekey.cli.outputs import JsonOutput, Output
from oncekey.cli.remarks import Remarks, listen_to_logs
from oncekey.errors import ConfigurationError, MissingExtra
from oncekey.operations import opened

DEBUG = "ONCEKEY_DEBUG"
STORE = "ONCEKEY_STORE"
# What works on records that others have made. `doctor` and `migrate` are about the store alone.
LOOKING = COMMANDS.keys() - {"doctor", "migrate"} | {"console"}


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command and return its exit code."""
    words = sys.argv[1:] if arguments is None else list(arguments)
    try:
        if isinstance(sys.stdout, io.TextIOWrapper):
            # A terminal that cannot show a letter is no reason to fail.
            sys.stdout.reconfigure(errors="backslashreplace")
        code = guarded(words)
        sys.stdout.flush()
    except BrokenPipeError:
        _drop_output()
        return Exit.CUT_OFF
    except KeyboardInterrupt as error:
        return Remarks(as_json="--json" in words).complain("interrupted", Exit.INTERRUPTED, error)
    return code


def guarded(words: list[str]) -> Exit:
    """Run one command; whatever goes wrong in it becomes a sentence and a code."""
    remarks = Remarks(as_json="--json" in words)
    try:
        given = parsed(words)
        if given.command in STORELESS:
            return STORELESS[given.command](given)
        if given.command == "reconcile":
            listen_to_logs(remarks)
            return _reconcile(given)
        remarks.url = given.store = given.store or os.environ.get(STORE, "")
        remarks.to = given.to if given.command == "copy" else ""
        listen_to_logs(remarks)
        _refuse_memory(given)
        if given.command in {"relay", "outbox", "inbox"}:
            return _messages(given)
        if given.command == "doctor" and given.app:
            return doctor_of_app(given, _output(given))
        if given.command == "console":
            return _console(given)
        return run(given)
    except BrokenPipeError:
        raise
    except UsageError as error:
        return remarks.complain(str(error), Exit.USAGE, error)
    except NotFound as error:
        return remarks.complain(str(error), Exit.FOUND, error)
    except Exception as error:  # noqa: BLE001 - the last place where an error can become a sentence
        return explain(error, remarks)


def _refuse_memory(given: argparse.Namespace) -> None:
    # A listing of it would always be empty, and would look like good news.
    if given.command in LOOKING and given.store.startswith("memory:"):
        raise ConfigurationError(
            "memory:// is a process's own memory, into which no other can look: mount once.console() in that program, "
            "or let it keep its records in sqlite:///oncekey.db"
        )


def run(given: argparse.Namespace) -> Exit:
    """Carry out a command on its store."""
    creates = given.command == "migrate" and not given.dry_run
    store = opened(given.store, store_for=given.store_for, create=creates)
    try:
        return COMMANDS[given.command](store, given, _output(given))
    finally:
        store.close()


def _reconcile(given: argparse.Namespace) -> Exit:
    from oncekey.cli.service import reconcile  # noqa: PLC0415 - no other command runs an application

    return reconcile(given, _output(given))


def _console(given: argparse.Namespace) -> Exit:
    from oncekey.cli import console  # noqa: PLC0415 - no other command serves one

    return console.serve(given)


def _messages(given: argparse.Namespace) -> Exit:
    if given.command == "inbox":
        from oncekey.cli.inbox import inbox  # noqa: PLC0415 - as below

        return inbox(given)
    from oncekey.cli import outbox  # noqa: PLC0415 - no other command speaks to a broker

    return outbox.relay(given) if given.command == "relay" else outbox.outbox(given)


def _output(given: argparse.Namespace) -> Output:
    if given.json:
        return JsonOutput()
    try:
        from oncekey.cli.tables import TableOutput  # noqa: PLC0415 - rich is an extra; JSON does without
    except ModuleNotFoundError as missing:
        if missing.name is None or missing.name.partition(".")[0] != "rich":
            raise
        raise MissingExtra("output for people", "cli", "add --json") from missing
    return TableOutput(color=not given.no_color)


def explain(error: Exception, remarks: Remarks) -> Exit:
    """Say what went wrong in one sentence, and with which code that ends."""
    if os.environ.get(DEBUG):
        remarks.trace("".join(traceback.format_exception(error)))
    code = code_of(error)
    message = str(error) or type(error).__name__
    if code is Exit.BUG:
        message = (
            f"this is a defect of oncekey ({type(error).__name__}: {message}); please report it with what "
            f"{DEBUG}=1 makes this command print"
        )
    return remarks.complain(message, code, error)


def _drop_output() -> None:
    # Python flushes standard output once more at its end, and would complain there.
    with suppress(OSError, ValueError):
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, sys.stdout.fileno())
        os.close(nowhere)


if __name__ == "__main__":
    sys.exit(main())
