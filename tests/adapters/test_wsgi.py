from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from typing import Any
from wsgiref.validate import validator

import pytest

from oncekey import SHARED, ConfigurationError, Policy
from oncekey.adapters.wsgi import OnceKeyWSGI
from oncekey.core.record import State
from tests.adapters.wsgi_kit import Closing, Guarded, Server, Shop, call, post


def test_a_retry_gets_the_first_answer_byte_for_byte() -> None:
    """One effect, the same status, headers and bytes, and the marker on the replay alone."""
    shop = Shop()
    app = Guarded(shop)
    first, again = call(app), call(app)
    assert (first.status, first.body) == (again.status, again.body) == (201, b'{"n":1}')
    assert len(shop.effects) == 1
    assert [again["idempotency-replayed"], first["idempotency-replayed"]] == ["true", None]


def test_what_goes_in_and_out_keeps_to_the_rules_of_wsgi() -> None:
    """The validator of wsgiref finds nothing wrong on either side: first answer, replay, refusal, not ours."""

    def app(environ: dict[str, Any], start_response: Any) -> list[bytes]:
        # The validator wants a length in every read.
        body = environ["wsgi.input"].read(100) if environ["REQUEST_METHOD"] == "POST" else b""
        start_response("200 OK", [("Content-Type", "text/plain")])
        return [body]

    guarded = validator(Guarded(validator(app)))
    whole: dict[str, Any] = {"wsgi.file_wrapper": None}
    answers = [call(guarded, _plain(post(key, **whole))) for key in ("a", "a", "", None)]
    assert [answer.status for answer in answers] == [200, 200, 400, 400]
    assert call(guarded, _plain(post("a", b"", REQUEST_METHOD="GET"))).status == 200


def _plain(environ: dict[str, Any]) -> dict[str, Any]:
    environ.pop("wsgi.file_wrapper")
    return environ


@pytest.mark.parametrize(
    "changes",
    [{"REQUEST_METHOD": "GET"}, {"REQUEST_METHOD": "HEAD"}, {"REQUEST_METHOD": "OPTIONS"}, {"PATH_INFO": "/x"}],
)
def test_what_is_not_ours_passes_untouched(changes: dict[str, Any]) -> None:
    """Other methods and paths reach the application with the same environ, and its iterable goes back as it is."""
    shop, server, environ = Shop(body=Closing([b"x"])), Server(), post(**changes)
    guarded = Guarded(shop, paths=["/pay"])
    server.serve(guarded, environ)
    assert shop.environs[0] is environ
    assert server.iterable is shop.body
    assert (guarded.records, shop.body.closed) == ([], 1)


def test_without_a_key_where_none_is_required_it_passes_untouched() -> None:
    """Neither environ nor body nor iterable is touched: a generator runs when the server asks, not before."""
    began = []

    def app(environ: dict[str, Any], start_response: Any) -> Iterator[bytes]:
        began.append(environ)
        start_response("200 OK", [])
        yield b"x"

    environ, server = post(None), Server()
    before = dict(environ)
    chunks = Guarded(app, required=False)(environ, server.start_response)
    assert began == []
    assert list(chunks) == [b"x"]
    assert began[0] is environ
    assert environ == before


def test_a_missing_key_is_refused_before_anything_runs() -> None:
    """400 as a problem that says where the key goes."""
    shop = Shop()
    refused = call(Guarded(shop), post(None))
    problem = json.loads(refused.body)
    assert (refused.status, problem["type"].rsplit("/", 1)[1]) == (400, "key-missing")
    assert "Idempotency-Key" in problem["detail"]
    assert shop.effects == []


@pytest.mark.parametrize(
    ("value", "rule"),
    [
        ("a,b", "repeated"),
        ("a, b", "repeated"),
        ('"a","b"', "repeated"),
        ("", "empty"),
        ("k\xe9y", "non-ascii"),
        ("k\u20acy", "non-ascii"),
        ('"a', "quoting"),
        ("a b", "space"),
        ("k" * 256, "too-long"),
    ],
)
def test_a_bad_key_is_refused_with_its_rule(value: str, rule: str) -> None:
    """Two header lines joined by the server, in gunicorn's and in waitress's way, are two keys; the rest as on ASGI."""
    shop = Shop()
    refused = call(Guarded(shop), post(value))
    assert (refused.status, json.loads(refused.body)["rule"], shop.effects) == (400, rule, [])


