"""docs/howto/console.md says what the console is, and what it needs is said where it is missing."""

from __future__ import annotations

import inspect
import re
import subprocess
import sys

import pytest

from oncekey import OnceKey
from oncekey.console.render import HERE
from tests.docs.pages import DOCS, Page

PAGE = Page(DOCS / "howto" / "console.md")


def test_the_pictures_are_there() -> None:
    """Those that the page shows, and no other."""
    shown = set(re.findall(r"!\[[^\]]+\]\(\.\./img/([^)]+)\)", "\n".join(PAGE.prose)))
    assert shown == {path.name for path in (DOCS / "img").glob("console*")}
    assert all((DOCS / "img" / name).read_bytes().startswith(b"\x89PNG") for name in shown)


def test_every_option_has_its_row() -> None:
    """What `once.console` takes stands in the page's table."""
    rows = re.findall(r"^\| `(\w+)` \|", PAGE.section("In your application"), re.MULTILINE)
    assert rows == [name for name in inspect.signature(OnceKey.console).parameters if name != "self"]


def test_every_page_has_its_row() -> None:
    """The pages that the console leads to are those of the page."""
    links = re.findall(r'here\("[\w-]+"\) }}>([^<]+)<', (HERE / "templates" / "base.html").read_text())
    rows = [line.split("|")[1].strip() for line in PAGE.section("What there is").splitlines() if line.startswith("| ")]
    assert set(links) | {"one operation"} == set(rows) - {"page", "---"}


@pytest.mark.parametrize(
    ("missing", "what"),
    [("jinja2", "from oncekey.console import Console"), ("uvicorn", "import oncekey.cli.console")],
)
def test_a_missing_package_is_named(missing: str, what: str) -> None:
    """Who has not installed the extra is told which one it is."""
    words = [sys.executable, "-c", f"import sys; sys.modules[{missing!r}] = None; {what}"]
    ran = subprocess.run(words, capture_output=True, text=True, check=False)
    assert "pip install 'oncekey[console]'" in ran.stderr
