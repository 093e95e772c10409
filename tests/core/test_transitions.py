"""The table: every row is allowed when its guards hold, refused when one does not, and nothing else moves a record."""

from __future__ import annotations

import itertools
from collections.abc import Callable

import pytest

from oncekey.core.commands import Claim, Renewal, Settlement
from oncekey.core.record import FINAL, IN_PROGRESS, OPEN, Guarantee, Label, Record, State, replace
from oncekey.core.transitions import (
    HOLDS,
    SETTLING,
    TABLE,
    Aftermath,
    Facts,
    Guard,
    Row,
    claimed,
    lapse_row,
    moved,
    refusal,
    renewed,
    settled,
)

S, G = State, Guard
NOW, PAST, AHEAD = 1_000, 1_000, 1_001
TOKEN, OTHER = b"a" * 16, b"b" * 16
Case = tuple[Record, Facts]

# A record and facts for which every guard holds that the row asks for; LEASE_ALIVE and AT_MOST_ONCE are set below.
RECORD = Record(b"id", S.EXECUTING, 4, TOKEN, b"print", attempts=2, claimed_at=500, due_at=PAST, expires_at=PAST)
FACTS = Facts(NOW, TOKEN, same_request=True, attempts_limit=3, no_effect=True, reason="because", cap_for=501)

BREAKING: dict[Guard, Callable[[Record, Facts], Case]] = {
    G.TOKEN: lambda record, facts: (record, facts._replace(token=OTHER)),
    G.LEASE_ALIVE: lambda record, facts: (replace(record, lease_until=PAST), facts),
    G.LEASE_OVER: lambda record, facts: (replace(record, lease_until=AHEAD), facts),
    G.BELOW_CAP: lambda record, facts: (record, facts._replace(cap_for=500)),
    G.NO_EFFECT_DECLARED: lambda record, facts: (record, facts._replace(no_effect=False)),
    G.SAME_REQUEST: lambda record, facts: (record, facts._replace(same_request=False)),
    G.NOT_BEFORE_PAST: lambda record, facts: (replace(record, due_at=AHEAD), facts),
    G.ATTEMPTS_LEFT: lambda record, facts: (record, facts._replace(attempts_limit=2)),
    G.AT_MOST_ONCE: lambda record, facts: (replace(record, guarantee=Guarantee.TRANSACTIONAL), facts),
    G.MAY_TAKE_OVER: lambda record, facts: (replace(record, guarantee=Guarantee.AT_MOST_ONCE), facts),
    G.EFFECT_SEEN: lambda record, facts: (record, facts._replace(effect_seen=False)),
    G.CANNOT_LAND: lambda record, facts: (record, facts._replace(cannot_land=False)),
    G.DUE: lambda record, facts: (replace(record, due_at=AHEAD), facts),
    G.UNCLEAR: lambda record, facts: (record, facts._replace(unclear=False)),
    G.REASON_GIVEN: lambda record, facts: (record, facts._replace(reason=" \n")),
    G.PAST_EXPIRY: lambda record, facts: (replace(record, expires_at=AHEAD), facts),
    G.ANSWER_OVER: lambda record, facts: (replace(record, due_at=AHEAD), facts),
}
ROWS = [
    pytest.param(row, source, id=f"{row.name}-{source and source.name}")
    for row in TABLE.values()
    for source in row.sources
]
GUARDED = [
    pytest.param(row, source, guard, id=f"{row.name}-{source and source.name}-{guard.name}")
    for row in TABLE.values()
    for source in row.sources
    for guard in row.guards
]


def fitting(row: Row, source: State | None) -> tuple[Record | None, Facts]:
    """A record and facts for which the row is allowed."""
    if source is None:
        return None, FACTS
    guarantee = Guarantee.TRANSACTIONAL if G.MAY_TAKE_OVER in row.guards else Guarantee.AT_MOST_ONCE
    lease = PAST if G.LEASE_OVER in row.guards else AHEAD
    seen, gone, unclear = (guard in row.guards for guard in (G.EFFECT_SEEN, G.CANNOT_LAND, G.UNCLEAR))
    facts = FACTS._replace(effect_seen=seen, cannot_land=gone, unclear=unclear)
    return replace(RECORD, state=source, guarantee=guarantee, lease_until=lease), facts


