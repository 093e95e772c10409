"""docs/demo.md says what the demo does."""

from __future__ import annotations

import re
import shutil
from pathlib import Path

import pytest

from oncekey.demo import marks, serve
from oncekey.demo.apis import APIS
from tests.demo.server import DemoServer, ask, fresh
from tests.docs import running
from tests.docs.pages import DOCS, Command, Page

PAGE = Page(DOCS / "demo.md")
# What the words of the failure table mean for the retry, and how often the provider has then acted.
MEANINGS = {"replayed": (True, 1), "runs again": (True, 2), "unknown": (False, 1)}


def rows(heading: str) -> list[list[str]]:
    """The cells of a section's table, without its head."""
    lines = [line for line in PAGE.section(heading).splitlines() if line.startswith("|")]
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in lines[2:]]


def test_the_table_of_routes_is_that_of_the_code() -> None:
    """Dialect, route, and where the caller and the key are."""
    told = {(cells[0], cells[1].strip("`")): cells for cells in rows("Routes")}
    assert set(told) == {(api.name, f"{one.method} {one.path}") for api in APIS for one in api.routes}
    for api in APIS:
        for cells in (
            cells for (name, _), cells in told.items() if name == api.name and cells[4] not in {"", "ignored"}
        ):
            assert (api.dialect.header or api.dialect.members[0]) in cells[4]
            assert api.dialect.required == ("required" in cells[4])
            assert cells[5] == f"`{api.caller_header}`"


def test_the_marks_are_those_of_the_code() -> None:
    """Each mark on the page is one that is read, and no other."""
    named = {cells[0].strip("`").partition("=")[0] for cells in rows("Marks") if cells[0].startswith("`probe")}
    assert named == set(re.findall(r"probe:[a-z-]+", str(marks.__doc__)))
    assert str(serve.FOLDER / serve.LEDGER) in "\n".join(PAGE.prose)


@pytest.mark.parametrize(
    ("status", "api", "word"),
    [
        (status, api, word)
        for cells in rows("Marks")
        if cells[0][0].isdigit()
        for status in (re.findall(r"\d+", cells[0]))[:3]
        for api, word in zip(("ietf", "stripe", "square", "adyen", "paypal"), cells[1:], strict=True)
    ],
)
def test_the_table_of_failures_is_what_happens(demo: DemoServer, status: str, api: str, word: str) -> None:
    """A retry after each failure in the table gets what the table says."""
    alike, runs = next(meaning for name, meaning in MEANINGS.items() if word.startswith(name))
    ref = fresh("ref")
    request = ask(api, fresh(), f"probe:ref={ref} probe:fail={status}")
    first, again = demo.send(request), demo.send(request)
    assert first.status_code == int(status)
    assert ((again.status_code == int(status)), demo.executions(ref)) == (alike, runs)


@pytest.mark.skipif(shutil.which("curl") is None, reason="curl is not installed: apt-get install curl")
def test_the_commands_print_what_is_shown(demo: DemoServer, tmp_path: Path) -> None:
    """Whoever types what the page says sees what the page shows."""
    pairs = [
        (typed.text, shown.text)
        for typed, shown in zip(PAGE.blocks, PAGE.blocks[1:], strict=False)
        if (typed.language, shown.language) == ("sh", "text")
    ]
    assert pairs
    for typed, shown in pairs:
        words = typed.replace("http://127.0.0.1:8000", demo.url).replace("doc-1", fresh("doc"))
        assert running.shell(Command(1, words, shown.splitlines(), until=False), tmp_path) == ""


def test_the_picture_is_there() -> None:
    """Pictures that the page shows are in the repository."""
    for name in re.findall(r"!\[[^\]]+\]\(([^)]+)\)", "\n".join(PAGE.prose)):
        assert (DOCS / name).read_bytes().startswith(b"\x89PNG")
