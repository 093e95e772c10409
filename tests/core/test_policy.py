"""A policy refuses what cannot work, and says what to write instead."""

from __future__ import annotations

from dataclasses import FrozenInstanceError, fields
from typing import Any, get_args

import pytest

from oncekey.core.policy import GUARANTEES, GuaranteeName, Policy, ms
from oncekey.core.record import Guarantee
from oncekey.errors import ConfigurationError

REFUSED: list[tuple[dict[str, Any], str]] = [
    ({"lease_for": 0}, "lease_for=0 makes no sense: write a number above 0"),
    ({"lease_for": -1.5}, "lease_for=-1.5 makes no sense"),
    ({"keep_for": float("inf")}, "keep_for=inf makes no sense: write a number above 0"),
    ({"lease_for": float("nan")}, "lease_for=nan makes no sense"),
    (
        {"wait_for": 0},
        "write a number above 0 or None (hold a duplicate this long for the first answer; None: answer 409 at once)",
    ),
    ({"attempts": 0}, "write a number above 0 or None (how many attempts one operation gets; None: any number)"),
    ({"max_body": 0}, "max_body=0 makes no sense: write a number above 0"),
    ({"waiting": -1}, "waiting=-1 makes no sense"),
    ({"guarantee": "exactly_once"}, "write one of at_most_once, transactional, deduplicated_downstream"),
    ({"drop_headers": ["etag"]}, "write a tuple of names, such as ('X-Balance',)"),
    ({"drop_headers": ("x balance",)}, "'x balance' is no header: write drop_headers=('X-Balance',)"),
    ({"take_over": True}, "write guarantee='transactional'"),
    ({"handler_for": 30}, "shorter than the handler's deadline of 30 s plus 5 s for the store: write lease_for=35"),
    ({"lease_for": 60, "cap_for": 59}, "write cap_for=60 or more"),
    ({"keep_for": 29}, "an answer must outlive its retries; write keep_for=86400 for a day"),
    ({"keep_for": 100, "keep_key_for": 99}, "the key outlives its answer, not the reverse"),
]


@pytest.mark.parametrize(
    ("wrong", "sentence"), REFUSED, ids=[next(iter(wrong)) + str(n) for n, (wrong, _) in enumerate(REFUSED)]
)
def test_what_cannot_work_is_refused_in_a_sentence(wrong: dict[str, Any], sentence: str) -> None:
    """Each bad choice is refused at construction, and the message names what to write instead."""
    with pytest.raises(ConfigurationError) as refused:
        Policy(**wrong)
    assert sentence in str(refused.value)


@pytest.mark.parametrize(
    "name", [spec.name for spec in fields(Policy) if "int" in str(spec.type) or "float" in str(spec.type)]
)
@pytest.mark.parametrize("value", [0, -1, float("nan"), float("inf")])
def test_no_number_is_zero_negative_or_endless(name: str, value: Any) -> None:
    """None is the only "unlimited": zero, negative and endless numbers are refused for every field."""
    with pytest.raises(ConfigurationError, match=f"{name}="):
        Policy(**{name: value})


def test_the_defaults_work() -> None:
    """A policy of defaults is at_most_once, with a day of retention."""
    policy = Policy()
    assert policy.level is Guarantee.AT_MOST_ONCE
    assert policy.keep_for == 86_400


@pytest.mark.parametrize("name", GUARANTEES)
def test_a_guarantee_may_be_forgone(name: GuaranteeName) -> None:
    """take_over=False makes the record at_most_once, whatever the guarantee would allow; else it is as named."""
    assert Policy(guarantee=name, take_over=False).level is Guarantee.AT_MOST_ONCE
    assert Policy(guarantee=name).level is GUARANTEES[name]
    if name != "at_most_once":
        assert Policy(guarantee=name, take_over=True).level.may_take_over


def test_editors_know_all_guarantees() -> None:
    """What they offer, and what there is."""
    assert get_args(GuaranteeName) == tuple(GUARANTEES)


def test_exact_boundaries_are_allowed() -> None:
    """Equal is enough: a lease of just the deadline and the store's budget, a cap and a retention of just the lease."""
    Policy(lease_for=35, handler_for=30, cap_for=35, keep_for=35, keep_key_for=35)


def test_a_policy_is_frozen() -> None:
    """Nobody changes a policy after it was checked."""
    with pytest.raises(FrozenInstanceError):
        Policy().lease_for = 1  # type: ignore[misc]


def test_every_field_says_what_it_is() -> None:
    """The command line and the docs are made from the fields, so each has its help."""
    assert all(spec.metadata["help"] for spec in fields(Policy))


@pytest.mark.parametrize(("seconds", "expected"), [(1, 1000), (0.0004, 1), (0.0016, 2), (86_400, 86_400_000)])
def test_seconds_as_milliseconds(seconds: float, expected: int) -> None:
    """Stores count whole milliseconds, and no duration becomes none at all."""
    assert ms(seconds) == expected
