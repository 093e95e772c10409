"""Rows begin and renew: the lease, its end, its cap, and the latch."""

from __future__ import annotations

from oncekey.core.commands import Renewal, Swap
from oncekey.core.record import Record, State, replace
from oncekey.testing.bench import HOUR, Bench, a_claim, a_renewal, another_request
from oncekey.testing.expect import done, expect, holds, stale
from oncekey.testing.scenarios.registry import scenario


def refused(bench: Bench, renewal: Renewal, rule: str) -> None:
    """The renewal must change nothing, and be told what stands there."""
    before = bench.record(renewal.id)
    expect(stale(bench.store.renew([renewal])[0], rule), before, f"{rule}: what stands there is shown")
    expect(bench.record(renewal.id), before, f"{rule}: nothing changes")


@scenario
def a_living_lease_is_prolonged(bench: Bench) -> None:
    """Renewing moves the end of the lease, and nothing else but the version."""
    for state in (State.CLAIMED, State.EXECUTING):
        claim = bench.won(state=state)
        before = bench.record(claim.id)
        done(bench.renew(claim, lease_for=5 * HOUR), "the owner of a living lease renews")
        after, now = bench.seen(claim.id)
        holds(after.version > before.version, "every write raises the version", after.version)
        holds(now + 4 * HOUR < (after.lease_until or 0) <= now + 5 * HOUR, "the lease counts from now", after)
        unchanged = replace(after, version=before.version, lease_until=before.lease_until)
        expect(unchanged, before, "nothing else changes")


@scenario
def a_renewal_may_be_repeated(bench: Bench) -> None:
    """A renewal whose answer was lost succeeds again."""
    claim = bench.won()
    done(bench.renew(claim), "the first")
    done(bench.renew(claim), "its repetition")


@scenario
def a_lease_that_is_over_stays_over(bench: Bench) -> None:
    """A lease that is over is not renewed and not begun, even when nobody has noticed its end."""
    for state in (State.CLAIMED, State.EXECUTING):
        claim = bench.lapsed(state=state)
        refused(bench, a_renewal(claim), "a lease that is over")
        refused(bench, a_renewal(claim, begin=True), "a lease that is over, with the latch")


@scenario
def nobody_else_renews(bench: Bench) -> None:
    """Only the token of the record renews: another token and none change nothing."""
    claim = bench.won()
    refused(bench, a_renewal(another_request(claim)), "another token")
    refused(bench, a_renewal(claim, token=b""), "no token")
    refused(bench, a_renewal(another_request(claim), begin=True), "another token, with the latch")


@scenario
def an_old_attempt_is_not_renewed(bench: Bench) -> None:
    """An attempt older than its cap is not renewed, so that a hung handler does not hold its key for ever."""
    claim = bench.won()
    bench.wait_until(bench.record(claim.id).claimed_at + 5)
    refused(bench, a_renewal(claim, cap_for=5), "over the cap")
    done(bench.renew(claim, cap_for=HOUR), "below the cap")


@scenario
def a_settled_record_is_not_revived(bench: Bench) -> None:
    """Renewing a completed, failed or unknown record changes nothing, and is told so."""
    for target in (State.COMPLETED, State.FAILED_RETRYABLE, State.UNKNOWN):
        refused(bench, a_renewal(bench.settled(target)), f"renewing {target.name}")


@scenario
def an_absent_record_is_not_renewed(bench: Bench) -> None:
    """Renewing what is not there is stale, with nothing found."""
    expect(stale(bench.renew(a_claim()), "absent"), None, "nothing stands there")


@scenario
def the_latch_is_set_with_a_renewal(bench: Bench) -> None:
    """Begin turns claimed into executing in the same write that renews; begun again, it stays."""
    claim = bench.won(state=State.CLAIMED)
    version = bench.record(claim.id).version
    done(bench.renew(claim, begin=True), "begin")
    record = bench.record(claim.id)
    expect(record.state, State.EXECUTING, "the latch is set")
    holds(record.version > version, "the version grows", record.version)
    done(bench.renew(claim, begin=True), "begin again")
    done(bench.renew(claim), "an ordinary renewal after it")
    expect(bench.record(claim.id).state, State.EXECUTING, "the latch stays set")


@scenario
def no_deadline_is_neither_alive_nor_over(bench: Bench) -> None:
    """A record in progress without a deadline is held: it is not renewed, and nobody finds its lease over."""
    claim = bench.won()
    record = bench.record(claim.id)
    held: Record = replace(record, version=record.version + 1, lease_until=None)
    done(bench.store.swap(Swap(record, held)), "the deadline is taken away")
    refused(bench, a_renewal(claim), "no deadline")
    decision = bench.enter(another_request(claim))
    expect(type(decision).__name__, "InProgress", "it counts as in progress")
    expect(bench.record(claim.id), held, "and stays as it is")


@scenario
def a_batch_of_renewals_answers_in_order(bench: Bench) -> None:
    """Each renewal of a batch has its own result, and refused ones do not fail their neighbours."""
    good = [bench.won(), bench.won(state=State.CLAIMED)]
    over = bench.lapsed()
    foreign = another_request(bench.won())
    batch = [a_renewal(one) for one in (good[0], over, foreign, a_claim(), good[1])]
    found = bench.store.renew(batch)
    done(found[0], "the first")
    stale(found[1], "a lease that is over")
    stale(found[2], "another token")
    expect(stale(found[3], "absent"), None, "nothing stands there")
    done(found[4], "the last")
