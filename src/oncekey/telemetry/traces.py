"""Spans through OpenTelemetry's API, joined to the caller's trace; a replay is linked to the request that it repeats.

That link needs the first request's trace: it is kept with the record (core.journal), in 31 bytes, where requests are
traced and sampled, and nowhere else. What took time is told when it is over, so these spans are made afterwards, with
the times at which they were; the handler's own spans are children of the request's.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from opentelemetry import propagate, trace
from opentelemetry.propagators.textmap import Getter
from opentelemetry.trace import Span, SpanContext, SpanKind, StatusCode, TraceFlags

from oncekey.engine import events
from oncekey.engine.common import DECISIONS
from oncekey.engine.current import TRACE
from oncekey.engine.events import log

if TYPE_CHECKING:
    from opentelemetry.context import Context
    from opentelemetry.trace import TracerProvider

    from oncekey.engine.events import Event

NAME = "oncekey"
Headers = Iterable[tuple[bytes, bytes]]

# What takes time, as a span: what the event's `took_for` measures.
_SPANS = {
    **dict.fromkeys(DECISIONS, "oncekey.decide"),
    events.LET_GO: "oncekey.hold",
    events.COMPLETED: "oncekey.settle",
    events.FAILED_RETRYABLE: "oncekey.settle",
    events.TURNED_UNKNOWN: "oncekey.settle",
}
# What a person who looks at a trace must not miss.
_TROUBLE = {events.STORE_ERROR, events.TURNED_UNKNOWN, events.SETTLE_OWED, events.SETTLE_REFUSED}
_TRACE, _SPAN = slice(0, 16), slice(16, 24)
_WHOLE = 25


class OtelTraces:
    """A sink that follows requests: give it to an engine. It uses the global provider of tracers, or the one given.

    Where nothing outside of OnceKey has begun a span for the request, it takes the caller's trace from its headers.
    """

    def __init__(self, provider: TracerProvider | None = None) -> None:
        self._tracer = trace.get_tracer(NAME, tracer_provider=provider)

    @contextmanager
    def during(self, headers: Headers) -> Iterator[None]:
        """A span around a guarded request, in the trace of its caller."""
        outside = trace.get_current_span().get_span_context().is_valid
        parent = None if outside else _caller(headers)
        kind = SpanKind.INTERNAL if outside else SpanKind.SERVER
        with self._tracer.start_as_current_span("oncekey.request", parent, kind, record_exception=False) as span:
            if not span.get_span_context().trace_flags.sampled:
                yield
                return
            token = TRACE.set(_Request(span))
            try:
                yield
            finally:
                TRACE.reset(token)

    def __call__(self, event: Event) -> None:
        """Tell of an event in the span of its request."""
        request = TRACE.get()
        if not isinstance(request, _Request):
            return
        span = request.span
        if event.name in DECISIONS:
            words = {"decision": event.name, "ref": event.ref, "scope": event.scope, "endpoint": event.endpoint}
            span.set_attributes({f"oncekey.{name}": word for name, word in words.items()})
        elif event.name not in _SPANS:
            span.add_event(f"oncekey.{event.name}", {"oncekey.detail": event.detail})
        if event.name in _TROUBLE:
            span.set_status(StatusCode.ERROR, event.detail or event.name)
        self._past(event, span)

    def _past(self, event: Event, span: Span) -> None:
        """The spans that have just ended with this event."""
        took_for, now = event.took_for, time.time_ns()
        if took_for is None or event.name not in _SPANS:
            return
        began = now - round(took_for * 1e9)
        inside = trace.set_span_in_context(span)
        outcome = {"oncekey.outcome": event.name}
        if event.ran_for is not None:
            worked = self._tracer.start_span("oncekey.handler", inside, start_time=began - round(event.ran_for * 1e9))
            worked.end(began)
        self._tracer.start_span(_SPANS[event.name], inside, start_time=began, attributes=outcome).end(now)


def _caller(headers: Headers) -> Context | None:
    try:
        return propagate.extract(headers, getter=_LINES)
    except Exception:  # noqa: BLE001 - whatever stands in a header, and however it is propagated, the payment goes on
        log.exception("the caller's trace could not be read; a new one begins")
        return None


class _Request:
    """The request at hand, as a span (engine.current.Followed)."""

    def __init__(self, span: Span) -> None:
        self.span = span

    @property
    def here(self) -> bytes:
        context = self.span.get_span_context()
        flags = bytes((context.trace_flags & 0xFF,))
        return context.trace_id.to_bytes(16, "big") + context.span_id.to_bytes(8, "big") + flags

    def link(self, earlier: bytes) -> None:
        if len(earlier) != _WHOLE:
            return
        ids = int.from_bytes(earlier[_TRACE], "big"), int.from_bytes(earlier[_SPAN], "big")
        context = SpanContext(*ids, is_remote=True, trace_flags=TraceFlags(earlier[-1]))
        self.span.add_link(context, {"oncekey.link": "the request that ran the work"})


class _Lines(Getter[Headers]):
    """Header lines as a propagator reads them."""

    def get(self, carrier: Headers, key: str) -> list[str] | None:
        wanted = key.lower().encode()
        return [value.decode("latin-1") for name, value in carrier if name.lower() == wanted] or None

    def keys(self, carrier: Headers) -> list[str]:
        return [name.decode("latin-1") for name, _ in carrier]


_LINES = _Lines()
