"""What a run found becomes verdicts, charts and a page; the page in docs/ is the one that its figures make."""

from __future__ import annotations

import json
import xml.etree.ElementTree as ET
from pathlib import Path
from typing import Any

import pytest

from bench import page, svg, targets
from bench.pieces import Bar, Chart

ROOT = Path(__file__).parent.parent.parent
FIGURES = ROOT / "docs" / "benchmarks.json"


def setting(speed: float | None, peer: float) -> dict[str, Any]:
    rows = [("floor", 1.0), ("oncekey", speed), ("idemkit", peer), ("no layer", 9.0)]
    names = ("wall", "cpu", "server", "work")
    figures = [{"name": name, "speed": x, "broken": "", **dict.fromkeys(names, 1.0)} for name, x in rows]
    return {"store": "redis", "phase": "first", "concurrency": 32, "figures": figures}


def found(speed: float | None, peer: float = 0.8) -> dict[str, Any]:
    return {"redis": {"settings": [setting(speed, peer)], "same": {}}}


def verdict(run: dict[str, Any], what: str) -> targets.Verdict:
    [made] = [
        one for one in targets.verdicts(run, ["no layer", "floor", "oncekey", "idemkit"]) if one.target.what == what
    ]
    return made


@pytest.mark.parametrize(("speed", "met"), [(1.99, False), (2.0, True), (2.5, True)])
def test_a_target_is_met_at_its_bound(speed: float, met: bool) -> None:
    """More is better for a speed; the best peer is neither the floor nor the bare application."""
    made = verdict(found(speed), "Redis, first, 32 at once: speed")
    assert (made.measured, made.met, made.peer) == (speed, met, ("idemkit", 0.8))


def test_less_is_better_for_a_cost() -> None:
    """A claim among many records may cost at most its bound, and the larger run counts."""
    row = {store: {"claim": {"ratio": ratio}} for store, ratio in (("postgres", 1.3), ("sqlite", 1.31))}
    run = {"growth": {"postgres": {"claim": {"ratio": 9}}}, "millions": row}
    assert verdict(run, "Postgres, a claim among many records").met
    assert not verdict(run, "SQLite, a claim among many records").met


def test_what_was_not_measured_has_no_verdict() -> None:
    """A run of some sections, and a broken candidate, make no claims."""
    assert targets.verdicts({}, ["oncekey"]) == []
    assert [one.target.what for one in targets.verdicts(found(None), [])] == ["Redis, first, 32 at once: CPU"]


def test_every_target_reads_something() -> None:
    """The figures that stand in the docs have a verdict for every target."""
    sections = json.loads(FIGURES.read_text())["sections"]
    assert [one.target for one in targets.verdicts(sections, [])] == list(targets.TABLE)


def test_a_chart_is_well_formed_and_to_scale() -> None:
    """Twice the value is twice the bar, text is escaped, and the mark stands where its value is."""
    bars = [Bar("floor", 1.0, "1x"), Bar("oncekey", 2.0, "<2x>"), Bar("a & b", 0.0, "0")]
    tree = ET.fromstring(svg.drawn(Chart("name", "a < b", [("group", bars)], 1.0)))
    space = "{http://www.w3.org/2000/svg}"
    widths = [float(rect.attrib["width"]) for rect in tree.iter(f"{space}rect")]
    assert widths == [220.0, 440.0, 1.0]
    [mark] = tree.iter(f"{space}line")
    assert float(mark.attrib["x1"]) == svg.LEFT + 220
    assert {"a < b", "<2x>", "a & b"} <= {text.text for text in tree.iter(f"{space}text")}


def test_an_empty_chart_is_a_chart() -> None:
    """Nothing measured divides by nothing."""
    assert "</svg>" in svg.drawn(Chart("name", "title", [("group", [])]))
    assert "</svg>" in svg.drawn(Chart("name", "title", [("", [Bar("floor", 0.0, "0")])]))


@pytest.mark.parametrize(
    ("series", "kind"),
    [
        ("oncekey", "ours"),
        ("oncekey, remembering", "ours"),
        ("no layer (FastAPI)", "bare"),
        ("floor", "floor"),
        ("x", "peer"),
    ],
)
def test_a_bar_has_the_colour_of_its_owner(series: str, kind: str) -> None:
    """Ours, the floor, no layer and the peers are told apart."""
    assert svg.kind(series) == kind


def test_the_page_is_made_of_its_figures(tmp_path: Path) -> None:
    """Nothing in docs/benchmarks.md and its charts is written by hand, and no chart is left over."""
    result = json.loads(FIGURES.read_text())
    for name, text in page.files(result).items():
        assert (FIGURES.parent / name).read_text(encoding="utf-8") == text, f"{name}: run bench.page again"
    charts = {path.name for path in (FIGURES.parent / page.IMAGES).glob("*.svg")}
    assert charts == {Path(name).name for name in page.files(result) if name.endswith(".svg")}


def test_writing_the_page_takes_old_charts_away(tmp_path: Path) -> None:
    """A chart of a section that is gone does not stay."""
    (tmp_path / page.IMAGES).mkdir(parents=True)
    (tmp_path / page.IMAGES / "old.svg").write_text("")
    result = json.loads(FIGURES.read_text())
    page.written(result, tmp_path)
    assert not (tmp_path / page.IMAGES / "old.svg").exists()
    assert (tmp_path / "benchmarks.md").read_text().startswith("# Benchmarks\n")
