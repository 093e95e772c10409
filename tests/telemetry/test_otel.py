"""Metrics and traces, as OpenTelemetry's own SDK collects them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from opentelemetry import trace
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.sdk.trace.sampling import ALWAYS_OFF

from oncekey import Policy
from oncekey.core.journal import Trace
from oncekey.core.outcome import Answer, carried_by, unpack
from oncekey.core.record import State
from oncekey.engine import events
from oncekey.engine.events import Event
from oncekey.engine.sealing import Sealer
from oncekey.errors import NotExecuted
from oncekey.operations import Desk, Signature
from oncekey.operations.answers import read_answer
from oncekey.stores.memory import MemoryStore
from oncekey.telemetry.metrics import GAUGES, HISTOGRAMS, METRICS
from oncekey.telemetry.otel import OtelMetrics
from oncekey.telemetry.traces import OtelTraces
from tests.adapters import asgi_kit, wsgi_kit
from tests.telemetry.test_metrics_page import Away, unknown

CALLER = b"00-" + b"ab" * 16 + b"-" + b"cd" * 8 + b"-01"


class Collected:
    """A provider of tracers, and the spans that have ended."""

    def __init__(self, **options: Any) -> None:
        self.exporter = InMemorySpanExporter()
        self.provider = TracerProvider(**options)
        self.provider.add_span_processor(SimpleSpanProcessor(self.exporter))
        self.sinks = (OtelTraces(self.provider),)

    def named(self, name: str) -> list[ReadableSpan]:
        return [span for span in self.exporter.get_finished_spans() if span.name == name]

    @property
    def requests(self) -> list[ReadableSpan]:
        return self.named("oncekey.request")


@pytest.fixture
def collected() -> Iterator[Collected]:
    """All spans."""
    made = Collected()
    yield made
    made.provider.shutdown()


def from_caller(**changes: Any) -> dict[str, Any]:
    """A request with a traceparent."""
    scope = asgi_kit.http(**changes)
    return scope | {"headers": [*scope["headers"], (b"traceparent", CALLER)]}


def read(reader: InMemoryMetricReader) -> dict[tuple[str, tuple[Any, ...]], Any]:
    """The points that were collected, by name and attributes."""
    data = reader.get_metrics_data()
    assert data is not None
    metrics = [one for resource in data.resource_metrics for scope in resource.scope_metrics for one in scope.metrics]
    return {(m.name, tuple((p.attributes or {}).items())): p for m in metrics for p in m.data.data_points}


# ---- metrics -------------------------------------------------------------------------------------------------------


def test_every_counter_is_there_at_zero() -> None:
    """The names are those of the page for Prometheus, with dots."""
    reader = InMemoryMetricReader()
    OtelMetrics(MeterProvider([reader]))
    assert {key: point.value for key, point in read(reader).items()} == {(m.name, m.labels): 0 for m in METRICS}


def test_events_move_counters_and_histograms() -> None:
    """One event, both; the buckets are ours."""
    reader = InMemoryMetricReader()
    metrics = OtelMetrics(MeterProvider([reader]))
    metrics(Event(events.PURGED, size=500))
    metrics(Event(events.COMPLETED, took_for=0.002, ran_for=1.5))
    metrics(Event(events.BATCH, detail="claim", size=3))
    points = read(reader)
    assert points["api.idempotency.ttl_pruned.count", ()].value == 500
    handler = points["api.idempotency.handler.seconds", ()]
    assert (handler.sum, handler.explicit_bounds) == (1.5, HISTOGRAMS[1].bounds)
    assert points["api.idempotency.batch.size", (("verb", "claim"),)].sum == 3


def test_the_store_is_looked_at_when_it_is_given() -> None:
    """How old the oldest unknown is; and if the store does not answer, that alone."""
    store = MemoryStore()
    unknown(store, "k", 900_000)
    points: dict[Any, Any] = {}
    for given, names in ((store, {one.name for one in GAUGES}), (Away(), {"api.idempotency.store.up"})):
        reader = InMemoryMetricReader()
        OtelMetrics(MeterProvider([reader]), store=given)
        points = read(reader)
        assert {name for name, _ in points} - {one.name for one in METRICS} == names
    assert points["api.idempotency.store.up", ()].value == 0


# ---- traces --------------------------------------------------------------------------------------------------------


async def test_a_request_is_joined_to_its_callers_trace(collected: Collected) -> None:
    """By its traceparent, where nothing outside of us has begun a span; what took time is below it."""
    await asgi_kit.call(asgi_kit.Guarded(asgi_kit.Shop(), sinks=collected.sinks), from_caller())
    [span] = collected.requests
    assert span.parent is not None
    assert (f"{span.parent.trace_id:x}", f"{span.parent.span_id:x}") == ("ab" * 16, "cd" * 8)
    assert span.kind is trace.SpanKind.SERVER
    assert (span.attributes or {})["oncekey.decision"] == events.CREATED
    for name in ("oncekey.decide", "oncekey.handler", "oncekey.settle"):
        [below] = collected.named(name)
        assert below.parent is not None
        assert below.parent.span_id == span.context.span_id


async def test_a_span_outside_is_the_parent(collected: Collected) -> None:
    """An instrumented server has read the traceparent already."""
    tracer = collected.provider.get_tracer("the server")
    with tracer.start_as_current_span("POST /pay") as outside:
        await asgi_kit.call(asgi_kit.Guarded(asgi_kit.Shop(), sinks=collected.sinks), from_caller())
    [span] = collected.requests
    assert span.parent == outside.get_span_context()
    assert span.kind is trace.SpanKind.INTERNAL


async def test_the_handlers_spans_are_below_the_request(collected: Collected) -> None:
    """It runs in a task of its own, and still in the trace."""

    class Traced(asgi_kit.Shop):
        async def after(self) -> None:
            collected.provider.get_tracer("the handler").start_span("insert").end()

    await asgi_kit.call(asgi_kit.Guarded(Traced(), sinks=collected.sinks), from_caller())
    assert collected.named("insert")[0].parent == collected.requests[0].context


def links(span: ReadableSpan) -> list[int]:
    """The spans that this one is linked to."""
    return [link.context.span_id for link in span.links]


@pytest.mark.parametrize("recall_for", [None, 10.0])
async def test_a_replay_is_linked_to_the_first_request(collected: Collected, recall_for: float | None) -> None:
    """And so is every later one, in its own caller's trace, whether its answer comes from the store or from memory."""
    guarded = asgi_kit.Guarded(asgi_kit.Shop(), sinks=collected.sinks, policy=Policy(recall_for=recall_for))
    for _ in range(3):
        await asgi_kit.call(guarded, from_caller())
    first, second, third = collected.requests
    assert links(second) == links(third) == [first.context.span_id]
    assert (second.attributes or {})["oncekey.decision"] == events.REPLAYED


