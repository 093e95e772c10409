"""Events as log lines."""

from __future__ import annotations

import io
import json
import logging
from collections.abc import Iterator
from typing import Any

import pytest

from oncekey.engine import events
from oncekey.engine.current import TRACE
from oncekey.engine.events import Event
from oncekey.telemetry.logs import JsonFormatter, Logs, fields_of, level_of
from tests.adapters.asgi_kit import Guarded, Shop, call, http


@pytest.fixture
def written() -> Iterator[io.StringIO]:
    """What is written by the logger for events, as JSON."""
    stream = io.StringIO()
    handler = logging.StreamHandler(stream)
    handler.setFormatter(JsonFormatter())
    logger = logging.getLogger("oncekey.events")
    logger.addHandler(handler)
    logger.setLevel(logging.DEBUG)
    yield stream
    logger.removeHandler(handler)
    logger.setLevel(logging.NOTSET)


def lines(stream: io.StringIO) -> list[dict[str, Any]]:
    """The lines, read back."""
    return [json.loads(line) for line in stream.getvalue().splitlines()]


async def test_an_operation_is_a_story_in_lines(written: io.StringIO) -> None:
    """Every line names the operation by its reference and the caller by a digest."""
    guarded = Guarded(Shop(), sinks=(Logs(),))
    for _ in range(2):
        await call(guarded, http(b"secret-key-4711"))
    told = lines(written)
    assert [line["event"] for line in told] == [events.CREATED, events.COMPLETED, events.REPLAYED]
    assert len({line["ref"] for line in told}) == 1
    assert (told[2]["scope"], told[2]["endpoint"]) == (told[0]["scope"], told[0]["endpoint"])
    assert (told[0]["endpoint"], told[0]["logger"], told[0]["level"]) == ("POST /pay", "oncekey.events", "info")
    assert told[1]["took_for"] > 0


async def test_no_key_and_no_credential_is_logged(written: io.StringIO) -> None:
    """Only digests are: a log is read by more people than may act for a client."""
    guarded = Guarded(Shop(), sinks=(Logs(),))
    await call(guarded, http(b"secret-key-4711"))
    await call(guarded, http(b"secret-key-4711", query_string=b"other=1"))
    assert lines(written)[-1]["event"] == events.KEY_MISUSE
    assert "4711" not in written.getvalue()
    assert "alice" not in written.getvalue()


def test_a_line_belongs_to_its_trace(written: io.StringIO) -> None:
    """Where the request is traced, its ids stand beside the fields."""

    class Here:
        here = bytes(range(25))

        def link(self, earlier: bytes) -> None: ...

    token = TRACE.set(Here())
    Logs()(Event(events.REPLAYED, "ok_1"))
    TRACE.reset(token)
    [line] = lines(written)
    assert (line["trace_id"], line["span_id"]) == (bytes(range(16)).hex(), bytes(range(16, 24)).hex())


def test_each_event_is_as_loud_as_it_is_urgent(written: io.StringIO) -> None:
    """What somebody must decide is an error, trouble a warning, the ordinary run of things is not."""
    assert level_of(events.DEAD_LETTER) == logging.ERROR
    assert level_of(events.STORE_ERROR) == logging.WARNING
    assert level_of(events.CREATED) == logging.INFO
    Logs(quiet=[events.CREATED])(Event(events.CREATED))
    Logs()(Event(events.BATCH, detail="claim", size=3))
    assert [(line["level"], line["size"]) for line in lines(written)] == [("debug", 3)]


def test_fields_that_say_nothing_are_left_out() -> None:
    """A line has what its event has."""
    assert fields_of(Event(events.PURGED, size=500)) == {"event": "purged", "size": 500}


def test_other_lines_keep_what_they_have(written: io.StringIO) -> None:
    """The formatter writes any record: its exception stays in the line, however many lines it has."""
    try:
        json.loads("")
    except ValueError:
        logging.getLogger("oncekey.events").exception("it %s", "failed")
    [line] = lines(written)
    assert line["message"] == "it failed"
    assert line["exception"].count("\n") > 1
