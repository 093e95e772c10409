"""Counters as Prometheus reads them, in the text format 0.0.4."""

from __future__ import annotations

from collections.abc import Mapping

from oncekey.telemetry.metrics import Metric

CONTENT_TYPE = b"text/plain; version=0.0.4; charset=utf-8"


def text(counted: Mapping[Metric, int]) -> bytes:
    """One page of metrics: dots become underscores, because Prometheus allows no dots."""
    lines = []
    for metric, count in counted.items():
        name = metric.name.replace(".", "_")
        lines += [f"# HELP {name} {metric.help}", f"# TYPE {name} counter", f"{name} {count}"]
    return ("\n".join(lines) + "\n").encode()
