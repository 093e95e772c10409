"""Rates: from totals, over a past that workers share."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import pytest

from oncekey.console.charts import charts
from oncekey.console.rates import ALL, EACH, KEPT, Past, Rates, Sample, parsed
from oncekey.engine.events import BROKER_DOWN, CREATED, REPLAYED, Event
from oncekey.errors import ConfigurationError
from oncekey.telemetry.counters import Counters
from oncekey.telemetry.metrics import Metric
from oncekey.telemetry.prometheus import text


class Clock:
    """Seconds that a test moves."""

    def __init__(self) -> None:
        self.now = 1_000_000.0

    def __call__(self) -> float:
        return self.now


def count(sink: object, name: str, number: int) -> None:
    """Tell a sink that something has happened so often."""
    for _ in range(number):
        sink(Event(name))  # type: ignore[operator]


def test_rates_are_what_moved() -> None:
    """A minute, a quarter of an hour, and all that was ever counted, also before anybody looked."""
    counters, clock = Counters(), Clock()
    count(counters, CREATED, 100)
    rates = Rates(counters, clock)
    rates.samples()
    for step in range(30):
        clock.now += EACH
        count(counters, CREATED, 2 if step < 10 else 1)
        rates.look()
    created, replayed, *_ = charts(rates.samples())
    assert (created.minute, created.window, created.total, created.peak) == (12, 40, 140, 6)
    assert (replayed.window, replayed.path) == (0, "")
    assert sum(created.minutes) == 40
    assert len(created.minutes) == 15


def test_what_is_older_is_forgotten() -> None:
    """The ring keeps a quarter of an hour, however long it turns, and however long nobody looked."""
    counters, clock = Counters(), Clock()
    rates = Rates(counters, clock)
    for _ in range(2 * KEPT):
        clock.now += EACH
        count(counters, CREATED, 1)
        rates.look()
    assert len(rates.samples()) == KEPT
    assert charts(rates.samples())[0].window == KEPT - 1
    clock.now += 3 * KEPT * EACH
    count(counters, CREATED, 5)
    assert charts(rates.samples())[0].window == 0


def test_a_restart_is_no_negative_rate() -> None:
    """Counters that begin anew count as what they show since."""
    zero = (0,) * (len(ALL) - 1)
    chart = charts([Sample(1, (500, *zero)), Sample(2, (3, *zero)), Sample(3, (5, *zero))])[0]
    assert (chart.window, chart.total) == (5, 5)


def test_workers_share_one_past(tmp_path: Path) -> None:
    """With the counters' folder, a worker that was just started shows what the others have seen; no sum falls."""
    clock = Clock()
    first, second = Counters(tmp_path), Counters(tmp_path)
    seen = [Rates(first, clock), Rates(second, clock)]
    seen[0].look()
    for step in range(6):
        clock.now += EACH
        count(first, CREATED, 1)
        count(second, REPLAYED, 2)
        seen[step % 2].look()
    late = Rates(Counters(tmp_path), clock)
    shown = [[chart.window for chart in charts(rates.samples())][:2] for rates in (*seen, late)]
    assert shown == [[6, 12]] * 3


def test_a_damaged_past_is_an_empty_one(tmp_path: Path) -> None:
    """Half a slot and zeros are passed over."""
    path = tmp_path / "console.rates"
    path.write_bytes(bytes(999))
    assert Past(path).until(10) == []
    Past(path).keep(Sample(10, (1,) * len(ALL)))
    assert Past(path).until(10) == [Sample(10, (1,) * len(ALL))]


def test_a_page_of_metrics_is_read() -> None:
    """Labels are added up, `_total` at the end is passed over, comments and odd values too."""
    page = '# HELP a x\na 3\nb_total{x="1 }"} 4 1700000000\nb_total{x="2"} 5.0\nc NaN\nd +Inf\nodd\n'
    assert parsed(page) == {"a": 3, "b": 9}


class Metrics(BaseHTTPRequestHandler):
    """A page of metrics."""

    counters: Counters

    def do_GET(self) -> None:
        self.send_response(200 if self.path == "/metrics" else 404)
        self.end_headers()
        self.wfile.write(text(self.counters.totals()))

    def log_message(self, *words: object) -> None:
        """Say nothing."""


@pytest.fixture
def served() -> Iterator[tuple[Counters, str]]:
    """Counters, and the address of their page."""
    Metrics.counters = Counters()
    server = HTTPServer(("127.0.0.1", 0), Metrics)
    thread = threading.Thread(target=server.serve_forever, args=(0.01,))
    thread.start()
    yield Metrics.counters, f"http://127.0.0.1:{server.server_port}/metrics"
    server.shutdown()
    thread.join()
    server.server_close()


def test_metrics_elsewhere_are_scraped(served: tuple[Counters, str]) -> None:
    """Prometheus' page gives the same rates; what the console does not show is passed over."""
    counters, url = served
    clock = Clock()
    rates = Rates(url, clock)
    rates.look()
    count(counters, CREATED, 4)
    count(counters, BROKER_DOWN, 4)
    clock.now += EACH
    assert (charts(rates.samples())[0].window, rates.trouble) == (4, "")


def test_a_source_that_does_not_answer_is_told(served: tuple[Counters, str]) -> None:
    """The page comes all the same, without the password of the address, and the trouble goes when it answers."""
    _, url = served
    rates = Rates(url.replace("//", "//me:pa55word@").replace("/metrics", "/nowhere"))
    assert rates.samples() == []
    assert "404" in rates.trouble
    assert "pa55word" not in rates.trouble


def test_a_page_elsewhere_is_asked_by_the_thread_alone(served: tuple[Counters, str]) -> None:
    """Once it watches, whoever looks at the console does not wait for somebody else's server."""
    _, url = served
    rates, looked = Rates(url), threading.Semaphore(0)
    read = rates._read
    assert read is not None

    def told() -> tuple[int, ...]:
        looked.release()
        return read()

    rates._read = told
    rates.watch()
    assert looked.acquire(timeout=30)
    rates.close()
    for _ in range(3):
        rates.samples()
    assert not looked.acquire(blocking=False)


@pytest.mark.parametrize("source", ["file:///etc/passwd", "metrics", "http://", 7, object()])
def test_what_counts_nothing_is_refused(source: object) -> None:
    """At construction, with what to give instead."""
    with pytest.raises(ConfigurationError, match=r"write it like http://|give telemetry's Counters"):
        Rates(source)  # type: ignore[arg-type]


def test_watching_ends_when_it_is_told_to() -> None:
    """The thread looks by itself, at once, and is gone after close."""
    looked = threading.Event()

    class Seen(Counters):
        def totals(self) -> dict[Metric, int]:
            looked.set()
            return super().totals()

    rates = Rates(Seen())
    rates.watch()
    rates.watch()
    assert looked.wait(30)
    rates.close()
    assert rates._thread is not None
    assert not rates._thread.is_alive()
