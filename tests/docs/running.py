"""Running what a page shows: its Python blocks in a child process, its commands in a shell."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import time
from collections.abc import Sequence
from fnmatch import fnmatchcase
from pathlib import Path

from tests.cli.running import environment
from tests.docs.pages import ROOT, Block, Command

CHILD = Path(__file__).with_name("child.py")
PATIENCE = 60.0
# A command whose block says `until` is given again after this long, until its output is as shown.
AGAIN_AFTER = 0.1
# What stands on the pages for a server -> the fixture with the real one.
SERVERS = {
    "postgresql://shop:secret@db.example/shop": "postgres_url",
    "redis://redis.example:6379/0": "redis_url",
}


def python(name: str, blocks: Sequence[Block], folder: Path) -> str:
    """Run blocks in order in a folder; return what went wrong, or nothing."""
    ran = subprocess.run(
        [sys.executable, "-W", "error", str(CHILD), name],
        input=json.dumps([(block.line, block.text) for block in blocks]),
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        env=environment(),
        cwd=folder,
        check=False,
    )
    return "" if ran.returncode == 0 and not ran.stderr else ran.stderr or f"exit code {ran.returncode}"


def shell(command: Command, folder: Path) -> str:
    """Give a command as it stands on the page; return why its output is not what is shown, or nothing."""
    deadline = time.monotonic() + PATIENCE
    while True:
        said = _said(command.words, folder)
        trouble = differs(command.shown, said)
        if not trouble or not command.until or time.monotonic() > deadline:
            return trouble
        time.sleep(AGAIN_AFTER)


def _said(words: str, folder: Path) -> str:
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    ran = subprocess.run(
        ["bash", "-c", words],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=PATIENCE,
        env=environment(PATH=path, COLUMNS="110"),
        cwd=folder,
        check=False,
    )
    return ran.stdout


def differs(shown: Sequence[str], said: str) -> str:
    """Compare line by line. On the page, `...` stands for any part of a line, or alone for any lines."""
    pattern = [" ".join(line.split()) for line in shown if line.strip()]
    lines = [" ".join(line.split()) for line in said.splitlines() if line.strip()]
    if not pattern or fits(pattern, lines):
        return ""
    return "shown:\n  " + "\n  ".join(shown) + "\nsaid:\n  " + "\n  ".join(said.splitlines())


def fits(pattern: list[str], lines: list[str]) -> bool:
    """Whether the lines are those of the pattern."""
    if not pattern:
        return not lines
    if pattern[0] == "...":
        return any(fits(pattern[1:], lines[skip:]) for skip in range(len(lines) + 1))
    return bool(lines) and same(pattern[0], lines[0]) and fits(pattern[1:], lines[1:])


def same(shown: str, line: str) -> bool:
    """Whether one line is as shown, `...` standing for anything in it."""
    literal = re.sub(r"([*?\[])", r"[\1]", shown)
    return fnmatchcase(line, literal.replace("...", "*"))


def placed(text: str, places: dict[str, str]) -> str:
    """A text with what stands for servers replaced by the real ones."""
    for stands, real in places.items():
        text = text.replace(stands, real)
    return text


__all__ = ["ROOT", "SERVERS", "differs", "placed", "python", "same", "shell"]
