from __future__ import annotations

from typing import Any

import pytest

from oncekey.core.decision import Execute
from oncekey.core.journal import EMPTY, Journal
from oncekey.core.outcome import Answer, Tombstone
from oncekey.core.record import State
from oncekey.engine.attempt import Attempt
from oncekey.engine.operation import Operation
from oncekey.errors import ConfigurationError
from oncekey.reconcile import Inquiry, NotDone, Pace, Resolvers, Stopped, TooEarly
from tests.reconcile.kit import CALL, not_there, paid


def inquiry(**changes: Any) -> Inquiry:
    """An inquiry about nothing in particular."""
    given = {"id": bytes(20), "endpoint": "POST /payments", "scope": "s", "key": "k", "note": "", "journal": EMPTY}
    return Inquiry(**(given | {"attempts": 1, "try_": 1, "unclear_for": 0.0} | changes))


def test_it_did_not_happen_cannot_be_said_without_its_proof() -> None:
    """No hand makes a proof, and nothing that is none stands in for it."""
    with pytest.raises(TypeError, match="not made by hand"):
        Stopped(inquiry(), "because")
    with pytest.raises(TypeError, match="needs its proof"):
        NotDone(None, "nothing seen")  # type: ignore[arg-type]
    done = inquiry().cancelled("V-77").not_done("0 charges under this key")
    assert (done.stopped.how, done.seen) == ("cancelled: V-77", "0 charges under this key")


def test_age_is_a_proof_only_when_it_is_reached() -> None:
    """Before its receiver would refuse it, an attempt may still land: the inquiry ends, and says when to come back."""
    with pytest.raises(TooEarly) as early:
        inquiry(unclear_for=20.0).expired(60.0, "the bank refuses what is older than a minute")
    assert early.value.wait == 40.0
    assert "60 s" in inquiry(unclear_for=60.0).expired(60.0, "as the bank says").how


@pytest.mark.parametrize("nothing", ["", "  ", None, 7])
def test_evidence_is_in_words(nothing: Any) -> None:
    """Neither a landing, nor a cancellation, nor a reading is believed without saying what was seen."""
    for answer in (
        lambda: inquiry().landed(200, seen=nothing),
        lambda: inquiry().cancelled(nothing),
        lambda: inquiry().cancelled("V").not_done(nothing),
        lambda: inquiry().unclear(nothing),
    ):
        with pytest.raises(ConfigurationError, match="no evidence"):
            answer()


def test_answers_are_written_as_a_handler_would() -> None:
    """JSON, bytes, headers, or none that can be made again."""
    json = inquiry().landed(201, {"id": 1}, seen="x", headers=[("location", "/payments/1")]).answer
    assert json == Answer(
        201,
        ((b"location", b"/payments/1"), (b"content-type", b"application/json"), (b"content-length", b"8")),
        b'{"id":1}',
    )
    assert inquiry().landed(200, b"\xff", seen="x").answer == Answer(200, ((b"content-length", b"1"),), b"\xff")
    assert isinstance(inquiry().landed_without_answer(200, seen="x").answer, Tombstone)


def test_an_inquiry_knows_what_the_handler_used() -> None:
    """Calls with their keys, and the derived key of a step, are those of the operation."""
    asked = inquiry(journal=Journal((CALL,)))
    attempt = Attempt(Execute(asked.id, bytes(16), 1, 1000), 0.0, 30.0, 900.0, State.EXECUTING)
    assert asked.calls == (CALL,)
    assert asked.derived_key("psp.charge") == Operation(None, attempt, "k").derived_key("psp.charge")  # type: ignore[arg-type]


def test_resolvers_are_found_by_endpoint() -> None:
    """Exactly, by a pattern whose places are named, or the one for all others."""
    resolvers = Resolvers()
    resolvers("POST /payments")(paid)
    resolvers("POST /orders/{id}/refund/")(not_there)
    assert resolvers.find("POST /payments") == (paid, {})
    assert resolvers.find("POST /orders/a.b/refund") == (not_there, {"id": "a.b"})
    for other in ("POST /orders/a/b/refund", "PUT /payments", "POST /orders//refund", ""):
        assert resolvers.find(other) is None
    resolvers("*")(paid)
    assert resolvers.find("PUT /x") == (paid, {})
    assert len(resolvers) == 3


@pytest.mark.parametrize("wrong", ["payments", "POST payments", "post /x", "", "POST /a b"])
def test_an_endpoint_is_a_method_and_a_path(wrong: str) -> None:
    """What can never fit is refused where it is written."""
    with pytest.raises(ConfigurationError, match="no endpoint"):
        Resolvers().add(wrong, paid)


def test_one_function_answers_for_an_endpoint() -> None:
    """A second one would be silently ignored: it is refused, as is what is no function."""
    resolvers = Resolvers()
    resolvers.add("POST /payments", paid)
    with pytest.raises(ConfigurationError, match="already"):
        resolvers.add("POST /payments/", paid)
    with pytest.raises(ConfigurationError, match="no resolver"):
        resolvers.add("POST /other", "paid")  # type: ignore[arg-type]


def test_waits_double_and_spread() -> None:
    """Each wait is twice the one before, up to the longest, and up to a half shorter."""
    pace = Pace(first_for=5, most_for=100)
    assert [pace.wait(tries, 0.0) for tries in (1, 2, 3, 5, 6, 5000)] == [
        5000,
        10_000,
        20_000,
        80_000,
        100_000,
        100_000,
    ]
    assert pace.wait(1, 0.999) == pytest.approx(2500, abs=10)
    assert [Pace(tries=3).given_up(tries) for tries in (2, 3)] == [False, True]
    assert not Pace(tries=None).given_up(10**6)


@pytest.mark.parametrize(
    "wrong", [{"first_for": 0}, {"tries": 0}, {"at_once": -1}, {"most_for": 1}, {"poll_for": True}]
)
def test_a_pace_that_cannot_work_is_refused(wrong: dict[str, Any]) -> None:
    """Zero and negatives make no sense; None is the only unlimited."""
    with pytest.raises(ConfigurationError):
        Pace(**wrong)
