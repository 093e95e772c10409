from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from oncekey.core.decision import Decision, Execute, InProgress, Mismatch, Refused, Replay, Unknown
from oncekey.core.keys import key_ref
from oncekey.core.outcome import Answer, Tombstone, Value, pack, tombstone
from oncekey.core.record import Guarantee, Record, State
from oncekey.errors import (
    BadKey,
    BodyIncomplete,
    BodyTooLarge,
    LeaseLost,
    NotExecuted,
    OnceKeyError,
    OutcomeUnknown,
    RecordForged,
    RecordUnreadable,
    RequestRefused,
    SchemaMissing,
    StoreError,
    StoreUnavailable,
)
from oncekey.http.answer import answer, first_marks, refuse, replay, retry_after
from oncekey.http.dialects import DIALECTS, Dialect, dialect
from oncekey.http.grammar import Verdict
from oncekey.http.messages import Reply

RECORD = Record(
    b"r" * 20, State.EXECUTING, 3, b"t" * 16, b"secret fingerprint", outcome=pack(201, [], b"secret answer")
)
FAILED = RECORD._replace(state=State.FAILED_RETRYABLE)
DONE = RECORD._replace(state=State.COMPLETED)
EACH = pytest.mark.parametrize("one", DIALECTS.values(), ids=DIALECTS)


def values(reply: Reply, name: bytes) -> list[bytes]:
    """All values of a header, however it is spelt."""
    return [value for found, value in reply.headers if found.lower() == name]


def slug(reply: Reply) -> str:
    """The name of the problem."""
    return values(reply, b"idempotency-problem")[0].decode()


# ---- replays -----------------------------------------------------------------------------------------------------


@EACH
def test_a_replay_is_the_stored_answer_with_additions_behind_it(one: Dialect) -> None:
    """Status, headers in their order and bytes are the first ones; what the dialect adds comes after."""
    stored = ((b"Link", b"</a>"), (b"content-type", b"a/b"), (b"link", b"</b>"))
    reply = replay(one, Answer(200, stored, b"\x00body"), key="k1")
    assert (reply.status, tuple(reply.headers[:3]), reply.body) == (200, stored, b"\x00body")
    added = dict(reply.headers[3:])
    assert added.pop(b"cache-control") == b"no-store"
    assert added == dict(one.marker) | ({one.header_name: b"k1"} if one.echo == "always" else {})


def test_a_stored_cache_control_stays_the_only_one() -> None:
    """The application's own word counts."""
    reply = replay(dialect("ietf"), Answer(200, ((b"Cache-Control", b"max-age=5"),), b""))
    assert values(reply, b"cache-control") == [b"max-age=5"]


@pytest.mark.parametrize(("name", "first", "again"), [("paypal", 201, 200), ("paypal", 202, 202), ("ietf", 201, 201)])
def test_the_status_of_a_replay_is_the_first_one_but_at_paypal(name: str, first: int, again: int) -> None:
    """Created becomes OK there."""
    assert replay(dialect(name), Answer(first, (), b"")).status == again


@pytest.mark.parametrize(("status", "hint"), [(500, [b"false"]), (503, [b"false"]), (402, []), (200, [])])
def test_only_a_kept_5xx_tells_the_stripe_sdk_not_to_retry(status: int, hint: list[bytes]) -> None:
    """On its first answer as on replays; the same header on a 409 would stop useful retries."""
    stripe = dialect("stripe")
    reply = replay(stripe, Answer(status, (), b""))
    first = first_marks(stripe, status, [], Verdict.KEPT)
    assert values(reply, b"stripe-should-retry") == hint
    assert [value for name, value in first if name == b"stripe-should-retry"] == hint
    assert values(answer(stripe, InProgress(RECORD, 1)), b"stripe-should-retry") == []


@EACH
@pytest.mark.parametrize("outcome", [Tombstone(201, "it was a stream")])
def test_an_answer_that_was_not_kept_is_said_and_not_retried(one: Dialect, outcome: Tombstone) -> None:
    """The client learns that the work is done, and its SDK leaves it alone."""
    reply = replay(one, outcome, key="k1", ref="ok_1")
    assert (slug(reply), values(reply, b"retry-after")) == ("answer-not-kept", [])
    assert b"201" in reply.body
    assert reply.status in {400, 409, 410, 422}
    assert answer(one, Replay(DONE._replace(outcome=tombstone(201, "x")))).status == reply.status


@given(st.tuples(st.binary(max_size=9), st.binary(max_size=9)))
def test_a_tampered_header_is_never_sent(header: tuple[bytes, bytes]) -> None:
    """Names and values from the store are checked before they leave."""
    try:
        reply = replay(dialect("ietf"), Answer(200, (header,), b""))
    except RecordForged:
        return
    name, value = reply.headers[0]
    assert name
    assert not set(name) & set(b"\r\n\0: \t")
    assert not set(value) & set(b"\r\n\0")


