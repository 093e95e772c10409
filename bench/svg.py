"""Charts as SVG: groups of bars on one scale, readable on light and dark pages. Pure."""

from __future__ import annotations

from html import escape

from bench.candidates import BARE, FLOOR, OURS
from bench.pieces import Bar, Chart

WIDTH, LEFT, RIGHT = 760, 230, 90
BAR, GAP, HEAD, GROUP = 16, 5, 34, 26

STYLE = """
text { font: 13px system-ui, sans-serif; fill: #1f2328 }
.title { font-weight: 600; font-size: 15px }
.group { font-weight: 600 }
.value { fill: #59636e }
.ours { fill: #0969da } .floor { fill: #8c959f } .bare { fill: #d0d7de } .peer { fill: #bf8700 }
.mark { stroke: #59636e; stroke-dasharray: 3 3 }
@media (prefers-color-scheme: dark) {
  text { fill: #e6edf3 }
  .value { fill: #9198a1 }
  .ours { fill: #4493f8 } .floor { fill: #656c76 } .bare { fill: #3d444d } .peer { fill: #d29922 }
  .mark { stroke: #9198a1 }
}
"""


def kind(series: str) -> str:
    """The class of a bar: whose it is."""
    if series.startswith(OURS):
        return "ours"
    if series.startswith(BARE):
        return "bare"
    return "floor" if series == FLOOR else "peer"


def drawn(chart: Chart) -> str:
    """The whole picture as text."""
    most = max((bar.value for _, bars in chart.groups for bar in bars), default=0.0)
    most = max(most, chart.mark or 0.0) or 1.0
    scale = (WIDTH - LEFT - RIGHT) / most
    lines, at = [f'<text class="title" x="12" y="22">{escape(chart.title)}</text>'], HEAD
    for name, bars in chart.groups:
        if name:
            lines.append(f'<text class="group" x="12" y="{at + 17}">{escape(name)}</text>')
            at += GROUP
        for bar in bars:
            lines += _bar(bar, at, scale)
            at += BAR + GAP
        at += GAP
    if chart.mark is not None:
        x = f"{LEFT + chart.mark * scale:.1f}"
        lines.append(f'<line class="mark" x1="{x}" x2="{x}" y1="{HEAD}" y2="{at}"/>')
    size = f'width="{WIDTH}" height="{at + 6}" viewBox="0 0 {WIDTH} {at + 6}"'
    head = f'<svg xmlns="http://www.w3.org/2000/svg" {size} role="img" aria-label="{escape(chart.title)}">'
    return "\n".join([head, f"<style>{STYLE}</style>", *lines, "</svg>", ""])


def _bar(bar: Bar, at: int, scale: float) -> list[str]:
    width = max(bar.value * scale, 1.0)
    return [
        f'<text x="{LEFT - 8}" y="{at + 13}" text-anchor="end">{escape(bar.series)}</text>',
        f'<rect class="{kind(bar.series)}" x="{LEFT}" y="{at}" width="{width:.1f}" height="{BAR}" rx="2"/>',
        f'<text class="value" x="{LEFT + width + 6:.1f}" y="{at + 13}">{escape(bar.text)}</text>',
    ]
