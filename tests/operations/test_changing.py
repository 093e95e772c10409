from __future__ import annotations

import json
import logging

import pytest

from oncekey.core.outcome import Answer
from oncekey.core.record import Record, State
from oncekey.engine.sealing import Sealer
from oncekey.errors import ConfigurationError
from oncekey.operations import Desk, Signature, history, read_answer
from oncekey.stores.memory import MemoryStore
from tests.operations.filled import claim, complete, settle

ANN = Signature("ann", "seen at the bank")
DONE = Answer(200, (), b"ok")
SHOWN = json.dumps(
    {"kind": "answer", "status": 200, "headers": [["content-type", "text/plain"], ["set-cookie", "x"]], "size": 2}
    | {"body": "ok", "body_encoding": "utf-8"}
)
RING = Sealer.from_text("k1:" + "A" * 43 + "=")


def record(store: MemoryStore, id_: bytes) -> Record:
    """What stands there."""
    return store._records[id_]


@pytest.mark.parametrize("signature", [Signature("", "why"), Signature("ann", " \n"), Signature("ann", "x" * 501)])
def test_a_change_without_a_signature_is_refused(store: MemoryStore, signature: Signature) -> None:
    """Nobody changes a record namelessly, without a reason, or with one that cannot be kept whole."""
    made = settle(store, claim(store, "k"), State.UNKNOWN)
    seen = store.get(made.id)
    assert seen is not None
    with pytest.raises(ConfigurationError, match=r"by|reason"):
        Desk(store, Sealer()).complete(seen, DONE, signature)
    assert record(store, made.id) == seen.record


def test_what_is_finished_or_at_work_needs_force(store: MemoryStore) -> None:
    """An answer that a client may know, and work that may still have its effect, are overridden only on purpose."""
    for made in (complete(store, "done"), claim(store, "running")):
        seen = store.get(made.id)
        assert seen is not None
        for act in (Desk(store, Sealer()).retryable, Desk(store, Sealer()).ask_again):
            with pytest.raises(ConfigurationError, match=r"--force|only an unknown outcome"):
                act(seen, ANN)
        assert Desk(store, Sealer()).retryable(seen, ANN, force=True).written
        assert [line.source for line in history(record(store, made.id))] == [seen.record.state]


def test_an_owner_who_was_overridden_changes_nothing(store: MemoryStore) -> None:
    """The override takes the token: whoever held the lease is told that it is gone."""
    made = settle(store, claim(store, "k"), State.UNKNOWN)
    seen = store.get(made.id)
    assert seen is not None
    Desk(store, Sealer()).complete(seen, DONE, ANN)
    before = record(store, made.id)
    with pytest.raises(AssertionError):
        settle(store, made, State.COMPLETED)
    assert record(store, made.id) == before


def test_lines_are_added_to_the_trail_and_none_is_lost(store: MemoryStore) -> None:
    """Each change adds its line, from unfinished to finished and back."""
    made = settle(store, claim(store, "k"), State.UNKNOWN)
    desk = Desk(store, RING)
    for number in range(3):
        for act in (desk.retryable, desk.complete):
            seen = store.get(made.id)
            assert seen is not None
            name = Signature(f"p{number}", "why")
            if act == desk.complete:
                desk.complete(seen, DONE, name, force=True)
            else:
                desk.retryable(seen, name, force=True)
    lines = history(record(store, made.id), RING)
    assert [line.by for line in lines] == ["p0", "p0", "p1", "p1", "p2", "p2"]
    assert lines[0].source is State.UNKNOWN
    assert {line.target for line in lines} == {State.FAILED_RETRYABLE, State.COMPLETED}


def test_what_cannot_be_read_cannot_be_signed(store: MemoryStore) -> None:
    """Without the application's ring the trail could be lost: the change is refused, and the sentence names the key."""
    made = settle(store, claim(store, "k"), State.UNKNOWN)
    seen = store.get(made.id)
    assert seen is not None
    Desk(store, RING).ask_again(seen, ANN)
    again = store.get(made.id)
    assert again is not None
    assert history(again.record) == ()
    with pytest.raises(ConfigurationError, match=r"cannot be signed.*'k1'"):
        Desk(store, Sealer()).complete(again, DONE, ANN)


def test_every_change_is_in_the_log(store: MemoryStore, caplog: pytest.LogCaptureFixture) -> None:
    """The line outlives the record there; a rehearsal says nothing."""
    made = settle(store, claim(store, "k"), State.UNKNOWN)
    seen = store.get(made.id)
    assert seen is not None
    with caplog.at_level(logging.INFO, "oncekey.audit"):
        Desk(store, Sealer(), rehearse=True).complete(seen, DONE, ANN)
        Desk(store, Sealer()).complete(seen, DONE, ANN)
    [line] = caplog.messages
    assert line.endswith("unknown to completed by ann: seen at the bank")


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        (
            '{"status": 201, "json": {"a": 1}}',
            Answer(201, ((b"content-type", b"application/json"), (b"content-length", b"7")), b'{"a":1}'),
        ),
        ('{"status": 204}', Answer(204, ((b"content-length", b"0"),), b"")),
        (
            '{"status": 200, "headers": {"X-A": "b"}, "body": "\u00e9"}',
            Answer(200, ((b"X-A", b"b"), (b"content-length", b"2")), b"\xc3\xa9"),
        ),
        (
            '{"status": 200, "body": "/w==", "body_encoding": "base64"}',
            Answer(200, ((b"content-length", b"1"),), b"\xff"),
        ),
        (
            SHOWN,
            Answer(200, ((b"content-type", b"text/plain"), (b"content-length", b"2")), b"ok"),
        ),
    ],
)
def test_an_answer_is_read_from_json(text: str, wanted: Answer) -> None:
    """JSON, text or bytes; what `show --json --body` says is taken back; what is never kept is left out."""
    assert read_answer(text) == wanted


@pytest.mark.parametrize(
    "text",
    [
        "",
        "[]",
        "{}",
        '{"status": "201"}',
        '{"status": 99}',
        '{"status": 200, "json": 1, "body": "1"}',
        '{"status": 200, "body": 1}',
        '{"status": 200, "body": "?", "body_encoding": "base64"}',
        '{"status": 200, "headers": [["a"]]}',
        '{"status": 200, "headers": "a: b"}',
        '{"status": 200, "headers": [["a", "\u20ac"]]}',
        '{"status": 200, "headers": [["content-length", "9"]], "body": "x"}',
        '{"status": 200, "bdy": "x"}',
    ],
)
def test_a_bad_answer_is_a_sentence(text: str) -> None:
    """What cannot be replayed is refused before anything is written."""
    with pytest.raises(ConfigurationError, match=r"answer|header"):
        read_answer(text)