def test_a_header_that_splits_the_answer_is_forged() -> None:
    """As is one without a name."""
    for header in ((b"x", b"a\r\nset-cookie: b"), (b"x\r\ny", b""), (b"", b"v"), (b"a b", b"v")):
        with pytest.raises(RecordForged):
            replay(dialect("ietf"), Answer(200, (header,), b""))


@pytest.mark.parametrize(
    "stored",
    [
        Answer(200, ((b"Transfer-Encoding", b"chunked"),), b"0\r\n\r\nHTTP/1.1 200 OK\r\n\r\n"),
        Answer(200, ((b"content-length", b"2"),), b"abHTTP/1.1 200 OK\r\n\r\n"),
        Answer(200, ((b"content-length", b"2"), (b"Content-Length", b"3")), b"ab"),
        Answer(200, ((b"connection", b"close"),), b""),
        Answer(101, (), b""),
        Answer(33_545, (), b""),
    ],
)
def test_what_would_be_two_answers_is_forged(stored: Answer) -> None:
    """Nothing in a store decides where a message ends, or is an answer that ends no exchange."""
    with pytest.raises(RecordForged):
        replay(dialect("ietf"), stored)


@pytest.mark.parametrize("status", [204, 304])
def test_a_body_where_none_can_be_stays_away(status: int) -> None:
    """Its bytes would be taken for the next answer on the connection."""
    reply = replay(dialect("ietf"), Answer(status, ((b"content-length", b"4"), (b"etag", b"1")), b"null"))
    assert (reply.body, values(reply, b"content-length"), values(reply, b"etag")) == (b"", [], [b"1"])


def test_a_value_is_no_answer() -> None:
    """A function's result under a request's key is refused, not shown."""
    with pytest.raises(RecordUnreadable):
        replay(dialect("ietf"), Value(b"x"))


# ---- decisions ---------------------------------------------------------------------------------------------------

DECISIONS: list[tuple[Decision, str, str | None, str]] = [
    (InProgress(RECORD, 12_001), "in-progress", "13", "same-key-later"),
    (InProgress(FAILED, 1), "retry-later", "1", "same-key-later"),
    (Unknown(RECORD, 0), "outcome-unknown", "5", "same-key-later"),
    (Unknown(RECORD, 9_000), "outcome-unknown", "9", "same-key-later"),
    (Mismatch(DONE), "key-reused", None, "never"),
    (Refused(DONE, "expired"), "key-expired", None, "never"),
    (Refused(FAILED, "exhausted"), "attempts-exhausted", None, "new-key-safe"),
]


@pytest.mark.parametrize(("decision", "name", "wait", "retry"), DECISIONS)
def test_every_decision_has_its_problem_in_the_standard_dialect(
    decision: Any, name: Any, wait: Any, retry: Any
) -> None:
    """With the next step for machines, the true wait, and a reference that logs know."""
    reply = answer(dialect("ietf"), decision, key="k1", spread=0)
    told = json.loads(reply.body)
    assert (slug(reply), told["retry"], told["operation"]) == (name, retry, key_ref(RECORD.id))
    assert (told["type"].endswith("/" + name), told["status"]) == (True, reply.status)
    assert values(reply, b"retry-after") == ([wait.encode()] if wait else [])
    assert told.get("retry_after") == (int(wait) if wait else None)
    assert values(reply, b"x-should-retry") == [b"true" if retry == "same-key-later" else b"false"]


@EACH
@pytest.mark.parametrize("decision", [decision for decision, *_ in DECISIONS])
def test_no_refusal_shows_what_is_stored(one: Dialect, decision: Decision) -> None:
    """Neither the answer nor the fingerprint nor the token; and no cache may keep it."""
    reply = answer(one, decision, key="k1")
    everything = reply.body + b"".join(name + value for name, value in reply.headers)
    assert not any(part in everything for part in (b"secret", b"t" * 16, RECORD.id))
    assert values(reply, b"cache-control") == [b"no-store"]
    assert values(reply, b"content-length") == [b"%d" % len(reply.body)]
    assert values(reply, b"content-type") == [one.media]
    assert values(reply, b"idempotency-key") == ([b"k1"] if one.echo == "always" else [])


def test_a_new_key_is_not_called_safe_when_attempts_may_have_had_effects() -> None:
    """Derived keys deduplicate under the old key only."""
    record = FAILED._replace(guarantee=Guarantee.DEDUPLICATED_DOWNSTREAM)
    told = json.loads(answer(dialect("ietf"), Refused(record, "exhausted")).body)
    assert told["retry"] == "never"


def test_execute_is_no_answer() -> None:
    """A caller that sends one instead of running the work is told so."""
    with pytest.raises(TypeError):
        answer(dialect("ietf"), Execute(b"i", b"t", 1, 1))


def test_adyen_says_in_a_header_whether_the_same_key_may_come_again() -> None:
    """transient-error is what its integrations go by."""
    one = dialect("adyen")
    assert values(answer(one, InProgress(RECORD, 1)), b"transient-error") == [b"true"]
    assert values(refuse(one, StoreUnavailable("x")), b"transient-error") == [b"true"]
    assert values(answer(one, Mismatch(RECORD)), b"transient-error") == []


