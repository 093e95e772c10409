"""Figures as Prometheus reads them, in the text format 0.0.4."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

from oncekey.telemetry.metrics import Histogram, Metric

if TYPE_CHECKING:
    from oncekey.telemetry.counters import Counters, Observed

CONTENT_TYPE = b"text/plain; version=0.0.4; charset=utf-8"


def text(counted: Mapping[Metric, int]) -> bytes:
    """Counters alone: dots become underscores, because Prometheus allows no dots."""
    return _joined(_plain(counted, "counter"))


def page(counters: Counters, gauges: Mapping[Metric, float] | None = None) -> bytes:
    """Everything that is counted and measured, and what stands in the store, where somebody has looked."""
    lines = [*_plain(counters.totals(), "counter"), *_histograms(counters.observed()), *_plain(gauges or {}, "gauge")]
    return _joined(lines)


def named(name: str) -> str:
    """A metric's name as Prometheus has it."""
    return name.replace(".", "_")


def _plain(figures: Mapping[Metric, float], kind: str) -> Iterable[str]:
    before = ""
    for metric, figure in figures.items():
        name = named(metric.name)
        if name != before:
            yield f"# HELP {name} {metric.help}"
            yield f"# TYPE {name} {kind}"
        before = name
        yield f"{name}{_labels(metric.labels)} {figure}"


def _histograms(observed: Mapping[Histogram, Observed]) -> Iterable[str]:
    before = ""
    for histogram, (buckets, total) in observed.items():
        name = named(histogram.name)
        if name != before:
            yield f"# HELP {name} {histogram.help}"
            yield f"# TYPE {name} histogram"
        before, below = name, 0
        for bound, count in zip((*(f"{bound:g}" for bound in histogram.bounds), "+Inf"), buckets, strict=True):
            below += count
            yield f"{name}_bucket{_labels((*histogram.labels, ('le', bound)))} {below}"
        yield f"{name}_sum{_labels(histogram.labels)} {total:.6f}"
        yield f"{name}_count{_labels(histogram.labels)} {below}"


def _labels(labels: tuple[tuple[str, str], ...]) -> str:
    return "{" + ",".join(f'{name}="{value}"' for name, value in labels) + "}" if labels else ""


def _joined(lines: Iterable[str]) -> bytes:
    return ("\n".join(lines) + "\n").encode()
