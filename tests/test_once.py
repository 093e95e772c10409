from __future__ import annotations

import pytest

from oncekey import SHARED, ConfigurationError, OnceKey, Policy


def test_nothing_is_contacted_before_it_is_needed() -> None:
    """An address where nobody listens is fine until somebody asks."""
    once = OnceKey("postgresql://nobody@127.0.0.1:1/none", scope=SHARED, policy=Policy(store_for=2))
    assert once.tuning.store_for == 2
    assert once.engine is once.engine
    assert once.async_engine is once.async_engine
    once.close()


def test_whose_keys_they_are_must_be_said() -> None:
    """As everywhere: without a scope it is not made, and a store is named by its URL."""
    with pytest.raises(ConfigurationError, match="scope= is missing"):
        OnceKey("memory://")
    with pytest.raises(ConfigurationError, match="write a URL"):
        OnceKey(3, scope=SHARED)  # type: ignore[arg-type]


def test_a_policy_of_another_kind_is_refused() -> None:
    """A dictionary is none, not even an empty one."""
    for policy in ({}, {"lease_for": 3}):
        with pytest.raises(ConfigurationError, match="is no policy"):
            OnceKey("memory://", scope=SHARED, policy=policy)  # type: ignore[arg-type]
