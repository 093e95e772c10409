"""CONTRACTS of the six dialects, row by row."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from oncekey.core.keys import KeyRule
from oncekey.core.record import State
from oncekey.errors import ConfigurationError
from oncekey.http.dialects import DIALECTS, dialect
from oncekey.http.grammar import Outcomes, Verdict
from oncekey.http.problems import PROBLEMS, Retry

KEPT, RELEASED, FORGOTTEN, UNKNOWN = Verdict.KEPT, Verdict.RELEASED, Verdict.FORGOTTEN, Verdict.UNKNOWN


@pytest.mark.parametrize(
    ("name", "place", "methods", "required", "longest", "endpoint", "keep_for"),
    [
        ("ietf", "Idempotency-Key", {"POST", "PATCH"}, True, 255, "scope", 86_400),
        ("stripe", "Idempotency-Key", {"POST"}, False, 255, "fingerprint", 86_400),
        ("square", "idempotency_key", {"POST", "PUT"}, True, 45, "scope", 86_400),
        ("adyen", "Idempotency-Key", {"POST"}, False, 64, "scope", 7 * 86_400),
        ("paypal", "PayPal-Request-Id", {"POST"}, False, 108, "scope", 6 * 3600),
        ("aws", "ClientToken", {"POST", "PUT"}, False, 64, "scope", 86_400),
    ],
)
def test_requests(
    name: Any, place: Any, methods: Any, required: Any, longest: Any, endpoint: Any, keep_for: Any
) -> None:
    """Where the key travels, for which methods, how long it may be, what it is compared with, how long it is kept."""
    one = dialect(name)
    assert (one.header or one.members[0], set(one.methods), one.required) == (place, methods, required)
    assert (one.rule.max_length, one.endpoint, one.policy().keep_for) == (longest, endpoint, keep_for)


@pytest.mark.parametrize(
    ("name", "missing", "mismatch", "in_progress", "store"),
    [
        ("ietf", 400, 422, 409, 503),
        ("stripe", 400, 400, 409, 503),
        ("square", 400, 400, 409, 503),
        ("adyen", 400, 422, 409, 503),
        ("paypal", 400, 400, 409, 503),
        ("aws", 400, 400, 400, 503),
    ],
)
def test_statuses(name: str, missing: int, mismatch: int, in_progress: int, store: int) -> None:
    """The statuses that each contract names."""
    found = [
        dialect(name).status_of(PROBLEMS[slug])
        for slug in ("key-missing", "key-reused", "in-progress", "store-unavailable")
    ]
    assert found == [missing, mismatch, in_progress, store]


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("ietf", {400: KEPT, 404: KEPT, 408: RELEASED, 425: RELEASED, 429: RELEASED, 500: UNKNOWN, 503: UNKNOWN}),
        ("stripe", {400: FORGOTTEN, 401: FORGOTTEN, 402: KEPT, 404: KEPT, 429: FORGOTTEN, 500: KEPT, 503: KEPT}),
        ("square", {400: FORGOTTEN, 401: FORGOTTEN, 402: KEPT, 429: FORGOTTEN, 500: UNKNOWN}),
        ("adyen", {400: KEPT, 401: FORGOTTEN, 403: FORGOTTEN, 422: KEPT, 500: UNKNOWN, 503: UNKNOWN}),
        ("paypal", {400: KEPT, 401: FORGOTTEN, 422: KEPT, 500: RELEASED, 503: RELEASED}),
        ("aws", {400: FORGOTTEN, 409: FORGOTTEN, 500: UNKNOWN, 503: UNKNOWN}),
    ],
)
def test_outcomes(name: str, expected: dict[int, Verdict]) -> None:
    """What becomes of the application's answers; success and redirection are kept everywhere."""
    one = dialect(name)
    assert {status: one.outcomes.verdict(status) for status in expected} == expected
    assert all(one.settle_as(status) is State.COMPLETED for status in range(200, 400))
    assert all(one.settle_as(status) is State.UNKNOWN for status in (0, 100, 199, 600, 999))


def test_an_adyen_failure_is_released_only_if_it_says_so() -> None:
    """transient-error: true is the declaration that the same key may be used again."""
    one = dialect("adyen")
    said = [(b"Content-Type", b"application/json"), (b"Transient-Error", b" TRUE")]
    assert one.settle_as(500, said) is State.FAILED_RETRYABLE
    assert one.settle_as(500, [(b"transient-error", b"false")]) is State.UNKNOWN
    assert one.settle_as(200, said) is State.COMPLETED
    assert dialect("ietf").settle_as(500, said) is State.UNKNOWN