@pytest.mark.parametrize(("row", "source"), ROWS)
def test_a_row_is_allowed_when_its_guards_hold(row: Row, source: State | None) -> None:
    """Each row may be taken from each of its states."""
    assert refusal(row, *fitting(row, source)) is None


@pytest.mark.parametrize(("row", "source", "guard"), GUARDED)
def test_each_guard_refuses_alone(row: Row, source: State | None, guard: Guard) -> None:
    """One broken guard is enough to refuse, and the refusal says which."""
    record, facts = fitting(row, source)
    assert record is not None
    broken = BREAKING[guard](record, facts)
    assert refusal(row, *broken) == guard.value
    assert refusal(row, *broken, ignoring=(guard,)) is None


@pytest.mark.parametrize("row", TABLE.values(), ids=TABLE.keys())
def test_a_row_starts_from_its_states_only(row: Row) -> None:
    """From any other state, and from absence where it is not meant, a row is refused."""
    for state in (None, *State):
        if state not in row.sources:
            record = replace(fitting(row, S.EXECUTING)[0] or RECORD, state=state) if state else None
            assert "does not start from" in (refusal(row, record, FACTS) or "")


def test_every_guard_is_tested_and_used() -> None:
    """Every guard has a meaning, a test that breaks it, and a row that asks for it."""
    used = {guard for row in TABLE.values() for guard in row.guards}
    assert set(Guard) == set(HOLDS) == set(BREAKING) == used


def test_what_the_table_forbids() -> None:
    """Completed is left only by expiry or an operator, nothing open is purged, and unknown opens for no request."""
    leaving = {row.name for row in TABLE.values() if S.COMPLETED in row.sources}
    assert leaving == {"claim_expired", "override_completed", "override_retryable", "expire", "expire_softly"}
    purging = [row for row in TABLE.values() if row.who == "purge"]
    assert not {state for row in purging for state in row.sources} & set(OPEN)
    assert "request" not in {row.who for row in TABLE.values() if S.UNKNOWN in row.sources}


def test_no_deadline_is_not_over() -> None:
    """A record without a deadline is neither alive nor over: nobody renews it, and nobody takes it."""
    held = replace(RECORD, lease_until=None, guarantee=Guarantee.TRANSACTIONAL)
    for name in ("renew", "take_over", "lapse_repeatable"):
        assert refusal(TABLE[name], held, FACTS) is not None


def test_no_expiry_is_not_past() -> None:
    """A record without an expiry never expires."""
    for name, state in (("expire", S.COMPLETED), ("claim_expired", S.FAILED_RETRYABLE)):
        assert refusal(TABLE[name], replace(RECORD, state=state, expires_at=None), FACTS) == G.PAST_EXPIRY.value


def test_a_cleared_token_is_nobodys() -> None:
    """An empty token never matches an empty token."""
    assert refusal(TABLE["complete"], replace(RECORD, token=b""), FACTS._replace(token=b"")) == G.TOKEN.value


@pytest.mark.parametrize(("source", "target"), list(itertools.product(State, State)))
@pytest.mark.parametrize("token", [TOKEN, OTHER], ids=["owner", "other"])
def test_settling_takes_a_row_or_nothing(source: State, target: State, token: bytes) -> None:
    """A settlement by the owner takes the table's row for it or repeats itself; everything else changes nothing."""
    record = replace(RECORD, state=source, lease_until=PAST)
    new = settled(record, Settlement(b"id", token, target, b"outcome", keep_for=7, due_for=5, note="why"), NOW)
    if token == TOKEN and source is target:
        assert new is record
    elif token == TOKEN and (source, target) in SETTLING:
        written = {"version": 5, "outcome": b"outcome", "note": "why", "due_at": NOW + 5, "expires_at": NOW + 7}
        assert new == replace(record, state=target, lease_until=None, **written)
    else:
        assert new is None


def test_settling_rows_are_the_owners() -> None:
    """The rows of settling are those whose owner, or last owner, acts and ends its attempt."""
    ending = {name for name, row in TABLE.items() if "owner" in row.who and row.target not in (None, S.EXECUTING)}
    assert {row.name for row in SETTLING.values()} == ending