def test_wsgi_replays_are_linked_too(collected: Collected) -> None:
    """The same, in the server's thread, which is left as it was found."""
    guarded = wsgi_kit.Guarded(wsgi_kit.Shop(), sinks=collected.sinks)
    for _ in range(2):
        wsgi_kit.call(guarded, wsgi_kit.post(HTTP_TRACEPARENT=CALLER.decode()))
    first, second = collected.requests
    assert links(second) == [first.context.span_id]
    assert f"{second.context.trace_id:x}" == "ab" * 16
    assert not trace.get_current_span().get_span_context().is_valid


async def test_a_retry_is_linked_to_the_attempt_before_it(collected: Collected) -> None:
    """What was released or is unknown keeps the trace of the attempt, and a replay is linked to the one that worked."""

    class Failing(asgi_kit.Shop):
        async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
            if not self.scopes:
                self.scopes.append(scope)
                raise NotExecuted
            await super().__call__(scope, receive, send)

    guarded = asgi_kit.Guarded(Failing(), sinks=collected.sinks)
    for _ in range(3):
        await asgi_kit.call(guarded, from_caller())
    first, second, third = collected.requests
    assert links(second) == [first.context.span_id]
    assert links(third) == [second.context.span_id]


async def test_nothing_is_kept_where_nothing_is_traced() -> None:
    """Without the sink, and where the request is not sampled, a record has the same bytes as ever."""
    kept = []
    off, on = Collected(sampler=ALWAYS_OFF), Collected()
    for sinks in ((), off.sinks, on.sinks):
        guarded = asgi_kit.Guarded(asgi_kit.Shop(), sinks=sinks)
        await asgi_kit.call(guarded, asgi_kit.http())
        kept.append(Sealer().open(guarded.records[0].id, guarded.records[0].outcome))
    assert kept[0] == kept[1]
    assert len(kept[2]) == len(kept[0]) + 31
    assert unpack(kept[0]) == unpack(kept[2])


async def test_the_trace_outlives_an_override(collected: Collected) -> None:
    """Whoever settles an unknown outcome by hand leaves the link in place."""

    class Crashing(asgi_kit.Shop):
        async def after(self) -> None:
            raise AssertionError

    guarded = asgi_kit.Guarded(
        Crashing({"type": "http.response.start", "status": 200, "headers": []}), sinks=collected.sinks
    )
    with pytest.raises(AssertionError):
        await asgi_kit.call(guarded, from_caller())
    [record] = guarded.records
    assert record.state is State.UNKNOWN
    seen = guarded.store.get(record.id)
    assert seen is not None
    answer = read_answer('{"status": 201, "json": {}}')
    assert isinstance(answer, Answer)
    assert Desk(guarded.store, Sealer()).complete(seen, answer, Signature("ann", "in the bank statement")).written
    outcome = Sealer().open(record.id, guarded.records[0].outcome)
    assert [type(one).__name__ for one in carried_by(outcome).lasting] == ["Trace", "Audit"]
    await asgi_kit.call(guarded, from_caller())
    assert links(collected.requests[1]) == [collected.requests[0].context.span_id]


async def test_trouble_shows_in_the_trace(collected: Collected) -> None:
    """An outcome that became unknown is an error of the request, and says why."""
    guarded = asgi_kit.Guarded(asgi_kit.Shop(*asgi_kit.answer(500, b"")), sinks=collected.sinks)
    await asgi_kit.call(guarded, from_caller())
    status = collected.requests[0].status
    assert (status.status_code, status.description) == (trace.StatusCode.ERROR, "the handler answered 500")


async def test_a_broken_traceparent_begins_a_new_trace(collected: Collected) -> None:
    """Whatever a client sends there, its request is served; and what a record holds instead of a trace is no link."""
    scope = asgi_kit.http()
    scope["headers"].append((b"traceparent", b"\xff" * 900))
    guarded = asgi_kit.Guarded(asgi_kit.Shop(), sinks=collected.sinks)
    assert (await asgi_kit.call(guarded, scope)).status == 201
    assert collected.requests[0].parent is None
    assert Trace(b"\xab" * 16).trace_id == "ab" * 16
