"""SIGTERM and SIGINT ask for an end; a second one is not ours, and ends at once."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

NUMBERS = (signal.SIGTERM, signal.SIGINT)
_stops: list[Callable[[], None]] = []
_before: dict[int, Any] = {}


@contextmanager
def stopped_by_signals(stop: Callable[[], None]) -> Iterator[None]:
    """While inside, the first signal calls `stop`, and that of every other consumer of the main thread.

    Other threads cannot hear signals: what runs there is stopped by hand.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    if not _stops:
        _before.update({number: signal.signal(number, _heard) for number in NUMBERS})
    _stops.append(stop)
    try:
        yield
    finally:
        _stops.remove(stop)
        if not _stops:
            _give_back()


def _heard(number: int, frame: Any) -> None:
    _give_back()
    for stop in _stops:
        stop()


def _give_back() -> None:
    while _before:
        number, handler = _before.popitem()
        signal.signal(number, signal.SIG_DFL if handler is None else handler)
