"""One behaviour for all transports, on real sockets that misbehave."""

from __future__ import annotations

import json
import socket
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from oncekey.client import GaveUp, Journal, NothingSent, OutcomeUnknown, Retries, carriage
from oncekey.errors import NotExecuted
from tests.client.callers import CALLERS, FOREIGN, Got
from tests.client.scripted import CREATED, CUT_IN_BODY, CUT_IN_HEADERS, DROP, HANG, Scripted, reply

QUICK = Retries(attempts=5, wait_for=0.001, longest_wait_for=0.002, budget=None)
JSON = {"Content-Type": "application/json"}
BODY = b'{"amount":10}'
Serve = Callable[..., Scripted]


@pytest.fixture
def serve() -> Iterator[Serve]:
    made: list[Scripted] = []

    def start(*script: bytes) -> Scripted:
        made.append(Scripted(script))
        return made[-1]

    yield start
    for server in made:
        server.close()


@pytest.fixture(params=CALLERS)
def name(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def call(name: str) -> Callable[..., Got]:
    def made(server: Scripted, method: str = "POST", path: str = "/pay", **choices: Any) -> Got:
        headers = JSON | choices.pop("headers", {})
        body = choices.pop("body", BODY)
        return CALLERS[name](method, server.url + path, body, headers, **{"retries": QUICK} | choices)

    return made


@pytest.mark.parametrize("trouble", [DROP, CUT_IN_HEADERS, CUT_IN_BODY, reply(503), reply(409, Retry_After="0")])
def test_one_key_for_all_attempts(call: Callable[..., Got], serve: Serve, trouble: bytes) -> None:
    """Whatever is lost, cut or refused for now, the next attempt is the same request with the same key."""
    server = serve(trouble, trouble, CREATED)
    assert call(server) == Got(201, b'{"id":"a"}')
    assert len(server.seen) == 3
    assert len(set(server.keys)) == 1
    assert server.keys[0]
    assert {seen.body for seen in server.seen} == {BODY}


@pytest.mark.parametrize("status", [201, 400, 404, 422])
def test_definite_answers_are_returned_at_once(call: Callable[..., Got], serve: Serve, status: int) -> None:
    """No retry changes what is definite."""
    server = serve(reply(status, "{}"))
    assert call(server).status == status
    assert len(server.seen) == 1


def test_each_request_has_a_key_of_its_own(call: Callable[..., Got], serve: Serve) -> None:
    """Two requests are two operations."""
    server = serve(CREATED)
    call(server)
    call(server)
    assert len(set(server.keys)) == 2


def test_a_given_key_is_kept(call: Callable[..., Got], serve: Serve) -> None:
    """Whoever sets a key knows why."""
    server = serve(DROP, CREATED)
    call(server, headers={"Idempotency-Key": "order-17"})
    assert server.keys == ["order-17", "order-17"]


def test_safe_methods_are_left_alone(call: Callable[..., Got], serve: Serve) -> None:
    """A GET gets no key and no retry of ours."""
    server = serve(reply(503))
    assert call(server, "GET", body=b"").status == 503
    assert server.keys == [None]


def test_a_redirect_within_the_origin_keeps_the_key(call: Callable[..., Got], serve: Serve) -> None:
    """It is the same operation, at another path."""
    server = serve(reply(307, Location="/there"), CREATED)
    assert call(server).status == 201
    assert [seen.path for seen in server.seen] == ["/pay", "/there"]
    assert len(set(server.keys)) == 1


@pytest.mark.parametrize("headers", [{}, {"Idempotency-Key": "order-17"}])
def test_a_redirect_to_another_origin_drops_the_key(
    call: Callable[..., Got], serve: Serve, headers: dict[str, str]
) -> None:
    """The key is not for strangers."""
    stranger = serve(CREATED)
    server = serve(reply(307, Location=stranger.url + "/there"))
    assert call(server, headers=headers).status == 201
    assert stranger.keys == [None]


def test_a_server_that_never_answers_is_given_up(call: Callable[..., Got], serve: Serve) -> None:
    """The deadline holds within an attempt as well, also where the library itself would wait for ever."""
    server = serve(HANG)
    with pytest.raises(OutcomeUnknown) as caught:
        call(server, retries=Retries(try_for=0.2, budget=None))
    assert caught.value.reason == "time"


def test_nothing_sent_is_known(call: Callable[..., Got], serve: Serve, name: str) -> None:
    """Without a connection nothing has happened, and a handler that is guarded may say so."""
    server = serve(CREATED)
    with socket.create_server(("127.0.0.1", 0)) as free:
        server.url = f"http://127.0.0.1:{free.getsockname()[1]}"
    with pytest.raises(NothingSent, match="it has not happened") as caught:
        call(server)
    assert isinstance(caught.value, NotExecuted)
    assert isinstance(caught.value, FOREIGN[name])
    assert caught.value.attempts == 5


def test_nothing_sent_is_not_claimed_for_a_key_of_somebody_else(call: Callable[..., Got], serve: Serve) -> None:
    """An earlier program may have sent the same key."""
    server = serve(CREATED)
    with socket.create_server(("127.0.0.1", 0)) as free:
        server.url = f"http://127.0.0.1:{free.getsockname()[1]}"
    with pytest.raises(GaveUp) as caught:
        call(server, headers={"Idempotency-Key": "order-17"})
    assert not isinstance(caught.value, NothingSent | OutcomeUnknown)


def test_an_unknown_outcome_is_raised_with_its_key(call: Callable[..., Got], serve: Serve, name: str) -> None:
    """The error has what is needed to ask again later."""
    problem = json.dumps({"type": "x/outcome-unknown", "retry": "same-key-later", "operation": "ok_12"})
    server = serve(reply(409, problem, Content_Type="application/problem+json"))
    with pytest.raises(OutcomeUnknown, match="it may have happened") as caught:
        call(server)
    assert caught.value.key == server.keys[0]
    assert (caught.value.operation, caught.value.attempts) == ("ok_12", 5)
    assert isinstance(caught.value, FOREIGN[name])
    assert caught.value.response is not None


@pytest.mark.parametrize(
    ("dialect", "where", "given"), [("square", "idempotency_key", ""), ("square", "idempotency_key", "mine")]
)
def test_the_key_in_the_body(call: Callable[..., Got], serve: Serve, dialect: str, where: str, given: str) -> None:
    """Where the dialect wants a member of the body, all attempts have it, and a given one is kept."""
    server = serve(DROP, CREATED)
    body = json.dumps({"amount": 1} | ({where: given} if given else {})).encode()
    call(server, body=body, carriage=carriage(dialect))
    sent = {seen.body for seen in server.seen}
    assert len(sent) == 1
    found = json.loads(sent.pop())
    assert found["amount"] == 1
    assert found[where] == given or (not given and len(found[where]) == 36)


def test_the_key_quoted(call: Callable[..., Got], serve: Serve) -> None:
    """The draft's own spelling."""
    server = serve(CREATED)
    call(server, carriage=carriage("ietf", quoted=True))
    assert str(server.keys[0])[0] == str(server.keys[0])[-1] == '"'


def test_an_intent_gives_its_key(call: Callable[..., Got], serve: Serve, tmp_path: Path) -> None:
    """A second program that has the same intent sends the same key; a third gets the answer."""
    path = tmp_path / "intents.db"
    server = serve(DROP, DROP, CREATED)
    once = Retries(attempts=2, wait_for=0.001, budget=None)
    for attempt in range(2):
        journal = Journal(path)
        try:
            with journal.intent("checkout", "order-17"):
                call(server, journal=journal, retries=once)
        except OutcomeUnknown:
            assert attempt == 0
            assert [entry.attempts for entry in journal.pending()] == [1]
        journal.close()
    assert len(server.seen) == 3
    assert len(set(server.keys)) == 1
    assert Journal(path).pending() == []
