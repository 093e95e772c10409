"""How often things happen: totals of somebody's counters, looked at every few seconds and kept for some minutes.

The store knows what stands, not what has happened, so rates need counters: telemetry's, of one process or of several,
or a page of metrics somewhere else. The past is a ring of samples; where the counters have a folder it lies there as a
file, so that all workers show the same past, also one that was only just started.
"""

from __future__ import annotations

import base64
import contextlib
import http.client
import logging
import os
import re
import struct
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import NamedTuple, Protocol
from urllib.parse import unquote, urlsplit

from oncekey.engine import events
from oncekey.errors import ConfigurationError, OnceKeyError
from oncekey.operations import masked, scrubbed
from oncekey.telemetry.metrics import BY_EVENT, Metric
from oncekey.telemetry.prometheus import named

log = logging.getLogger("oncekey")


class Figure(NamedTuple):
    """One thing that is counted, and how the console calls it."""

    name: str
    title: str
    about: str
    event: str

    @property
    def metric(self) -> str:
        """Its name on a page of metrics."""
        return named(BY_EVENT[self.event].name)


FIGURES = (
    Figure("created", "Created", "keys seen for the first time, whose work was run", events.CREATED),
    Figure("replayed", "Replayed", "requests that got the stored answer", events.REPLAYED),
    Figure("in_flight", "In flight", "duplicates refused while the first run lasts", events.IN_PROGRESS),
    Figure("misuse", "Misuse", "requests refused: their key was used for another", events.KEY_MISUSE),
    Figure("unknown", "Unknown", "requests refused because nobody knows the outcome", events.UNKNOWN),
)
# What became of the unknown ones, and the store's troubles: totals beside the charts.
MORE = (
    Figure("turned", "Turned unknown", "attempts of which nobody knows how they ended", events.TURNED_UNKNOWN),
    Figure("found", "Found out", "unknown outcomes that were settled", events.RESOLVED),
    Figure("given_up", "Given up", "unknown outcomes that became dead letters", events.DEAD_LETTER),
    Figure("store", "Store errors", "calls that the store did not answer", events.STORE_ERROR),
)
ALL = (*FIGURES, *MORE)

# A sample each five seconds, for a quarter of an hour.
EACH, KEPT = 5, 181
_SLOT = struct.Struct(f"<{1 + len(ALL)}Q")
PATIENCE = 3.0
LARGEST = 8 << 20
# name, labels, value; a time may stand behind it.
_LINE = re.compile(r"^([a-zA-Z_:][\w:]*)(?:\{.*\})?\s+(\S+)", re.MULTILINE)


class Totals(Protocol):
    """What knows how often each thing has happened since it began to count, such as telemetry's Counters."""

    def totals(self) -> Mapping[Metric, int]: ...


# Whatever the console takes: counters, the address of a page of metrics, or nothing.
Source = Totals | str | None


def reader(source: Source) -> Callable[[], tuple[int, ...]] | None:
    """A function that reads the totals of ALL, in order; None: there is nobody to ask."""
    if source is None:
        return None
    if isinstance(source, str):
        if not re.match(r"https?://[^/\s]+", source):
            raise ConfigurationError(
                f"{source!r} is no address of metrics: write it like http://127.0.0.1:8000/metrics"
            )
        return lambda: _figures(_scraped(source))
    if not callable(getattr(source, "totals", None)):
        raise ConfigurationError(
            f"counts={source!r} counts nothing: give telemetry's Counters, or the address of a page of metrics"
        )
    return lambda: _figures({named(metric.name): count for metric, count in source.totals().items()})


def _figures(counts: Mapping[str, int]) -> tuple[int, ...]:
    return tuple(max(0, counts.get(figure.metric, 0)) for figure in ALL)


def _scraped(url: str) -> dict[str, int]:
    login, _, _ = urlsplit(url).netloc.rpartition("@")
    # reader() takes http and https only; a name and a password in an address are sent as the header that they mean.
    request = urllib.request.Request(url.replace(f"{login}@", "", 1) if login else url)  # noqa: S310
    if login:
        request.add_header("authorization", f"Basic {base64.b64encode(unquote(login).encode()).decode()}")
    try:
        with urllib.request.urlopen(request, timeout=PATIENCE) as answer:  # noqa: S310
            text = answer.read(LARGEST).decode("utf-8", "replace")
    except (OSError, ValueError, http.client.HTTPException, urllib.error.URLError) as error:
        raise OnceKeyError(scrubbed(f"the metrics at {masked(url)} cannot be read: {error}", url)) from error
    return parsed(text)


