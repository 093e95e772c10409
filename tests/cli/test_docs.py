from __future__ import annotations

import argparse
import re
import shlex
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from oncekey.cli.exits import CODES, MEANINGS, Exit, code_of
from oncekey.cli.options import parser
from oncekey.client.journal import Journal, Request
from oncekey.core.record import State
from oncekey.effects.outbox import Outbox
from oncekey.errors import StoreUnavailable
from oncekey.operations import CHOICES, Walk, described, export
from oncekey.stores.contract import Store
from oncekey.stores.memory import MemoryStore
from oncekey.stores.open import open_store
from tests.cli.running import Ran, oncekey
from tests.cli.test_inbox import parked
from tests.operations.filled import claim, complete, fill, settle

PAGE = (Path(__file__).parent.parent.parent / "docs" / "cli.md").read_text()
EXAMPLES = re.findall(r"^\$ (.+)$", PAGE, re.MULTILINE)
TOP = parser()


def leaves(made: argparse.ArgumentParser, name: str = "") -> dict[str, argparse.ArgumentParser]:
    """All commands below a parser by their words: `ls`, `client pending`."""
    inner = [action for action in made._actions if isinstance(action, argparse._SubParsersAction)]
    if not inner:
        return {name: made}
    found = inner[0].choices.items()
    return {words: leaf for word, below in found for words, leaf in leaves(below, f"{name} {word}".strip()).items()}


COMMANDS = leaves(TOP)


def section(title: str) -> str:
    """The part of the page below a heading of the second level."""
    return PAGE.split(f"\n## {title}\n", 1)[1].split("\n## ", 1)[0]


def rows(text: str) -> set[str]:
    """The first cells of the tables in a text, without their quotes."""
    cells = re.findall(r"^\| (.+?) \|", text, re.MULTILINE)
    return {name for cell in cells for name in re.findall(r"`([^`]+)`", cell)} | {
        cell for cell in cells if cell.isdigit()
    }


def options(made: argparse.ArgumentParser) -> set[str]:
    """What a parser takes, by long names and metavars."""
    return {action.option_strings[-1] if action.option_strings else str(action.metavar) for action in made._actions}


EVERYWHERE = options(TOP) - {"COMMAND"}


def test_page_has_a_section_for_each_command_and_no_other() -> None:
    """Commands and headings are the same."""
    assert set(re.findall(r"^## oncekey (.+)$", PAGE, re.MULTILINE)) == set(COMMANDS)


@pytest.mark.parametrize("name", COMMANDS)
def test_page_has_each_option_of_a_command(name: str) -> None:
    """Each option of a command has a row in its section, and what has a row is an option."""
    own = options(COMMANDS[name]) - EVERYWHERE
    said = {row for row in rows(section(f"oncekey {name}")) if row.startswith("--") or row.isupper()}
    assert said == own


def test_page_has_each_option_for_every_command() -> None:
    """The options that all commands share are in the section before them; all commands really take them."""
    assert {row for row in rows(section("Options for every command")) if row.startswith("--")} == EVERYWHERE
    for made in COMMANDS.values():
        assert options(made) >= EVERYWHERE - {"--version"}


def test_page_and_help_have_each_exit_code() -> None:
    """Every exit code is in the page and in --help, with the same meaning."""
    for code, meaning in MEANINGS.items():
        assert f"| {int(code)} | {meaning} |" in section("Exit codes")
        assert f" {int(code)} {meaning} " in f"{' '.join(TOP.format_help().split())} "  # lines may be broken
    assert set(MEANINGS) == set(Exit)
    assert {row for row in rows(section("Exit codes")) if row.isdigit()} == {str(int(code)) for code in Exit}


def test_page_has_each_state_and_field() -> None:
    """The words of --state and the fields of JSON are those of the page."""
    listing = section("oncekey ls")
    assert {word for word in CHOICES if f"`{word}`" not in listing} == set()
    store = MemoryStore()
    record = store._records[claim(store, "k").id]
    assert {name for name in described(record, 0, keys=True) if name not in rows(listing)} == set()
    assert {state.word for state in State} < set(CHOICES)


def test_every_error_has_its_code() -> None:
    """A kind of error that is listed behind its parent would never be seen."""
    for number, (kind, code) in enumerate(CODES):
        assert not any(issubclass(kind, earlier) for earlier, _ in CODES[:number]), kind
        assert isinstance(code, Exit)
    assert code_of(StoreUnavailable("x")) is Exit.UNREACHABLE
    assert code_of(ZeroDivisionError()) is Exit.BUG


def run(line: str, folder: Path) -> Ran:
    """Run a line of the page: `echo 'text' | oncekey ...` or `oncekey ...`."""
    words = shlex.split(line)
    given = ""
    if "|" in words:
        bar = words.index("|")
        given, words = " ".join(words[1:bar]) + "\n", words[bar + 1 :]
    return oncekey(*words[1:], given=given, folder=folder)


def dead_letter(path: Path) -> None:
    """Put one into the outbox of a file."""
    with closing(sqlite3.connect(path)) as connection:
        Outbox().migrate(connection)
        id_ = Outbox().stage(connection, "orders", b"{}", key="A-1")
        connection.execute(
            "UPDATE oncekey_outbox SET id = ?, parked_at = 1, attempts = 12, reason = 'no queue' WHERE id = ?",
            ("0198c5d2-7a00-7000-8000-000000000001", id_),
        )
        connection.commit()


# What ends well only where nothing is in progress.
QUIET = {"erase", "copy", "export", "import"}


def quiet(store: Store, folder: Path) -> None:
    """Put two finished operations into a store, and make what a move needs beside it."""
    for key in ("one", "two"):
        complete(store, key)
    export(Walk(store), folder / "records.oncekey")
    with closing(open_store(f"sqlite:///{folder}/new.db")) as new:
        new.migrate()


@pytest.mark.parametrize(
    "line", [line for line in EXAMPLES if not {"demo", "reconcile", "relay", "console"} & set(line.split())]
)
def test_example_runs(line: str, tmp_path: Path) -> None:
    """Each example of the page does its work on a store such as it shows."""
    with closing(open_store(f"sqlite:///{tmp_path}/oncekey.db")) as store:
        if QUIET & set(line.split()):
            quiet(store, tmp_path)
        else:
            fill(store)
            settle(store, claim(store, "dead"), State.UNKNOWN, note="reconciler: given up after 12 tries: no answer")
    if " export " in line:
        (tmp_path / "records.oncekey").unlink()
    if " outbox " in line:
        dead_letter(tmp_path / "oncekey.db")
    if " inbox " in line and " migrate" not in line:
        parked(tmp_path / "oncekey.db", "A-1")
    if " client " in line:
        left = Request("POST", "http://127.0.0.1:8000/orders", (), b"{}")
        Journal(tmp_path / "intents.db").sending("01a2b3c4-d5e6-7f80-9a1b-2c3d4e5f6071", left, "checkout")
    ran = run(line, tmp_path)
    assert (ran.code, ran.err) == (0, "")
    assert ran.out


def test_each_command_has_an_example() -> None:
    """No command is without one, and the demo's is one that the parser takes."""
    shown = {name for line in EXAMPLES for name in COMMANDS if f" {name} " in f"{line} "}
    assert shown == set(COMMANDS)
    for line in EXAMPLES:
        words = shlex.split(line)
        TOP.parse_args(words[words.index("oncekey") + 1 :])