# ---- errors ------------------------------------------------------------------------------------------------------


class Unauthorised(OnceKeyError):
    """An error from elsewhere that knows its status."""

    status = 401


ERRORS: list[tuple[OnceKeyError, str, int, bool]] = [
    (BadKey("missing", "No key.", "Send one."), "key-missing", 400, False),
    (BadKey("repeated", "Two keys.", "Send one."), "key-repeated", 400, False),
    (BadKey("too-long", "Long.", "Send less."), "key-invalid", 400, False),
    (BodyTooLarge("over 5 bytes"), "body-too-large", 413, False),
    (BodyIncomplete("ended early"), "body-incomplete", 400, False),
    (RequestRefused("not like this"), "request-refused", 400, False),
    (Unauthorised("who are you?"), "caller-unknown", 401, False),
    (LeaseLost("secret"), "lease-lost", 409, True),
    (NotExecuted("secret"), "not-executed", 503, True),
    (OutcomeUnknown("secret"), "outcome-unknown", 409, True),
    (StoreUnavailable("secret"), "store-unavailable", 503, True),
    (StoreError("secret"), "store-unavailable", 503, True),
    (SchemaMissing("secret"), "store-unavailable", 503, True),
    (OnceKeyError("secret"), "store-unavailable", 503, True),
    (RecordUnreadable("secret"), "record-unreadable", 503, True),
    (RecordForged("secret"), "record-unreadable", 503, True),
]


@pytest.mark.parametrize(("error", "name", "status", "later"), ERRORS)
def test_every_error_has_its_problem(error: OnceKeyError, name: str, status: int, later: bool) -> None:
    """The client's own mistakes are explained to it; the store's troubles stay in the log."""
    reply = refuse(dialect("ietf"), error, ref="ok_1")
    assert (slug(reply), reply.status, bool(values(reply, b"retry-after"))) == (name, status, later)
    assert b"secret" not in reply.body
    detail = json.loads(reply.body)["detail"]
    assert later or str(error)[1:] in detail
    assert detail[0].isupper()
    assert detail[-1] in ".?"


def test_the_broken_rule_of_a_key_is_named() -> None:
    """In a word that machines may compare."""
    assert json.loads(refuse(dialect("ietf"), BadKey("too-long", "Long.", "Send less.")).body)["rule"] == "too-long"


@EACH
@given(text=st.text())
def test_any_text_makes_a_reply(one: Dialect, text: str) -> None:
    """Bodies are JSON in pure ASCII and headers stay clean, whatever a message holds."""
    for error in (BadKey(text, text, text), RequestRefused(text)):
        reply = refuse(one, error)
        assert json.loads(reply.body.decode("ascii"))
        assert all(name.isascii() and b"\n" not in value for name, value in reply.headers)


# ---- what is added to first answers ------------------------------------------------------------------------------


def test_a_first_answer_gets_the_hints_that_belong_to_its_verdict() -> None:
    """Released and unknown may come again with the same key; kept and forgotten get no such hint."""
    adyen, ietf = dialect("adyen"), dialect("ietf")
    again = (b"transient-error", b"true")
    assert first_marks(adyen, 500, [], Verdict.UNKNOWN, key="k1") == [(b"idempotency-key", b"k1"), again]
    assert first_marks(adyen, 401, [], Verdict.FORGOTTEN) == []
    assert first_marks(adyen, 200, [], Verdict.KEPT, key="k1") == [(b"idempotency-key", b"k1")]
    assert first_marks(ietf, 429, [], Verdict.RELEASED, key="k1") == [(b"x-should-retry", b"true")]
    assert first_marks(ietf, 201, [], Verdict.KEPT, key="k1") == []


def test_what_the_application_said_itself_is_not_said_twice() -> None:
    """Its own header wins, however it is spelt."""
    sent = [(b"Transient-Error", b"false"), (b"Idempotency-Key", b"k1")]
    assert first_marks(dialect("adyen"), 500, sent, Verdict.UNKNOWN, key="k1") == []


# ---- Retry-After -------------------------------------------------------------------------------------------------


@given(st.integers(-5, 10**9), st.floats(0, 1, exclude_max=True))
def test_retry_after_is_at_least_the_wait_and_at_most_a_quarter_more(seconds: int, spread: float) -> None:
    """Whole seconds, never below 1, clipped, and never before the time that is left."""
    wait = min(max(seconds, 1), 300)
    assert wait <= retry_after(seconds, spread) <= wait + wait // 4 + 2


def test_clients_do_not_all_return_together() -> None:
    """A thousand duplicates are spread over the seconds that follow."""
    seen = [values(answer(dialect("ietf"), InProgress(RECORD, 20_000)), b"retry-after")[0] for _ in range(1000)]
    assert set(seen) == {b"%d" % seconds for seconds in range(20, 27)}
