"""Sections plug in by one row: names, progress, and a run of one from the command line's words to its JSON."""

from __future__ import annotations

import io
import json
from pathlib import Path
from typing import Any

import pytest

from bench import __main__ as command
from bench import sections
from bench.pieces import Note, Piece
from bench.progress import Progress
from bench.sections import BY_NAME, TABLE, Bench, Section


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


class Tiny(Section):
    """A section without work."""

    def measure(self, bench: Bench) -> dict[str, Any]:
        bench.progress(0.5, "half")
        return {"rounds": bench.rounds, "quick": bench.quick}

    def show(self, figures: dict[str, Any]) -> list[Piece]:
        return [Note(f"{figures['rounds']} rounds")]


def test_sections_have_names_of_their_own() -> None:
    """No section hides another, and each module has its two functions."""
    assert len(BY_NAME) == len(TABLE)
    for section in TABLE:
        module = __import__(f"bench.{section.module}", fromlist=["measure"])
        assert callable(module.measure)
        assert callable(module.show)


def test_a_section_goes_from_its_row_to_the_result(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """What a section measures is printed by its own words and written as JSON."""
    monkeypatch.setitem(sections.BY_NAME, "tiny", Tiny("tiny", "Tiny", "none", 1))
    result = tmp_path / "new" / "bench.json"
    command.main(["tiny", "--rounds", "2", "--quick", "--result", str(result)])
    assert json.loads(result.read_text())["sections"] == {"tiny": {"rounds": 2, "quick": True}}
    assert "## Tiny\n\n2 rounds" in capsys.readouterr().out


def test_an_unknown_section_is_named(capsys: pytest.CaptureFixture[str]) -> None:
    """A misspelt word is told with the words there are."""
    with pytest.raises(SystemExit):
        command.main(["redsi"])
    assert "redsi is no section: there are memory" in capsys.readouterr().err


def test_progress_is_by_weight() -> None:
    """Half of the second section of weights 1 and 3 is five eighths of all; the bar goes when it must."""
    out = Terminal()
    progress = Progress({"a": 1, "b": 3}, out)
    progress.begin("a")
    progress.begin("b")
    progress.at(0.5, "half")
    assert " 62% " in out.getvalue().split("\r")[-1]
    progress.end()
    assert out.getvalue().endswith("\r\033[K")


def test_a_log_gets_a_line_per_section() -> None:
    """Where nobody looks on, nothing is drawn over."""
    out = io.StringIO()
    progress = Progress({"a": 1, "b": 3}, out)
    progress.begin("a")
    progress.begin("b")
    progress.at(0.5, "half")
    assert out.getvalue() == "bench:  0% a\nbench: 25% b\n"
