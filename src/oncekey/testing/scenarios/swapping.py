"""Compare-and-set, and the rows that come by it: lapse, retry, take over, reconcile, override."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable

from oncekey.core.commands import Swap, Written
from oncekey.core.decision import Execute, InProgress, Mismatch, Refused, Replay, Unknown
from oncekey.core.flows import lapse
from oncekey.core.record import Guarantee, Label, Record, State, replace
from oncekey.core.transitions import Aftermath, Facts, claimed, moved
from oncekey.testing.bench import HOUR, SOON, TERMS, Bench, a_claim, a_settlement, another_request
from oncekey.testing.expect import done, expect, holds, is_a, remembered, stale
from oncekey.testing.scenarios.registry import scenario


def move(bench: Bench, claim_id: bytes, row: str, facts: Facts) -> Record:
    """Take one row of the table by compare-and-set, as a sweep, a reconciler or an operator does."""
    seen = bench.seen(claim_id)
    after = Aftermath(keep_for=HOUR, note=f"by {row}", outcome=b"found out" if row.endswith("ed") else b"")
    new = is_a(Record, moved(row, seen.record, facts._replace(now=seen.now), after), f"the table allows {row}")
    done(bench.store.swap(Swap(seen.record, new)), row)
    expect(remembered(bench.record(claim_id)), remembered(new), f"{row} is stored whole")
    return new


@scenario
def a_swap_stores_the_record_whole(bench: Bench) -> None:
    """A swap on the right version stores every field of the new record."""
    for state in State:
        claim = bench.won()
        old = bench.record(claim.id)
        new = Record(
            id=claim.id,
            state=state,
            version=old.version + 1,
            token=b"" if state is State.FAILED_RETRYABLE else b"\x01" * 16,
            fingerprint=b"another recipe",
            guarantee=Guarantee.DEDUPLICATED_DOWNSTREAM,
            attempts=7,
            claimed_at=old.claimed_at + 1,
            lease_until=old.claimed_at + HOUR if state.word == "in_progress" else None,
            due_at=old.claimed_at + 2 * HOUR,
            expires_at=old.claimed_at + 3 * HOUR if state not in {State.UNKNOWN, State.CLAIMED} else None,
            label=Label("ö", "POST /x", "k"),
            note="weil nötig",
            outcome=b"\x00outcome\xff" if state is not State.EXPIRED else b"",
        )
        done(bench.store.swap(Swap(old, new)), "the version stands")
        expect(remembered(bench.record(claim.id)), remembered(new), f"every field of {state.name}")


@scenario
def a_swap_on_an_old_version_is_refused(bench: Bench) -> None:
    """Whoever saw an older version changes nothing, be it a renewal, a settlement or a swap that came between."""
    claim = bench.won()
    seen = bench.record(claim.id)
    stolen = replace(seen, version=seen.version + 1, token=b"\x02" * 16)
    writers: tuple[Callable[[], Written], ...] = (
        lambda: bench.renew(claim),
        lambda: bench.settle(claim, State.UNKNOWN),
        lambda: bench.store.swap(Swap(bench.record(claim.id), replace(stolen, version=99))),
    )
    for write in writers:
        done(write(), "somebody else writes")
        before = bench.record(claim.id)
        expect(stale(bench.store.swap(Swap(seen, stolen)), "old version"), before, "it is shown")
        expect(bench.record(claim.id), before, "nothing changes")
    missing = a_claim()
    swap = Swap(replace(seen, id=missing.id), replace(stolen, id=missing.id))
    expect(stale(bench.store.swap(swap), "absent"), None, "nothing stands there")
    expect(bench.store.get(missing.id), None, "a swap makes nothing")


@scenario
def a_repeated_swap_shows_itself(bench: Bench) -> None:
    """A swap whose answer was lost finds its own record when repeated, and the rules recognise it as their own."""
    claim = bench.settled(State.FAILED_RETRYABLE)
    seen = bench.seen(claim.id)
    mine = another_request(claim)
    swap = Swap(seen.record, claimed(seen.record, mine, seen.now, another_attempt=True))
    done(bench.store.swap(swap), "the first")
    expect(is_a(Record, stale(bench.store.swap(swap), "its repetition"), "shown").token, mine.token, "it is our own")
    expect(is_a(Execute, bench.enter(mine), "the rules know it").attempt, 2, "still the second attempt")


@scenario
def a_lapse_before_begin_frees_the_key(bench: Bench) -> None:
    """A lease that ends before the latch was set leaves a retryable record, and the next request runs."""
    claim = bench.lapsed(state=State.CLAIMED)
    decision = is_a(Execute, bench.enter(another_request(claim)), "the next request runs")
    expect(decision.attempt, 2, "as the second attempt")
    record = bench.record(claim.id)
    expect(record.token, decision.token, "it owns the record now")
    holds(record.version >= 3, "the lapse and the retry each raised the version", record.version)


@scenario
def a_lapse_while_executing_is_unknown(bench: Bench) -> None:
    """With at_most_once a lease that ends during the work makes the key unknown, and nothing runs again."""
    claim = bench.lapsed()
    for _ in range(3):
        is_a(Unknown, bench.enter(another_request(claim)), "nobody runs it")
    record = bench.record(claim.id)
    expect((record.state, record.token), (State.UNKNOWN, claim.token), "unknown, token kept")
    holds(record.due_at is not None, "a reconciler is told when to ask", record)


@scenario
def a_lapsed_attempt_is_taken_over_where_allowed(bench: Bench) -> None:
    """With one of the other guarantees the next request takes a lapsed attempt over, and the old owner is stale."""
    for guarantee in (Guarantee.TRANSACTIONAL, Guarantee.DEDUPLICATED_DOWNSTREAM):
        claim = bench.lapsed(guarantee=guarantee)
        version = bench.record(claim.id).version
        decision = is_a(Execute, bench.enter(another_request(claim)), "taken over")
        record = bench.record(claim.id)
        expect((record.token, record.attempts), (decision.token, 2), "a new owner, a second attempt")
        holds(record.version > version, "the version grows", record.version)
        for target in (State.COMPLETED, State.FAILED_RETRYABLE, State.UNKNOWN):
            stale(bench.settle(claim, target), f"the old owner cannot settle to {target.name}")
        stale(bench.renew(claim), "the old owner cannot renew")
        expect(bench.record(claim.id), record, "the new owner's record is untouched")


@scenario
def a_living_attempt_is_left_alone(bench: Bench) -> None:
    """While a lease is alive every other request is in progress, with the true time left, whatever the guarantee."""
    for guarantee in Guarantee:
        claim = bench.won(guarantee=guarantee)
        left = is_a(InProgress, bench.enter(another_request(claim)), "in progress").left_for
        holds(0 < left <= HOUR, "the time left", left)
        expect(bench.record(claim.id).token, claim.token, "the owner keeps it")


@scenario
def another_request_is_a_mismatch(bench: Bench) -> None:
    """Another fingerprint neither runs nor sees an answer, whatever the state."""
    ends = (State.COMPLETED, State.FAILED_RETRYABLE, State.UNKNOWN)
    claims = [bench.won(), bench.lapsed(guarantee=Guarantee.TRANSACTIONAL), *(bench.settled(end) for end in ends)]
    for claim in claims:
        before = bench.record(claim.id)
        is_a(Mismatch, bench.enter(another_request(claim, fingerprint=b"other")), f"on {before.state.name}")
        expect(bench.record(claim.id), before, "nothing changes")


@scenario
def a_failure_is_retried_when_its_time_has_come(bench: Bench) -> None:
    """A retryable failure waits until its not-before, then runs once more; its old owner cannot touch it."""
    claim = bench.settled(State.FAILED_RETRYABLE, due_for=HOUR)
    holds(0 < is_a(InProgress, bench.enter(another_request(claim)), "too early").left_for <= HOUR, "the time left")
    claim = bench.settled(State.FAILED_RETRYABLE, due_for=SOON)
    bench.wait_until(bench.record(claim.id).due_at)
    expect(is_a(Execute, bench.enter(another_request(claim)), "its time has come").attempt, 2, "the second attempt")
    before = bench.record(claim.id)
    stale(bench.settle(claim, State.FAILED_RETRYABLE), "a late repetition by the old owner")
    expect(bench.record(claim.id), before, "changes nothing")


@scenario
def attempts_have_a_limit(bench: Bench) -> None:
    """When the attempts are used up the key is refused for good, and the record stays."""
    terms = dataclasses.replace(TERMS, attempts=2)
    claim = bench.settled(State.FAILED_RETRYABLE)
    second = another_request(claim)
    expect(is_a(Execute, bench.enter(second, terms), "the second attempt").attempt, 2, "counted")
    done(bench.settle(second, State.FAILED_RETRYABLE), "it fails too")
    before = bench.record(claim.id)
    expect(is_a(Refused, bench.enter(another_request(claim), terms), "no third").reason, "exhausted", "said why")
    expect(bench.record(claim.id), before, "nothing changes")


@scenario
def a_reconciler_settles_an_unknown(bench: Bench) -> None:
    """A reconciler that saw the effect completes; one that made sure it cannot land frees the key for a retry."""
    seen = bench.settled(State.UNKNOWN, keep_for=None)
    expect(move(bench, seen.id, "reconcile_done", Facts(0, effect_seen=True)).token, b"", "the token is cleared")
    is_a(Replay, bench.enter(another_request(seen)), "the answer is replayed")
    cancelled = bench.settled(State.UNKNOWN, keep_for=None)
    move(bench, cancelled.id, "reconcile_not_done", Facts(0, cannot_land=True))
    expect(is_a(Execute, bench.enter(another_request(cancelled)), "it may run").attempt, 2, "as another attempt")


@scenario
def a_reconciler_that_saw_an_older_version_is_refused(bench: Bench) -> None:
    """The owner's late truth wins over a reconciler that looked before it."""
    claim = bench.settled(State.UNKNOWN, keep_for=None)
    seen = bench.seen(claim.id)
    new = is_a(Record, moved("reconcile_not_done", seen.record, Facts(seen.now, cannot_land=True), Aftermath()), "row")
    done(bench.settle(claim, outcome=b"the truth"), "late truth")
    stale(bench.store.swap(Swap(seen.record, new)), "the reconciler looked too early")
    expect(bench.record(claim.id).outcome, b"the truth", "the truth stays")


@scenario
def an_operator_may_override(bench: Bench) -> None:
    """With a reason an operator completes or frees a record in any state, and its owner can change nothing after."""
    for row in ("override_completed", "override_retryable"):
        for claim in (
            bench.won(),
            bench.settled(),
            bench.settled(State.UNKNOWN),
            bench.settled(State.FAILED_RETRYABLE),
        ):
            new = move(bench, claim.id, row, Facts(0, reason="seen in the provider's books"))
            expect(new.token, b"", "the token is cleared")
            stale(bench.store.settle([a_settlement(claim, outcome=b"too late")])[0], "the owner is told so")
            stale(bench.renew(claim), "and cannot renew")
            expect(bench.record(claim.id).outcome, new.outcome, "the override stays")


@scenario
def a_sweep_finds_nothing_to_do_on_living_and_settled_records(bench: Bench) -> None:
    """Only a lease that is over lapses: living and settled records are left alone."""
    for claim in (bench.won(), bench.won(state=State.CLAIMED), bench.settled(), bench.settled(State.UNKNOWN)):
        expect(lapse(bench.seen(claim.id), TERMS), None, "nothing lapses")
