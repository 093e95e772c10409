from __future__ import annotations

import contextlib
import os
import shutil
import signal
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from oncekey.stores.open import open_store
from tests.docs import running
from tests.docs.pages import Block, Command, Page, pages
from tests.infra.process import free_port
from tests.operations.filled import fill

PAGES = pages()
# Pages whose commands talk to the application that they show: their first example is saved as shop.py.
SERVED = ("README.md", "docs/tutorial.md")
# What changes the machine, or takes minutes: it is read, and not run.
READ_ONLY = ("python3 -m venv ", ". .venv", "pip install ")
PIDS = Path("shop.pid")
NEEDS = [
    (page, need) for page in PAGES for need in dict.fromkeys(b.needs for b in page.blocks if b.language == "python")
]
# docs/cli.md has tests of its own, in tests/cli.
COMMANDS = [
    (page, command)
    for page in PAGES
    if page.name not in (*SERVED, "docs/cli.md")
    for command in page.commands
    if not command.words.startswith(READ_ONLY)
]


def places(text: str, request: pytest.FixtureRequest) -> dict[str, str]:
    """The real servers for what stands for them in a text; the test is skipped where one is missing."""
    return {stands: request.getfixturevalue(name) for stands, name in running.SERVERS.items() if stands in text}


@pytest.mark.parametrize(("page", "need"), NEEDS, ids=lambda value: getattr(value, "name", value))
def test_python_examples_run(page: Page, need: str, tmp_path: Path, request: pytest.FixtureRequest) -> None:
    """The Python of a page runs from top to bottom in an empty folder, without a warning."""
    if need:
        pytest.importorskip(need, reason=f"{need} is not installed, so this example of {page.name} is not run")
    blocks = [block for block in page.blocks if block.language == "python" and block.needs == need]
    real = places("".join(block.text for block in blocks), request)
    blocks = [block._replace(text=running.placed(block.text, real)) for block in blocks]
    assert running.python(page.name, blocks, tmp_path) == ""


@pytest.mark.parametrize(
    ("page", "command"), COMMANDS, ids=lambda value: getattr(value, "name", getattr(value, "line", ""))
)
def test_commands_say_what_is_shown(
    page: Page, command: Command, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    """Each command of a page prints what the page shows, on a store with operations in it."""
    real = places(command.words, request)
    command = command._replace(words=running.placed(command.words, real))
    for url in [*real.values(), f"sqlite:///{tmp_path}/oncekey.db"]:
        store = open_store(url)
        store.migrate()
        if url.startswith("sqlite"):
            fill(store)
        store.close()
    assert running.shell(command, tmp_path) == ""


@contextlib.contextmanager
def served(page: Page, folder: Path) -> Iterator[None]:
    """A folder with the page's application in it; whatever its commands started is ended."""
    shop = next(block for block in page.blocks if block.language == "python")
    (folder / "shop.py").write_text(shop.text)
    try:
        yield
    finally:
        with contextlib.suppress(FileNotFoundError, ProcessLookupError, ValueError):
            os.kill(int((folder / PIDS).read_text()), signal.SIGKILL)


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("curl") is None, reason="curl is not installed: apt-get install curl")
@pytest.mark.parametrize("page", [page for page in PAGES if page.name in SERVED], ids=lambda page: page.name)
def test_a_served_page_can_be_followed(page: Page, tmp_path: Path) -> None:
    """Whoever types what the page says sees what the page shows, command after command."""
    port = str(free_port())
    commands = [command for command in page.commands if not command.words.startswith(READ_ONLY)]
    assert len(commands) > 3
    with served(page, tmp_path):
        for shown in commands:
            command = shown._replace(words=shown.words.replace("8000", port))
            assert running.shell(command, tmp_path) == "", f"{page.name}:{command.line}"
            if command.words.startswith("uvicorn "):
                wait_for_port(int(port), tmp_path / "shop.log")


def wait_for_port(port: int, log: Path) -> None:
    """Return when the server says that it listens."""
    deadline = time.monotonic() + running.PATIENCE
    while f":{port} (Press" not in log.read_text().rpartition("Started server process")[2]:
        assert time.monotonic() < deadline, log.read_text()
        time.sleep(0.02)


# ---- the checks can fail -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("x = 1\nassert x == 2\n", 'page.md", line 8'),
        ("import warnings\nwarnings.warn('old', DeprecationWarning)\n", "DeprecationWarning"),
        ("print('on stderr', file=__import__('sys').stderr)\n", "on stderr"),
        ("def broken(:\n", "SyntaxError"),
    ],
)
def test_a_failing_example_is_found(text: str, says: str, tmp_path: Path) -> None:
    """A wrong assertion, a warning, noise and a slip of the pen are all reported, at the page's own line."""
    assert says in running.python("page.md", [Block("python", 7, text)], tmp_path)


@pytest.mark.parametrize(
    ("shown", "said", "alike"),
    [
        (["a ... d", "e"], "a b c d\ne\n", True),
        (["a", "...", "z"], "a\nb\nc\nz\n", True),
        (["a"], "a\nb\n", False),
        (["a", "...", "z"], "a\nb\n", False),
        (['{"id":"...","n":[1]}'], '{"id":"x","n":[1]}', True),
        (['{"id":"...","n":[1]}'], '{"id":"x","n":1}', False),
        (["a"], "", False),
    ],
)
def test_other_output_is_found(shown: list[str], said: str, alike: bool) -> None:
    """Every line counts, and `...` stands for what may differ."""
    assert (running.differs(shown, said) == "") is alike


def test_blocks_are_found_with_what_is_said_above_them(tmp_path: Path) -> None:
    """Fences within lists, marks, continued lines and shown lines are read as they are meant."""
    marked = "# T\n<!-- needs: flask -->\n```python\nx\n```\n\n"
    indented = "  ```console\n  $ a \\\n      b\n  c\n  ```\n<!-- until -->\n```console\n$ d\n```\n"
    page = Page(tmp_path / "a.md", marked + indented)
    assert page.blocks[0] == Block("python", 4, "x\n", "flask")
    assert page.commands == [Command(8, "a b", ["c"], until=False), Command(14, "d", [], until=True)]
    assert page.headings == ["T"]