@pytest.mark.parametrize("state", State)
@pytest.mark.parametrize("begin", [False, True])
def test_renewing_keeps_the_phase_or_begins(state: State, begin: bool) -> None:
    """A renewal of a living lease moves its end and perhaps sets the latch; settled records are not revived."""
    record = replace(RECORD, state=state, lease_until=AHEAD, waited=True)
    new = renewed(record, Renewal(b"id", TOKEN, 90, cap_for=501, begin=begin), NOW)
    if state in IN_PROGRESS:
        assert new == replace(record, state=S.EXECUTING if begin else state, version=5, lease_until=NOW + 90)
    else:
        assert new is None


@pytest.mark.parametrize("broken", [G.TOKEN, G.LEASE_ALIVE, G.BELOW_CAP])
def test_renewing_is_guarded(broken: Guard) -> None:
    """Another token, a lease that is over and an attempt that is too old are not renewed."""
    record, facts = BREAKING[broken](replace(RECORD, lease_until=AHEAD), FACTS)
    assert renewed(record, Renewal(b"id", facts.token, 90, cap_for=facts.cap_for or 0), NOW) is None


MOVING = [name for name in TABLE if name.startswith(("lapse", "reconcile", "override"))]


@pytest.mark.parametrize("name", MOVING)
def test_moving_clears_the_token_unless_the_truth_may_come_late(name: str) -> None:
    """After a lapse, a reconciliation or an override the old owner is out, except where its truth is still wanted."""
    row = TABLE[name]
    source = row.sources[0]
    record, facts = fitting(row, source)
    assert record is not None
    assert row.target is not None
    new = moved(name, record, facts, Aftermath(due_for=5, keep_for=7, note="why", outcome=b"outcome"))
    written = {"version": 5, "note": "why", "outcome": b"outcome", "due_at": NOW + 5, "expires_at": NOW + 7}
    token = TOKEN if name == "lapse_executing" else b""
    assert new == replace(record, state=row.target, token=token, lease_until=None, **written)
    assert moved(name, replace(record, state=S.EXPIRED), Facts(NOW), Aftermath()) is None


def test_moving_needs_a_target() -> None:
    """Rows without a fixed target are not moves."""
    assert moved("renew", replace(RECORD, lease_until=AHEAD), FACTS, Aftermath()) is None
    assert moved("expire", replace(RECORD, state=S.COMPLETED), FACTS, Aftermath()) is None


CLAIM = Claim(b"id", OTHER, b"new print", 30, S.CLAIMED, Guarantee.TRANSACTIONAL, Label("s", "e", "k"))


def test_a_claim_makes_a_first_attempt() -> None:
    """From absence and past an expiry a claim starts anew; nothing of the old record but its version goes on."""
    fresh = claimed(None, CLAIM, NOW)
    assert (fresh.version, fresh.attempts, fresh.lease_until, fresh.claimed_at) == (1, 1, NOW + 30, NOW)
    again = claimed(replace(RECORD, waited=True, outcome=b"old", note="old"), CLAIM, NOW)
    assert again == replace(fresh, version=5)


def test_another_attempt_is_counted() -> None:
    """A retry and a take-over count the attempt."""
    assert claimed(RECORD, CLAIM, NOW, another_attempt=True).attempts == 3


@pytest.mark.parametrize("guarantee", Guarantee)
def test_every_record_in_progress_has_one_lapse(guarantee: Guarantee) -> None:
    """For each phase and guarantee exactly one lapse row applies once the lease is over, and none before."""
    for state in IN_PROGRESS:
        record = replace(RECORD, state=state, guarantee=guarantee, lease_until=PAST)
        allowed = [
            name for name in TABLE if name.startswith("lapse") and refusal(TABLE[name], record, Facts(NOW)) is None
        ]
        assert allowed == [lapse_row(record)]
        assert refusal(TABLE[lapse_row(record)], replace(record, lease_until=AHEAD), Facts(NOW)) is not None


def test_states_are_sorted_into_groups() -> None:
    """Every state is open or final, and the public words are those of the docs."""
    assert set(OPEN) | set(FINAL) == set(State)
    assert not set(OPEN) & set(FINAL)
    assert {state.word for state in State} == {"in_progress", "completed", "failed_retryable", "unknown", "expired"}
