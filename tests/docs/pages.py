"""The pages of the documentation, taken apart: headings, links, and fenced blocks with what is said above them.

A line `<!-- needs: fastapi -->` or `<!-- until -->` in front of a block tells the tests how to run it.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"

_FENCE = re.compile(r"^( *)```(\w*)\s*$")
_TOLD = re.compile(r"^ *<!-- (needs|until)(?:: (\w+))? -->$")
_HEADING = re.compile(r"^(#{1,6}) (.+?)\s*$")
_LINK = re.compile(r"(?<!!)\[[^\]]*\]\(([^()\s]+)\)")
_NO_ANCHOR = re.compile(r"[^\w\- ]")


class Block(NamedTuple):
    """One fenced block. `line` is the number of its first line; `needs` names a package; `until` says: try again."""

    language: str
    line: int
    text: str
    needs: str = ""
    until: bool = False


class Command(NamedTuple):
    """One line behind a `$`, and the lines shown below it."""

    line: int
    words: str
    shown: list[str]
    until: bool


class Page:
    """One page, read once."""

    def __init__(self, path: Path, text: str | None = None) -> None:
        self.path = path
        self.name = path.relative_to(ROOT).as_posix() if path.is_relative_to(ROOT) else path.name
        self.blocks: list[Block] = []
        self.prose: list[str] = []
        self._take_apart((path.read_text(encoding="utf-8") if text is None else text).splitlines())

    def _take_apart(self, lines: list[str]) -> None:
        told: dict[str, str] = {}
        number = 0
        while number < len(lines):
            line = lines[number]
            number += 1
            fence = _FENCE.match(line)
            if fence:
                start = number
                while lines[number].strip() != "```":
                    number += 1
                body = [text.removeprefix(fence[1]) for text in lines[start:number]]
                self.blocks.append(
                    Block(fence[2], start + 1, "\n".join(body) + "\n", told.get("needs", ""), "until" in told)
                )
                number += 1
                told = {}
            elif mark := _TOLD.match(line):
                told[mark[1]] = mark[2] or ""
            else:
                self.prose.append(line)

    @property
    def headings(self) -> list[str]:
        """The headings, as written."""
        return [found[2] for line in self.prose if (found := _HEADING.match(line))]

    @property
    def anchors(self) -> set[str]:
        """What may stand behind a # to get to a heading of this page."""
        return {_NO_ANCHOR.sub("", heading.lower()).replace(" ", "-") for heading in self.headings}

    @property
    def links(self) -> list[str]:
        """Where this page points, outside of its examples."""
        return _LINK.findall("\n".join(self.prose))

    def section(self, heading: str) -> str:
        """The prose below a heading, up to the next one."""
        start = next(at for at, line in enumerate(self.prose) if (h := _HEADING.match(line)) and h[2] == heading)
        end = next((at for at in range(start + 1, len(self.prose)) if _HEADING.match(self.prose[at])), len(self.prose))
        return "\n".join(self.prose[start + 1 : end])

    def rows(self) -> list[str]:
        """What stands in code letters in the first cells of this page's tables."""
        cells = [line.split("|")[1] for line in self.prose if line.startswith("| ")]
        return [name for cell in cells for name in re.findall(r"`([^`]+)`", cell)]

    @property
    def commands(self) -> list[Command]:
        """What is typed into a terminal on this page, with a backslash at a line's end going on in the next."""
        found: list[Command] = []
        for block in self.blocks:
            if block.language == "console":
                found += _commands(block)
        return found


def _commands(block: Block) -> list[Command]:
    found: list[Command] = []
    lines = iter(enumerate(block.text.splitlines(), block.line))
    for number, line in lines:
        if not line.startswith("$ "):
            found[-1].shown.append(line)
            continue
        words = line.removeprefix("$ ")
        while words.endswith("\\"):
            words = words[:-1] + next(lines)[1].strip()
        found.append(Command(number, words, [], block.until))
    return found


def pages() -> list[Page]:
    """All pages, the README first."""
    own = [ROOT / name for name in ("README.md", "CHANGELOG.md", "ROADMAP.md", "CONTRIBUTING.md")]
    return [Page(path) for path in [*own, *sorted(DOCS.rglob("*.md"))]]
