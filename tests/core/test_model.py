"""The table is searched, and each of its guards earns its place (HAZARDS: the numbers are printed with -s)."""

from __future__ import annotations

import sys

import pytest

from oncekey.core.commands import Claim
from oncekey.core.decision import Execute, InProgress, Mismatch, Replay, Unknown
from oncekey.core.flows import Step, Terms, weigh
from oncekey.core.record import IN_PROGRESS, Guarantee, Seen, State
from tests.core.model import NOW, Fault, P, Rec, Setting, decide, record_of
from tests.core.search import Found, search

A, T, D = Guarantee.AT_MOST_ONCE, Guarantee.TRANSACTIONAL, Guarantee.DEDUPLICATED_DOWNSTREAM

SAFE = {
    "at_most_once, own latch": Setting(A),
    "at_most_once, latch folded into the claim": Setting(A, latch=False),
    "transactional": Setting(T),
    "deduplicated_downstream": Setting(D, receiver="deduplicates"),
    "two fingerprints": Setting(A, prints=(0, 1, 0)),
}

# What is taken away, and the invariants that must break.
BREAKS: list[tuple[Setting, str]] = [
    (Setting(fault=Fault.CLAIM_NOT_ATOMIC), "I1 I2"),
    (Setting(fault=Fault.LAPSE_IS_PERMISSION), "I1"),
    (Setting(fault=Fault.UNKNOWN_IS_OPEN), "I1"),
    (Setting(T, fault=Fault.COMPLETE_UNGUARDED), "I1 I2"),
    (Setting(fault=Fault.BEGIN_WITHOUT_TOKEN), "I1"),
    (Setting(fault=Fault.TIMEOUT_IS_FAILURE), "I1"),
    (Setting(fault=Fault.CANCELLATION_RELEASES), "I1"),
    (Setting(fault=Fault.READ_WITHOUT_CANCEL), "I1"),
    (Setting(fault=Fault.ANSWER_FIRST), "I13"),
    (Setting(fault=Fault.PURGE_IN_PROGRESS), "I1"),
    (Setting(fault=Fault.PURGE_UNKNOWN), "I1"),
    (Setting(fault=Fault.RETENTION_TOO_SHORT), "I1 I2 I13"),
    (Setting(fault=Fault.RECORD_LOST), "I1 I2 I13"),
    (Setting(prints=(0, 1, 0), fault=Fault.NO_FINGERPRINT), "I7"),
    (Setting(D, receiver="fences"), "I1"),
    (Setting(fault=Fault.SWAP_WITHOUT_VERSION), "I1"),
    (Setting(fault=Fault.FAIL_WITHOUT_TOKEN), "I1"),
]

# Guards that buy availability and not safety, in these settings: the docs may not claim more.
SPARED = {
    "take over, the receiver deduplicates": Setting(D, receiver="deduplicates", prints=(0, 0)),
    "token on failed_retryable, transactional": Setting(T, fault=Fault.FAIL_WITHOUT_TOKEN),
    "late truth": Setting(fault=Fault.NO_LATE_TRUTH),
    "token alone on complete: the state still guards": Setting(T, fault=Fault.COMPLETE_WITHOUT_TOKEN),
}


def say(line: str) -> None:
    """Show it with `pytest -s`."""
    sys.stdout.write(f"{line}\n")


def told(setting: Setting, found: Found) -> str:
    """What a search found, in a line."""
    lengths = ", ".join(f"{name} in {steps} steps" for name, steps in found.shortest().items()) or "nothing breaks"
    return f"{setting.guarantee.name}, {setting.receiver} receiver, {setting.fault}: {lengths}; {found.states} states"


@pytest.mark.parametrize("setting", SAFE.values(), ids=SAFE.keys())
def test_with_every_guard_all_invariants_hold(setting: Setting) -> None:
    """Whatever order things happen in, no invariant breaks, in each of the three guarantees."""
    found = search(setting)
    say(told(setting, found))
    assert found.broken == {}, next(iter(found.broken.values()))
    assert found.states > 400, "a search that saw little proves little"


@pytest.mark.parametrize(("setting", "invariants"), BREAKS, ids=[f"{s.fault.name}-{s.receiver}" for s, _ in BREAKS])
def test_without_a_guard_an_invariant_breaks(setting: Setting, invariants: str) -> None:
    """Taking one guard away breaks the invariants that it is there for."""
    found = search(setting, wanted=frozenset(invariants.split()))
    say(told(setting, found))
    assert found.broken.keys() >= set(invariants.split())
    say("; ".join(found.broken[invariants.split(maxsplit=1)[0]]))


@pytest.mark.parametrize("setting", SPARED.values(), ids=SPARED.keys())
def test_some_guards_buy_availability_only(setting: Setting) -> None:
    """These guards can go without any invariant breaking: they are not there for safety."""
    found = search(setting)
    say(told(setting, found))
    assert found.broken == {}


def test_a_purged_key_needs_more_than_its_version() -> None:
    """Versions start again after a purge: who looked before it must be told apart by the token as well."""
    by_version = search(Setting(T, failures_expire=True), wanted=frozenset({"I1"}))
    assert "I1" in by_version.broken
    say("; ".join(by_version.broken["I1"]))
    assert search(Setting(T, failures_expire=True, compares_token=True)).broken == {}


class Same:
    """Compares the model's fingerprints."""

    def __init__(self, mine: int) -> None:
        self.mine = bytes([mine])

    def same_request(self, stored: bytes) -> bool:
        """Whether it is the same."""
        return stored == self.mine


KINDS = {
    P.WON: Execute,
    P.BEGUN: Execute,
    P.SWAPPING: Step,
    P.STORED: Replay,
    P.BUSY: InProgress,
    P.UNKNOWN: Unknown,
    P.MISMATCH: Mismatch,
}


@pytest.mark.parametrize("guarantee", Guarantee)
def test_the_model_decides_like_the_flow(guarantee: Guarantee) -> None:
    """On every record that a search reached, the model's decision is that of core.flows.weigh."""
    setting = Setting(guarantee, prints=(0, 1), failures_expire=True)
    records = {world.rec for world in search(setting).worlds if world.rec is not None}
    assert len(records) > 20
    for rec in records:
        for who, mine in enumerate(setting.prints):
            claim = Claim(b"key", bytes([who + 1]), bytes([mine]), 1000, State.CLAIMED, guarantee)
            verdict = weigh(Seen(record_of(rec, guarantee), NOW), claim, Same(mine), Terms(1000, 1000))
            wanted = KINDS[decide(setting, rec, who)[0]]
            assert isinstance(verdict, wanted) or lapses(verdict, rec), (rec, who, verdict)


def lapses(verdict: object, rec: Rec) -> bool:
    """Whether the flow first makes a lapse of its own, which the model leaves to the sweep."""
    return isinstance(verdict, Step) and not verdict.takes_key and rec.over and rec.state in IN_PROGRESS
