from __future__ import annotations

import argparse
import inspect
import re
from dataclasses import fields
from pathlib import Path

import oncekey
from oncekey import errors
from oncekey.adapters.asgi import OnceKeyMiddleware
from oncekey.adapters.wsgi import OnceKeyWSGI
from oncekey.adapters.wsgi_upload import OPERATION
from oncekey.cli.options import parser
from oncekey.core.policy import Policy
from oncekey.core.record import Guarantee, State
from oncekey.engine.events import NAMES
from oncekey.engine.operation import ThreadOperation
from oncekey.http.capture import NEVER_KEPT, NEVER_KEPT_PREFIXES
from oncekey.http.dialects import DIALECTS
from oncekey.http.gate import FIRST_SENT, Gate
from oncekey.http.problems import PROBLEMS
from oncekey.stores.contract import Store
from oncekey.telemetry.metrics import BY_EVENT
from tests.docs.pages import DOCS, ROOT, Page
from tests.docs.tables import policy_table, with_table

# The words that code, columns, commands and pages share.
WORDS = (
    {"attempt", "begin", "claim", "combiner", "decision", "dialect", "effect", "fingerprint", "guarantee", "key"}
    | {"latch", "lease", "operation", "outcome", "owner", "plan", "policy", "purge", "reconcile", "record", "replay"}
    | {"scope", "settle", "store", "sweep", "token", "tombstone", "unknown", "version", "wire"}
)
REFERENCE = {path.stem: Page(path) for path in (DOCS / "reference").glob("*.md")}


def table(page: Page) -> dict[str, list[str]]:
    """The rows of a page's tables by what stands in code letters in their first cell."""
    rows = [line.strip("| ").split(" | ") for line in page.prose if line.startswith("| `")]
    return {row[0].strip("`"): [cell.strip().strip("`") for cell in row[1:]] for row in rows}


def code(text: str) -> set[str]:
    """What stands in code letters, in small letters."""
    return {found.lower() for found in re.findall(r"`([^`]+)`", text)}


def test_every_public_name_is_in_the_reference() -> None:
    """What the package exposes has a row in one of the pages of reference."""
    rows = {name for page in REFERENCE.values() for name in page.rows()}
    assert sorted(set(oncekey.__all__) - rows) == []


def test_the_policy_table_is_that_of_the_fields() -> None:
    """Names, defaults and meanings; `python -m tests.docs.tables` writes them."""
    text = REFERENCE["policy"].path.read_text(encoding="utf-8")
    assert with_table(text) == text
    assert policy_table() in text
    assert set(table(REFERENCE["policy"])) == {one.name for one in fields(Policy)}


def test_another_table_is_found() -> None:
    """A changed default or help makes another table, so the comparison above can fail."""
    text = REFERENCE["policy"].path.read_text(encoding="utf-8")
    changed = text.replace("| `lease_for` | `30` |", "| `lease_for` | `31` |")
    assert changed != text == with_table(changed)


def test_every_error_has_its_row() -> None:
    """Each class of the tree, with its parent and its status, and no other."""
    classes = [one for _, one in inspect.getmembers(errors, inspect.isclass) if issubclass(one, errors.OnceKeyError)]
    wanted = {one.__name__: [one.__bases__[0].__name__, str(one.status)] for one in classes}
    assert {name: row[:2] for name, row in table(REFERENCE["errors"]).items()} == wanted


def test_every_event_has_its_row() -> None:
    """Each event with the counter that it moves, and no other."""
    rows = table(REFERENCE["events"])
    assert list(rows) == list(NAMES)
    assert {name: row[-1] for name, row in rows.items()} == {name: BY_EVENT[name].name for name in NAMES}


