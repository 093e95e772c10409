"""The tables of figures in the docs."""

from __future__ import annotations

from oncekey.telemetry.metrics import GAUGES, HISTOGRAMS, MISUSE
from tests.docs.pages import DOCS


def test_every_figure_is_in_the_reference() -> None:
    """Histograms, gauges, and the counter that no event names."""
    page = (DOCS / "reference" / "events.md").read_text(encoding="utf-8")
    wanted = {one.name for one in HISTOGRAMS} | {one.name for one in GAUGES}
    tables = page[page.index("## Times and sizes") :]
    assert {line.split("`")[-2] for line in tables.splitlines() if line.startswith("|") and "`api." in line} == wanted
    assert f"`{MISUSE}`" in page
