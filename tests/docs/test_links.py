from __future__ import annotations

from collections import deque
from pathlib import Path

import pytest

from tests.docs.pages import DOCS, ROOT, Page, pages

PAGES = {page.path: page for page in pages()}
# Pages that others are writing: they may be linked before they are there, and leave this list when they come.
COMING: frozenset[str] = frozenset()


def broken(page: Page) -> list[str]:
    """The links of a page that lead nowhere. Addresses elsewhere are not followed."""
    found = []
    for link in page.links:
        place, _, anchor = link.partition("#")
        if place.startswith(("https://", "http://")):
            continue
        target = (page.path.parent / place).resolve() if place else page.path
        if not target.exists():
            if not target.is_relative_to(ROOT) or target.relative_to(ROOT).as_posix() not in COMING:
                found.append(link)
        elif anchor and anchor not in Page(target).anchors:
            found.append(link)
    return found


def reached(start: Path) -> set[Path]:
    """The pages that links lead to."""
    found, queue = {start}, deque([start])
    while queue:
        here = queue.popleft()
        for link in PAGES[here].links:
            target = (here.parent / link.partition("#")[0]).resolve()
            if target in PAGES and target not in found:
                found.add(target)
                queue.append(target)
    return found


@pytest.mark.parametrize("page", PAGES.values(), ids=lambda page: page.name)
def test_links_lead_somewhere(page: Page) -> None:
    """Every link between pages names a file that is there, and a heading that is in it."""
    assert broken(page) == []


def test_every_page_is_reached_from_the_map() -> None:
    """Whoever starts at docs/index.md finds every page by links alone."""
    lost = {path for path in PAGES if path.is_relative_to(DOCS)} - reached(DOCS / "index.md")
    assert sorted(path.name for path in lost) == []


def test_the_list_of_coming_pages_only_shrinks() -> None:
    """A page that has come is taken off the list."""
    assert [name for name in sorted(COMING) if (ROOT / name).exists()] == []


def test_a_broken_link_is_found(tmp_path: Path) -> None:
    """A missing file and a missing heading are reported; what is in an example is no link."""
    (tmp_path / "b.md").write_text("## What's here, then?\n")
    text = "[a](b.md#whats-here-then) [b](b.md#gone) [c](gone.md) [d](b.md)\n```\n[e](none.md)\n```\n"
    assert broken(Page(tmp_path / "a.md", text)) == ["b.md#gone", "gone.md"]
