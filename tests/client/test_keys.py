from __future__ import annotations

import time
import uuid

import pytest

from oncekey.client import derived, new_key, random_key, tool_key, ulid
from oncekey.core.keys import KeyRule, made_at, parse_key_text


@pytest.mark.parametrize("make", [new_key, random_key, ulid])
def test_keys_are_valid_and_differ(make: object) -> None:
    """Every kind is a key that every dialect takes, and no two are alike."""
    assert callable(make)
    made = {make() for _ in range(2000)}
    assert len(made) == 2000
    assert all(parse_key_text(key, KeyRule(max_length=45)) == key for key in made)


@pytest.mark.parametrize("make", [new_key, ulid])
def test_some_keys_say_when_they_were_made(make: object) -> None:
    """The server reads their age."""
    assert callable(make)
    made = made_at(make())
    assert made is not None
    assert abs(made - time.time() * 1000) < 60_000


def test_the_versions_of_uuids() -> None:
    """RFC 9562: 4 is random, 7 has the time, 8 is of one's own making."""
    assert [uuid.UUID(key).version for key in (random_key(), new_key(), derived("shop", "order", 1))] == [4, 7, 8]


def test_derived_keys_name_an_intent() -> None:
    """The same identity has the same key; the parts of two identities do not run together."""
    assert derived("shop", "order", 17) == derived("shop", "order", "17")
    assert len({derived("shop", "order1", 7), derived("shop", "order", 17), derived("shop", "order", 1, 7)}) == 3


def test_tool_calls_differ_by_run_tool_and_arguments() -> None:
    """An agent that calls a tool again in the same run has the same key; another run has another."""
    calls = [("r1", "pay", {"a": 1}), ("r2", "pay", {"a": 1}), ("r1", "refund", {"a": 1}), ("r1", "pay", {"a": 2})]
    assert len({tool_key(*call) for call in calls}) == 4


@pytest.mark.parametrize("identity", [(), (None,), (True,), (1.5,)])
def test_what_is_no_identity_is_refused(identity: tuple[object, ...]) -> None:
    """A key that is made of nothing, or of what has several spellings, would be shared or lost."""
    with pytest.raises((ValueError, TypeError), match="identity"):
        derived("shop", *identity)  # type: ignore[arg-type]


@pytest.mark.parametrize("arguments", [float("nan"), {"at": object()}, {"a": {1, 2}}, "\ud800"])
def test_arguments_without_a_canonical_form_are_refused(arguments: object) -> None:
    """NaN is not equal to itself, and what is no JSON has many spellings."""
    with pytest.raises(ValueError, match="no canonical form"):
        tool_key("run", "tool", arguments)
