from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from oncekey.core.policy import Policy
from oncekey.core.record import State
from oncekey.errors import NotExecuted, OutcomeUnknown
from oncekey.http.capture import (
    NEVER_KEPT,
    all_legal,
    check_whole,
    kept_headers,
    legal,
    settlement,
    settlement_without_answer,
    shape,
    shaped_headers,
)
from oncekey.http.dialects import DIALECTS, dialect
from oncekey.http.grammar import Verdict

POLICY = Policy(keep_for=100, lease_for=10, retry_after_for=3, reconcile_after_for=4)


def test_order_duplicates_and_spelling_are_kept() -> None:
    """Repeated fields stay apart, and names stay as the application wrote them."""
    headers = [
        (b"Link", b"</a>"),
        (b"content-type", b"text/plain"),
        (b"link", b"</b>"),
        (b"X-Own", b"1"),
        (b"Link", b"</a>"),
    ]
    assert kept_headers(headers) == headers


@pytest.mark.parametrize("name", sorted(NEVER_KEPT | {b"proxy-authenticate", b"proxy-status", b"x-b3-traceid"}))
def test_what_belongs_to_one_message_is_never_kept(name: bytes) -> None:
    """Connections, logins, moments and requests are not replayed, however the name is spelt."""
    assert kept_headers([(name, b"v"), (b"etag", b"1"), (name.title(), b"v"), (name.upper(), b"v")]) == [
        (b"etag", b"1")
    ]


def test_headers_named_by_connection_are_not_kept() -> None:
    """Wherever the naming field stands."""
    headers = [(b"X-Hop", b"1"), (b"etag", b"1"), (b"Connection", b"close, X-Hop"), (b"x-hop", b"2")]
    assert kept_headers(headers) == [(b"etag", b"1")]


def test_more_names_can_be_dropped() -> None:
    """Usual ones too."""
    assert kept_headers([(b"ETag", b"1"), (b"X-Own", b"1"), (b"vary", b"*")], {b"etag", b"x-own"}) == [(b"vary", b"*")]


@given(st.lists(st.tuples(st.binary(max_size=20), st.binary(max_size=20)), max_size=6))
def test_headers_that_http_forbids_are_not_kept(headers: list) -> None:
    """What would split the head of a replay never reaches the store."""
    kept = kept_headers(headers)
    assert all(legal(*header) for header in kept)
    assert not any(set(b"\r\n\0") & set(value) or set(b"\r\n\0: ") & set(name) for name, value in kept)


@pytest.mark.parametrize(
    "header",
    [
        (b"ETag", b"1"),
        (b"x-own", b"1"),
        (b"etag", b"a\nb"),
        (b"set-cookie", b"a"),
        (b"Date", b"now"),
        (b"a b", b"1"),
        (b"", b""),
        (b"x-drop", b"1"),
        (b"connection", b"etag, x-own"),
        (b"X-B3-SpanId", b"1"),
    ],
)
def test_the_names_of_an_answer_say_what_is_kept_of_it(header: tuple[bytes, bytes]) -> None:
    """What is remembered of them changes nothing, and the application's own list stays as it is."""
    drop = frozenset({b"x-drop"})
    for headers in ([header], [(b"etag", b"2"), header, (b"x-own", b"3")], [(b"Content-Length", b"1"), header]):
        given = list(headers)
        known = shape(tuple(name for name, _ in headers), drop)
        assert shaped_headers(known, headers, drop) == kept_headers(given, drop)
        assert headers == given
        assert known.lengths == ((0,) if headers[0][0] == b"Content-Length" else ())


@pytest.mark.parametrize(("value", "length"), [(b"7", 7), (b"07", 7), (b" 7", 7), (b"0", 0), (b"00", 0)])
def test_a_content_length_may_be_spelt_in_many_ways(value: bytes, length: int) -> None:
    """Each content-length of an answer must be that of its body, however it is written."""
    for headers in ([(b"Content-Length", value)], [(b"content-length", b"%d" % length), (b"content-length", value)]):
        known = shape(tuple(name for name, _ in headers))
        check_whole(200, headers, known, length)
        check_whole(304, headers, known, length + 1)
        for wrong in (length + 1, 10 * length + 1):
            with pytest.raises(RuntimeError, match="content-length"):
                check_whole(200, headers, known, wrong)
    with pytest.raises(RuntimeError, match="ends no exchange"):
        check_whole(100, [], shape(()), 0)


