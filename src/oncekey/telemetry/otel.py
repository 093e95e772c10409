"""Metrics through OpenTelemetry's API. Who exports them, and how often, is the application's choice of an SDK.

The names are those of the page for Prometheus, with dots.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

from opentelemetry import metrics
from opentelemetry.metrics import Observation

from oncekey.telemetry.metrics import GAUGES, HISTOGRAMS, METRICS, Histogram, Metric, counted, measured
from oncekey.telemetry.metrics_page import look

if TYPE_CHECKING:
    from opentelemetry.metrics import CallbackOptions, Meter, MeterProvider

    from oncekey.engine.events import Event
    from oncekey.stores.contract import Store

NAME = "oncekey"
# All gauges are collected at once: they share one look at the store.
FRESH_FOR = 1.0


class OtelMetrics:
    """A sink: give it to an engine. With a `store` (for threads) it also tells how old the oldest unknown outcome is.

    It uses the global provider of meters unless it is given one.
    """

    def __init__(self, provider: MeterProvider | None = None, store: Store | None = None) -> None:
        meter = metrics.get_meter(NAME, meter_provider=provider)
        # One instrument for each name: labels are attributes.
        counters, histograms = {one.name: one for one in METRICS}, {one.name: one for one in HISTOGRAMS}
        self._counters = {name: meter.create_counter(name, description=one.help) for name, one in counters.items()}
        self._histograms = {name: _histogram(meter, one) for name, one in histograms.items()}
        for metric in METRICS:
            # From the start, so that a rate has a zero to begin from.
            self._counters[metric.name].add(0, dict(metric.labels))
        if store is not None:
            looked = _Looked(store)
            for gauge in GAUGES:
                meter.create_observable_gauge(gauge.name, [looked.callback(gauge)], description=gauge.help)

    def __call__(self, event: Event) -> None:
        """Count and measure one event."""
        for metric in counted(event):
            self._counters[metric.name].add(event.size, dict(metric.labels))
        for histogram, value in measured(event):
            self._histograms[histogram.name].record(value, dict(histogram.labels))


class _Looked:
    """The store's figures, asked for once in each collection."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._figures: dict[Metric, float] = {}
        self._until = 0.0

    def callback(self, gauge: Metric) -> Callable[[CallbackOptions], Iterable[Observation]]:
        def observe(options: CallbackOptions) -> Iterable[Observation]:
            if time.monotonic() >= self._until:
                self._figures = look(self._store)
                self._until = time.monotonic() + FRESH_FOR
            if gauge in self._figures:
                yield Observation(self._figures[gauge])

        return observe


def _histogram(meter: Meter, one: Histogram) -> metrics.Histogram:
    bounds = list(one.bounds)
    return meter.create_histogram(one.name, one.unit, one.help, explicit_bucket_boundaries_advisory=bounds)