def test_replays_are_marked_as_each_contract_says() -> None:
    """Stripe's marker, ours for the standard, none elsewhere; PayPal's 201 is 200 the second time."""
    markers = {name: one.marker for name, one in DIALECTS.items() if one.marker}
    assert markers == {
        "ietf": ((b"idempotency-replayed", b"true"),),
        "stripe": ((b"idempotent-replayed", b"true"),),
    }
    assert {name for name, one in DIALECTS.items() if one.echo == "always"} == {"stripe", "adyen"}
    assert {name: dict(one.replay_statuses) for name, one in DIALECTS.items() if one.replay_statuses} == {
        "paypal": {201: 200}
    }


def test_no_sdk_retries_a_reused_key() -> None:
    """Stripe's and Square's SDKs would burn their budget on a 409 or a 5xx."""
    for one in DIALECTS.values():
        assert one.status_of(PROBLEMS["key-reused"]) in {400, 422}


def test_a_dialect_is_found_by_name_and_a_typo_is_answered() -> None:
    """With what was probably meant."""
    assert dialect("stripe") is DIALECTS["stripe"]
    with pytest.raises(ConfigurationError, match="did you mean 'stripe'"):
        dialect("Strype")
    with pytest.raises(ConfigurationError, match="ietf, stripe"):
        dialect("zzz")


def test_a_dialect_of_your_own_is_a_changed_copy() -> None:
    """And the original stays as it is."""
    own = replace(
        dialect("ietf"), name="own", header="X-Key", rule=KeyRule(max_length=40), statuses={"in-progress": 202}
    )
    assert (own.header_name, own.status_of(PROBLEMS["in-progress"])) == (b"x-key", 202)
    assert dialect("ietf").status_of(PROBLEMS["in-progress"]) == 409
    assert own.policy(wait_for=2).wait_for == 2
    with pytest.raises(TypeError):
        own.statuses["in-progress"] = 200  # type: ignore[index]


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"header": None}, "one place"),
        ({"members": ("k",)}, "one place"),
        ({"header": "Bad Header"}, "no header name"),
        ({"header": "Schl\u00fcssel"}, "no header name"),
        ({"header": None, "members": "key"}, "no tuple"),
        ({"header": None, "members": ("k", "")}, "no tuple"),
        ({"header": None, "members": ("k",), "echo": "always"}, "echo="),
        ({"endpoint": "path"}, "endpoint="),
        ({"methods": frozenset()}, "no set"),
        ({"methods": "POST"}, "no set"),
        ({"methods": frozenset({"POST", "GET"})}, "'GET'"),
        ({"methods": frozenset({"post"})}, "upper case"),
        ({"statuses": {"in-progres": 409}}, "no problem type"),
        ({"statuses": {"key-reused": 200}}, "no error"),
        ({"statuses": {"key-reused": 202}}, "no error"),
        ({"replay_statuses": {200: 304}}, "successes"),
        ({"replay_statuses": {500: 200}}, "successes"),
        ({"marker": ((b"X-Replayed", b"true"),)}, "lower case"),
        ({"marker": ((b"x-replayed", b"a\r\nb"),)}, "marker"),
        ({"hints": {Retry.NEVER: ((b"x hint", b"1"),)}}, "hints"),
        ({"kept_error_hints": ((b"x", b""),)}, "kept_error_hints"),
        ({"media": b"a\nb"}, "media"),
        ({"keep_for": 0}, "keep_for"),
        ({"patience_for": 0}, "patience_for"),
    ],
)
def test_what_cannot_work_is_refused(changes: dict[str, Any], says: str) -> None:
    """At construction, with what to write instead."""
    with pytest.raises(ConfigurationError, match=says):
        replace(dialect("ietf"), **changes)


@pytest.mark.parametrize(
    "changes", [{"single": {200: RELEASED}}, {"single": {302: UNKNOWN}}, {"no_effect_header": (b"X", b"y")}]
)
def test_an_outcome_table_cannot_run_a_success_again(changes: dict[str, Any]) -> None:
    """Only errors may have a verdict of their own."""
    with pytest.raises(ConfigurationError):
        Outcomes(**changes)