def parsed(text: str) -> dict[str, int]:
    """Counters on a page of metrics, those with labels added up. `_total` at the end is how newer pages write them."""
    found: dict[str, int] = {}
    for written, value in _LINE.findall(text):
        name = written.removesuffix("_total")
        with contextlib.suppress(ValueError, OverflowError):
            found[name] = found.get(name, 0) + int(float(value))
    return found


class Sample(NamedTuple):
    """The totals of ALL at the end of one period of EACH seconds."""

    at: int
    totals: tuple[int, ...]


class Past:
    """A ring of samples, in a file that workers share or in memory. Two that write at once write the same."""

    def __init__(self, path: Path | None) -> None:
        self._path = path
        self._memory = bytearray(_SLOT.size * KEPT)
        self._lock = threading.Lock()

    def keep(self, sample: Sample) -> None:
        """Put a sample in its slot."""
        data = _SLOT.pack(sample.at, *sample.totals)
        place = sample.at % KEPT * _SLOT.size
        if self._path is None:
            with self._lock:
                self._memory[place : place + _SLOT.size] = data
            return
        file = os.open(self._path, os.O_WRONLY | os.O_CREAT, 0o600)
        try:
            os.pwrite(file, data, place)
        finally:
            os.close(file)

    def until(self, at: int) -> list[Sample]:
        """The samples of the quarter of an hour up to a period, the oldest first."""
        data = bytes(self._memory)
        if self._path is not None:
            try:
                data = self._path.read_bytes()
            except OSError:
                data = b""
        whole = len(data) // _SLOT.size * _SLOT.size
        samples = [Sample(found[0], found[1:]) for found in _SLOT.iter_unpack(data[:whole])]
        return sorted(sample for sample in samples if at - KEPT < sample.at <= at and sample.at)


class Rates:
    """The totals now and then. `watch` begins to look, in a thread of its own."""

    def __init__(self, source: Source, clock: Callable[[], float] = time.time) -> None:
        self._read = reader(source)
        # A page elsewhere is asked by the thread alone: whoever looks at the console must not wait for it.
        self._elsewhere = isinstance(source, str)
        folder = getattr(source, "folder", None)
        self.past = Past(folder / "console.rates" if isinstance(folder, Path) else None)
        self._clock = clock
        self.trouble = ""
        self._stop = threading.Event()
        self._thread: threading.Thread | None = None

    @property
    def counted(self) -> bool:
        """Whether there is anybody to ask."""
        return self._read is not None

    def look(self) -> None:
        """Take one sample. A source that does not answer leaves a gap, and its trouble is shown."""
        if self._read is None:
            return
        try:
            self._keep(Sample(int(self._clock() // EACH), self._read()))
        except Exception as error:  # noqa: BLE001 - whatever a source fails with, the page must come all the same
            self.trouble = str(error) or type(error).__name__
        else:
            self.trouble = ""

    def _keep(self, sample: Sample) -> None:
        if not self.past.until(sample.at):
            # What is counted from the first look on needs something to be compared with.
            self.past.keep(sample._replace(at=sample.at - 1))
        self.past.keep(sample)

    def samples(self) -> list[Sample]:
        """What is known of the last quarter of an hour; up to this moment, where that can be had at once."""
        if not self._elsewhere or self._thread is None:
            self.look()
        return self.past.until(int(self._clock() // EACH))

    def watch(self) -> None:
        """Begin, if it has not begun."""
        if self._read is None or self._thread is not None:
            return
        self._thread = threading.Thread(target=self._run, name="oncekey-console-rates", daemon=True)
        self._thread.start()

    def _run(self) -> None:
        self.look()
        while not self._stop.wait(EACH - self._clock() % EACH):
            self.look()

    def close(self) -> None:
        """Look no more."""
        self._stop.set()
        if self._thread is not None:
            self._thread.join()