@pytest.mark.parametrize("value", [b"a\rb", b"a\nb", b"a\0b", b"\n", b"a\r\nset-cookie: b"])
def test_a_value_that_would_end_the_header_is_illegal(value: bytes) -> None:
    """And so it is neither kept nor replayed, under a usual name or another."""
    for name in (b"etag", b"x-own"):
        assert not legal(name, value)
        assert kept_headers([(name, value)]) == []
    assert legal(b"x-own", b"caf\xc3\xa9 \t,;=")


@pytest.mark.parametrize(
    ("verdict", "name", "status", "target", "keep_for", "due_for"),
    [
        (Verdict.KEPT, "ietf", 201, State.COMPLETED, 100_000, None),
        (Verdict.KEPT, "stripe", 500, State.COMPLETED, 100_000, None),
        (Verdict.RELEASED, "paypal", 503, State.FAILED_RETRYABLE, 100_000, 3_000),
        (Verdict.FORGOTTEN, "stripe", 400, State.FAILED_RETRYABLE, 1, None),
        (Verdict.UNKNOWN, "ietf", 500, State.UNKNOWN, None, 4_000),
    ],
)
def test_every_verdict_has_its_times(
    verdict: Any, name: Any, status: Any, target: Any, keep_for: Any, due_for: Any
) -> None:
    """Unknown is never purged; forgotten frees the key at once; a failure waits before its retry."""
    ending = settlement(dialect(name), POLICY, status)
    assert (ending.verdict, ending.target, ending.keep_for, ending.due_for) == (verdict, target, keep_for, due_for)


def test_a_key_may_outlive_its_answer() -> None:
    """Then due_at is the end of the answer and expires_at that of the key."""
    ending = settlement(dialect("ietf"), Policy(keep_for=100, keep_key_for=500), 200)
    assert (ending.keep_for, ending.due_for) == (500_000, 100_000)


def test_nothing_is_unknown_while_the_latch_says_that_no_effect_has_left() -> None:
    """A 5xx or an exception before the effect is a failure that may be retried; an answer is still an answer."""
    for one in DIALECTS.values():
        for status in range(100, 600):
            before = settlement(one, POLICY, status, begun=False)
            after = settlement(one, POLICY, status)
            assert before.verdict is (Verdict.RELEASED if after.verdict is Verdict.UNKNOWN else after.verdict)
    assert settlement_without_answer(POLICY, ValueError("x"), begun=False).verdict is Verdict.RELEASED


@pytest.mark.parametrize(
    ("error", "verdict"),
    [
        (NotExecuted("down"), Verdict.RELEASED),
        (OutcomeUnknown("time-out"), Verdict.UNKNOWN),
        (ValueError("bug"), Verdict.UNKNOWN),
        (SystemExit(1), Verdict.UNKNOWN),
        (KeyboardInterrupt(), Verdict.UNKNOWN),
        (None, Verdict.UNKNOWN),
    ],
)
def test_an_exception_is_unknown_unless_it_declares_that_nothing_was_done(error: Any, verdict: Any) -> None:
    """Only the handler's own word frees a key."""
    ending = settlement_without_answer(POLICY, error)
    assert ending.verdict is verdict
    assert ending.note
    assert len(ending.note) <= 200


@pytest.mark.parametrize(
    "header", [(b"", b"x"), (b"a b", b"x"), (b"a", b"x\r\ny"), (b"a", b"\0"), (b"a\n", b""), (b"A-1", b"any thing")]
)
def test_all_headers_at_once_are_judged_like_each(header: tuple[bytes, bytes]) -> None:
    """One header that HTTP forbids is found wherever it stands."""
    good = (b"content-type", b"text/plain")
    for headers in ([header], [good, header], [header, good]):
        assert all_legal(headers) is legal(*header)
    assert all_legal([])