def test_every_header_is_named() -> None:
    """What dialects read and write, and what is never kept, stands in the page of headers."""
    page = REFERENCE["headers"]
    read, written, dropped = (code(page.section(f"What is {what}")) for what in ("read", "written", "not kept"))
    assert {name.decode() for name in FIRST_SENT} <= read
    assert {one.header.lower() for one in DIALECTS.values() if one.header} <= read
    pairs = [pair for one in DIALECTS.values() for pair in (*one.marker, *one.kept_error_hints)]
    pairs += [pair for one in DIALECTS.values() for hints in one.hints.values() for pair in hints]
    assert {name.decode() for name, _ in pairs} <= written
    assert {one.header.lower() for one in DIALECTS.values() if one.header and one.echo == "always"} <= written
    assert {name.decode() for name in NEVER_KEPT} | {name.decode() for name in NEVER_KEPT_PREFIXES} == dropped


def test_every_option_of_an_installation_has_its_row() -> None:
    """What Gate and the middlewares take stands in the page, with nothing that they do not take."""
    text = REFERENCE["python"].section("Guarding an application")
    named = {line.split("`")[1] for line in text.splitlines() if line.startswith("| `")}
    options = set(inspect.signature(Gate.__init__).parameters) - {"self"}
    own = set(inspect.signature(OnceKeyMiddleware.__init__).parameters) - {"self", "app", "store", "choices"}
    assert own == set(inspect.signature(OnceKeyWSGI.__init__).parameters) - {"self", "app", "store", "choices"}
    assert {name for name in named if name.isidentifier() and name.islower()} == options | own


def test_every_member_of_the_operation_has_its_row() -> None:
    """What a handler may use of its operation stands in the page, with its place in both gateways."""
    text = REFERENCE["python"].section("The operation at hand")
    public = {name for name in dir(ThreadOperation) if not name.startswith("_")} | {"key"}
    assert public == {name.removesuffix("()") for name in table(REFERENCE["python"]) if f"| `{name}`" in text}
    assert f'environ["{OPERATION}"]' in text


def test_every_problem_has_its_page_and_its_row() -> None:
    """Each slug is a page of docs/problems and a row of docs/dialects.md, and no page is left over."""
    assert {path.stem for path in (DOCS / "problems").glob("*.md")} == set(PROBLEMS)
    rows = "\n".join(Page(DOCS / "dialects.md").prose)
    assert [slug for slug in PROBLEMS if f"| [{slug}](problems/{slug}.md) |" not in rows] == []


def test_every_command_has_its_heading() -> None:
    """Each command of the command line is a heading of its page, and is named in the changelog."""
    [commands] = [one for one in parser()._actions if isinstance(one, argparse._SubParsersAction)]
    headings = Page(DOCS / "cli.md").headings
    missing = [
        name for name in commands.choices if not any(f"{head} ".startswith(f"oncekey {name} ") for head in headings)
    ]
    assert missing == []
    changes = code((ROOT / "CHANGELOG.md").read_text(encoding="utf-8"))
    assert {name.removeprefix("oncekey ") for name in changes} >= set(commands.choices)


def test_every_verb_of_a_store_has_its_row() -> None:
    """The contract's verbs are those of the guide."""
    verbs = {name for name, _ in inspect.getmembers(Store, inspect.isfunction) if not name.startswith("_")}
    assert set(table(Page(DOCS / "howto" / "write-a-store.md"))) == verbs


def test_the_glossary_has_the_words_of_the_code() -> None:
    """The project's words, each once and in order; states are exactly those of the code, guarantees are all named."""
    page = Page(DOCS / "glossary.md")
    words = [line.split("**")[1] for line in page.prose if line.startswith("| **")]
    assert words == sorted(set(words))
    assert sorted(WORDS - set(words)) == []
    assert set(table(page)) == {state.word for state in State}
    assert {one.name.lower() for one in Guarantee} <= code("\n".join(page.prose))


def test_a_missing_row_is_found(tmp_path: Path) -> None:
    """Rows are read from tables outside of examples, by their first cell."""
    page = Page(tmp_path / "a.md", "| error | is a |\n| `A` | `B` |\n```\n| `C` | `D` |\n```\n| x | `E` |\n")
    assert table(page) == {"A": ["B"]}
    assert page.rows() == ["A"]