def test_bare_and_quoted_are_one_key() -> None:
    """A retry through another client library is a retry."""
    shop = Shop()
    app = Guarded(shop)
    assert [call(app, post(key)).body for key in ("k1", '"k1"')] == [b'{"n":1}'] * 2


def test_another_caller_with_the_same_key_is_another_operation() -> None:
    """Scope: what one caller stored is invisible to another, and nobody in particular is refused."""
    shop = Shop()
    app = Guarded(shop)
    bodies = {call(app, post(HTTP_AUTHORIZATION=who)).body for who in ("Bearer alice", "Bearer bob")}
    assert len(bodies) == len(shop.effects) == 2
    assert call(app, post(HTTP_AUTHORIZATION="")).status == 401


def test_another_body_or_query_under_the_same_key_is_refused() -> None:
    """422, and nothing of the stored answer is shown."""
    shop = Shop()
    app = Guarded(shop)
    call(app)
    refused = [call(app, post(body=b'{"a":2}')), call(app, post(QUERY_STRING="x=1"))]
    assert [answer.status for answer in refused] == [422, 422]
    assert not any(b'"n"' in answer.body for answer in refused)
    assert len(shop.effects) == 1


def test_paths_that_differ_in_bytes_that_are_no_text_stay_apart() -> None:
    """PATH_INFO is bytes in Latin-1: neither decoding error nor merging; the mount point belongs to the path."""
    shop = Shop()
    app = Guarded(shop)
    places = [("", "/\xff"), ("", "/\xfe"), ("", "/\xc3\xa9"), ("/\xc3\xa9", ""), ("/v1", "/pay"), ("", "/v1/pay")]
    for mount, path in places:
        assert call(app, post(SCRIPT_NAME=mount, PATH_INFO=path)).status == 201
    assert len(shop.effects) == 4


def test_a_duplicate_in_flight_is_told_so_with_the_true_time_left() -> None:
    """409 with Retry-After in whole seconds, while the first still runs in its thread."""
    entered, gate = threading.Event(), threading.Event()

    def slow(environ: dict[str, Any], start_response: Any) -> list[bytes]:
        entered.set()
        gate.wait(5)
        start_response("201 Created", [])
        return [b"ok"]

    app, answers = Guarded(slow, policy=Policy(lease_for=8)), []
    first = threading.Thread(target=lambda: answers.append(call(app)))
    first.start()
    entered.wait(5)
    busy = call(app)
    gate.set()
    first.join()
    assert busy.status == 409
    assert 1 <= int(busy["retry-after"] or 0) <= 12
    assert answers[0].status == 201


@pytest.mark.parametrize(
    ("status", "state"),
    [
        ("200 OK", State.COMPLETED),
        ("302 Found", State.COMPLETED),
        ("404 Not Found", State.COMPLETED),
        ("429 Too Many Requests", State.FAILED_RETRYABLE),
        ("500 Internal Server Error", State.UNKNOWN),
    ],
)
def test_the_outcome_table_of_the_ietf_dialect(status: str, state: State) -> None:
    """Success and client errors are kept, 429 is released, server errors are unknown; the client sees the answer."""
    guarded = Guarded(Shop(status))
    assert call(guarded).status == int(status[:3])
    assert guarded.state is state


def test_the_outcome_is_stored_before_the_client_sees_anything() -> None:
    """When the server gets the status line the record is completed already, and the application is closed."""
    shop, states = Shop(body=Closing([b"a", b"b"])), []
    guarded = Guarded(shop)

    def start_response(status: str, headers: Any, exc_info: Any = None) -> Any:
        states.append((guarded.state, shop.body.closed))

    assert list(guarded(post(), start_response)) == [b"ab"]
    assert states == [(State.COMPLETED, 1)]


