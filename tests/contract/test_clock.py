"""A client whose clock is wrong grants and judges leases like any other: times are the store's own."""

from __future__ import annotations

import time

import pytest

from oncekey.core.decision import InProgress
from oncekey.core.record import State
from oncekey.testing.bench import HOUR, another_request
from oncekey.testing.scenarios.listing import listed
from oncekey.testing.scenarios.retention import purge_all
from tests.contract.stores import SERVED, Subject

SKEW = 30 * 24 * 3_600


@pytest.mark.parametrize("skew", [SKEW, -SKEW], ids=["ahead", "behind"])
@pytest.mark.parametrize(("store", "colour"), SERVED)
def test_a_wrong_clock_changes_nothing(subject: Subject, monkeypatch: pytest.MonkeyPatch, skew: int) -> None:
    """A month ahead or behind, a client's claims, leases, listings and purges are those of the server's clock."""
    right = time.time
    bench = subject.bench()
    settled, claimed = bench.settled(), bench.won()
    monkeypatch.setattr(time, "time", lambda: right() + skew)
    monkeypatch.setattr(time, "time_ns", lambda: int((right() + skew) * 1_000_000_000))
    skewed = bench.won()
    record, now = bench.seen(skewed.id)
    assert abs(now / 1_000 - right()) < 60
    assert record.claimed_at <= now < (record.lease_until or 0) <= now + HOUR
    for claim in (claimed, skewed):
        assert isinstance(bench.enter(another_request(claim)), InProgress)
    assert skewed.id not in {one.id for one in listed(bench.store, (State.EXECUTING,), due_before=-1)}
    purge_all(bench.store)
    assert bench.record(settled.id).outcome == b"answer"
    bench.close()
