from __future__ import annotations

import gc
import os
import signal

import pytest

from oncekey.core.commands import Claim
from oncekey.core.fingerprint import Parts
from oncekey.core.outcome import pack
from oncekey.core.record import Label
from oncekey.http import dialects
from oncekey.http.messages import Request
from oncekey.http.recall import AROUND, LARGEST, Recall

JSON = b"application/json"
PARTS = Parts("POST", "/pay", b"", JSON, b"{}")
CLAIM = Claim(b"id", b"token", b"", 30_000, label=Label("", "POST /pay", "k"))
PAID = pack(201, [(b"content-type", JSON)], b"paid")


class Hand:
    """A clock that stands until it is moved."""

    at = 0.0

    def __call__(self) -> float:
        return self.at


def recall(room: int = 1 << 20) -> tuple[Recall, Hand]:
    made, clock = Recall(dialects.dialect("ietf"), 10.0, room), Hand()
    made.now = clock
    return made, clock


def request(**other: object) -> Request:
    asked = {"method": "POST", "path": "/pay", "query": b"", "headers": [(b"content-type", JSON)], "body": b"{}"}
    return Request(**(asked | other))  # type: ignore[arg-type]


def test_the_same_request_gets_the_answer_of_the_record() -> None:
    """With its marker, and the record that it is of."""
    made, _ = recall()
    made.keep("alice", CLAIM, PARTS, PAID, 0.0)
    reply = made.find("alice", "k", request())
    assert reply is not None
    assert (reply.status, reply.body, reply.replays) == (201, b"paid", b"id")
    assert (b"idempotency-replayed", b"true") in reply.headers


@pytest.mark.parametrize(
    "other",
    [
        {"method": "PATCH"},
        {"path": "/pay/"},
        {"query": b"x=1"},
        {"headers": []},
        {"body": b"{ }"},
    ],
)
def test_whatever_differs_is_for_the_store(other: dict[str, object]) -> None:
    """Another spelling may be the same request, another request, or one of another fingerprint: not decided here."""
    made, _ = recall()
    made.keep("alice", CLAIM, PARTS, PAID, 0.0)
    assert made.find("alice", "k", request(**other)) is None


def test_nobody_gets_the_answer_of_another_caller_or_key() -> None:
    """The caller and the key name the answer, each by itself."""
    made, _ = recall()
    made.keep("alice", CLAIM, PARTS, PAID, 0.0)
    assert made.find("bob", "k", request()) is None
    assert made.find("alice", "j", request()) is None


def test_an_answer_ends_with_its_time() -> None:
    """A moment before it is there, at its end it is not."""
    made, clock = recall()
    made.keep("alice", CLAIM, PARTS, PAID, 0.0)
    clock.at = 9.99
    assert made.find("alice", "k", request()) is not None
    clock.at = 10.0
    assert made.find("alice", "k", request()) is None


def test_the_oldest_make_room() -> None:
    """What is kept never takes more than its room, however often a key comes again."""
    made, _ = recall(room=4 * AROUND)
    for number in range(5):
        for _ in range(3):
            made.keep("alice", CLAIM._replace(label=Label("", "", f"k{number}")), PARTS, PAID, 0.0)
    there = [made.find("alice", f"k{number}", request()) is not None for number in range(5)]
    assert there == [False, False, True, True, True]


def test_large_answers_are_left_to_the_store() -> None:
    """A few of them would drive out all others."""
    made, _ = recall()
    made.keep("alice", CLAIM, PARTS, pack(201, [], b"x" * LARGEST), 0.0)
    assert made.find("alice", "k", request()) is None


@pytest.mark.parametrize("where", ["headers", "path", "query"])
def test_what_is_large_beside_the_bodies_counts(where: str) -> None:
    """Long headers, paths and queries take memory as well as bodies do."""
    made, _ = recall(room=100_000)
    long = "x" * 40_000
    parts = PARTS._replace(path="/" + long) if where == "path" else PARTS
    parts = PARTS._replace(query=long.encode()) if where == "query" else parts
    paid = pack(201, [(b"link", long.encode())], b"paid") if where == "headers" else PAID
    asked = request(path=parts.path, query=parts.query)
    for number in range(5):
        made.keep("alice", CLAIM._replace(label=Label("", "", f"k{number}")), parts, paid, 0.0)
    there = [made.find("alice", f"k{number}", asked) is not None for number in range(5)]
    assert there == [False, False, False, True, True]


def test_a_later_answer_takes_the_place_of_the_one_before_it() -> None:
    """After its key has expired an operation may run anew; nobody gets the former answer then."""
    made, _ = recall()
    for number in (1, 2):
        made.keep("alice", CLAIM._replace(id=b"%d" % number), PARTS, pack(201, [], b"%d" % number), 0.0)
        replies = [made.find("alice", "k", request()) for _ in range(2)]
        assert [(reply.body, reply.replays) for reply in replies if reply is not None] == [(b"%d" % number,) * 2] * 2


def test_the_collector_has_nothing_to_look_at() -> None:
    """Answers that lie here are no garbage and lead to none: they are not to be looked at again and again."""
    made, _ = recall()
    for number in range(9):
        made.keep("alice", CLAIM._replace(label=Label("", "", f"k{number}")), PARTS, PAID, 0.0)
    gc.collect()
    assert not any(gc.is_tracked(each) for item in made._kept.items() for each in item)


def test_a_child_does_not_wait_for_a_thread_of_its_parent() -> None:
    """A process may be forked while another of its threads keeps an answer."""
    made, _ = recall()
    with made._changing:
        child = os.fork()
        if child == 0:
            signal.alarm(20)
            made.keep("alice", CLAIM, PARTS, PAID, 0.0)
            os._exit(0 if made.find("alice", "k", request()) is not None else 1)
        _, status = os.waitpid(child, 0)
    assert status == 0