@pytest.mark.parametrize("size", [9, 10, 11, 40])
@pytest.mark.parametrize("pieces", [1, 4])
def test_an_answer_over_the_cap_leaves_a_tombstone(size: int, pieces: int) -> None:
    """The client gets it, the retry is told that it was not kept, and nothing runs again."""
    body = bytes(range(size))
    step = -(-size // pieces)
    shop = Shop(body=Closing([body[at : at + step] for at in range(0, size, step)]))
    guarded = Guarded(shop, policy=Policy(max_kept=10))
    assert call(guarded).body == body
    assert shop.body.closed == 1
    assert (call(guarded).status, len(shop.effects)) == ((201, 1) if size <= 10 else (410, 1))


def test_a_stream_flows_as_the_server_asks() -> None:
    """Settled as not kept at its first event; the rest is made when asked for, and closed by the server."""
    shop = Shop("200 OK", ("content-type", "text/event-stream"), body=Closing(iter([b"1", b"2", b"3"])))
    shop.headers = (("Content-Type", "text/event-stream; charset=utf-8"),)
    guarded, server = Guarded(shop), Server()
    chunks = iter(guarded(post(), server.start_response))
    assert (guarded.state, shop.body.asked, len(server.starts)) == (State.COMPLETED, 1, 1)
    assert [next(chunks), next(chunks)] == [b"1", b"2"]
    assert (shop.body.asked, shop.body.closed) == (2, 0)
    for _ in range(2):
        chunks.close()  # type: ignore[attr-defined]
    assert shop.body.closed == 1
    assert call(guarded).status == 410


def test_a_stream_that_fails_stays_settled() -> None:
    """The client sees the break; the retry is told that it was done and not kept."""

    def chunks() -> Iterator[bytes]:
        yield b"x" * 20
        raise RuntimeError("boom")

    shop = Shop(body=Closing(chunks()))
    guarded = Guarded(shop, policy=Policy(max_kept=10))
    with pytest.raises(RuntimeError, match="boom"):
        call(guarded)
    assert (call(guarded).status, shop.body.closed) == (410, 1)


def test_ways_around_us_are_not_offered() -> None:
    """The application gets an environ of its own, without file wrapper, socket and early hints; the server's stays."""
    shop = Shop()
    ways: dict[str, Any] = {"gunicorn.socket": 1, "wsgi.early_hints": 1, "waitress.client_disconnected": 1}
    environ = post(**ways)
    call(Guarded(shop), environ)
    assert not shop.environs[0].keys() & {*ways, "wsgi.file_wrapper"}
    assert environ.keys() >= {*ways, "wsgi.file_wrapper"}


def test_headers_of_one_session_never_reach_a_replay() -> None:
    """Set-Cookie and its kind go to the first client only; repeated headers keep their order and number."""
    headers = [("Set-Cookie", "s=1"), ("X-Part", "1"), ("X-Part", "2"), ("Date", "now")]
    guarded = Guarded(Shop("201 Created", *headers))
    first, again = call(guarded), call(guarded)
    assert first["set-cookie"] == "s=1"
    assert [again["set-cookie"], again["date"]] == [None, None]
    assert again.all("x-part") == ["1", "2"]


def test_a_request_older_than_answers_are_kept_is_not_run_as_new() -> None:
    """It may have been run and forgotten: refused where the client says when it first sent it."""
    shop = Shop()
    long_ago = post(HTTP_IDEMPOTENCY_FIRST_SENT="Sun, 06 Nov 1994 08:49:37 GMT")
    assert call(Guarded(shop), long_ago).status == 412
    assert shop.effects == []


def test_a_second_installation_steps_aside() -> None:
    """Twice around the same application: the outer one guards, one record is made."""
    shop = Shop()
    inner = Guarded(shop)
    guarded = Guarded(inner)
    assert [call(guarded).status for _ in range(2)] == [201, 201]
    assert (len(shop.effects), inner.records) == (1, [])


def test_a_request_that_the_application_makes_of_ours_is_guarded_again() -> None:
    """The mark is on the application's environ, not on the server's: an outer retry of the same environ is a replay."""
    shop, environ = Shop(), post()
    guarded = Guarded(shop)
    call(guarded, environ)
    environ["wsgi.input"].seek(0)
    assert call(guarded, environ)["idempotency-replayed"] == "true"
    assert len(shop.effects) == 1


def test_a_missing_scope_is_refused_with_what_to_write() -> None:
    """Whose keys they are must be said; SHARED says: everybody's."""
    with pytest.raises(ConfigurationError, match=r"scope=by_header\('Authorization'\)"):
        OnceKeyWSGI(Shop(), "memory://")
    OnceKeyWSGI(Shop(), "memory://", scope=SHARED)
