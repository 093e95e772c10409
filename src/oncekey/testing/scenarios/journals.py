"""The journal: what an operation without an outcome has done so far, kept in the place of the outcome."""

from __future__ import annotations

from oncekey.core.commands import Swap
from oncekey.core.decision import Execute
from oncekey.core.flows import lapse
from oncekey.core.record import Guarantee, Record, State
from oncekey.core.transitions import Aftermath, Facts, moved
from oncekey.testing.bench import HOUR, SOON, TERMS, Bench, a_renewal, a_settlement, another_request
from oncekey.testing.expect import done, expect, is_a, stale
from oncekey.testing.scenarios.registry import scenario

FIRST, SECOND = b"\x10\x13\x00 first \xff", b"\x10\x13 second, and longer \x00\x01"


@scenario
def a_journal_is_kept_with_the_latch(bench: Bench) -> None:
    """The latch, the lease and the journal are one write; a newer journal replaces the older one."""
    claim = bench.won(state=State.CLAIMED)
    done(bench.renew(claim, begin=True, outcome=FIRST), "begin with a journal")
    record = bench.record(claim.id)
    expect((record.state, record.outcome), (State.EXECUTING, FIRST), "both are written")
    for journal in (SECOND, b"short", bytes(range(256)) * 200, b""):
        done(bench.renew(claim, outcome=journal), "a newer journal")
        expect(bench.record(claim.id).outcome, journal, "byte for byte")
    expect(bench.record(claim.id).label, record.label, "the rest of the record is whole")


@scenario
def a_renewal_without_a_journal_leaves_it(bench: Bench) -> None:
    """Ordinary renewals, among them those of one batch with a new journal, leave the journal alone."""
    claim, other = bench.won(), bench.won()
    done(bench.renew(claim, outcome=FIRST), "the journal")
    written = bench.store.renew([a_renewal(claim), a_renewal(other, outcome=SECOND)])
    for one in written:
        done(one, "a batch of both kinds")
    expect((bench.record(claim.id).outcome, bench.record(other.id).outcome), (FIRST, SECOND), "each its own")


@scenario
def a_refused_renewal_keeps_no_journal(bench: Bench) -> None:
    """Whoever may not renew, writes no journal either."""
    claim = bench.won()
    done(bench.renew(claim, outcome=FIRST), "the journal")
    stale(bench.renew(another_request(claim), outcome=SECOND), "another token")
    stale(bench.renew(claim, cap_for=0, outcome=SECOND), "over the cap")
    expect(bench.record(claim.id).outcome, FIRST, "it stays")
    over = bench.lapsed()
    stale(bench.renew(over, begin=True, outcome=SECOND), "a lease that is over")
    expect(bench.record(over.id).outcome, b"", "nothing is written")


@scenario
def a_journal_survives_an_end_that_is_none(bench: Bench) -> None:
    """Unknown and failed records keep their journal, or the newer one that the settlement brings; note and all."""
    for target in (State.UNKNOWN, State.FAILED_RETRYABLE):
        for brought, kept in ((b"", FIRST), (SECOND, SECOND)):
            claim = bench.won()
            done(bench.renew(claim, outcome=FIRST), "the journal")
            done(bench.settle(claim, target, outcome=brought, note="why"), target.name)
            record = bench.record(claim.id)
            expect((record.state, record.outcome, record.note), (target, kept, "why"), f"{target.name}, {brought!r}")
            expect(record.label, claim.label, "the rest of the record is whole")


@scenario
def an_outcome_replaces_the_journal(bench: Bench) -> None:
    """Completing replaces the journal, even with nothing: from executing, and from unknown."""
    for outcome in (b"answer", b""):
        claim = bench.won()
        done(bench.renew(claim, outcome=FIRST), "the journal")
        done(bench.settle(claim, outcome=outcome), "complete")
        expect(bench.record(claim.id).outcome, outcome, "the outcome alone")
    late = bench.won()
    done(bench.renew(late, outcome=FIRST), "the journal")
    done(bench.settle(late, State.UNKNOWN, outcome=b""), "unknown")
    done(bench.settle(late, outcome=b"late"), "late truth")
    expect(bench.record(late.id).outcome, b"late", "the outcome alone")


@scenario
def a_batch_of_ends_keeps_each_journal(bench: Bench) -> None:
    """In one batch of settlements each record keeps, or loses, its own journal."""
    claims = [bench.won() for _ in range(3)]
    for number, claim in enumerate(claims):
        done(bench.renew(claim, outcome=FIRST + bytes([number])), "the journal")
    targets = (State.UNKNOWN, State.COMPLETED, State.FAILED_RETRYABLE)
    for one in bench.store.settle([a_settlement(c, t, outcome=b"") for c, t in zip(claims, targets, strict=True)]):
        done(one, "settled")
    found = [bench.record(claim.id).outcome for claim in claims]
    expect(found, [FIRST + b"\x00", b"", FIRST + b"\x02"], "each its own")


@scenario
def a_journal_survives_a_lapse(bench: Bench) -> None:
    """Whatever a lease that is over turns the record into, its journal stays."""
    for changes in ({}, {"state": State.CLAIMED}, {"guarantee": Guarantee.TRANSACTIONAL}):
        claim = bench.won(**changes)
        done(bench.renew(claim, outcome=FIRST, lease_for=SOON), "the journal")
        bench.wait_until(bench.record(claim.id).lease_until)
        seen = bench.seen(claim.id)
        done(bench.store.swap(Swap(seen.record, is_a(Record, lapse(seen, TERMS), "it lapses"))), "the lapse")
        expect(bench.record(claim.id).outcome, FIRST, f"{bench.record(claim.id).state.name} keeps it")


@scenario
def the_next_attempt_is_given_the_journal(bench: Bench) -> None:
    """Who retries, and who takes over, is told what was done before, and finds it in the record."""
    failed = bench.won()
    done(bench.renew(failed, outcome=FIRST), "the journal")
    done(bench.settle(failed, State.FAILED_RETRYABLE, outcome=b""), "no effect")
    lapsed = bench.won(guarantee=Guarantee.DEDUPLICATED_DOWNSTREAM)
    done(bench.renew(lapsed, outcome=FIRST, lease_for=SOON), "the journal")
    bench.wait_until(bench.record(lapsed.id).lease_until)
    for claim in (failed, lapsed):
        execute = is_a(Execute, bench.enter(another_request(claim)), "it may run again")
        expect((execute.attempt, execute.journal), (2, FIRST), "with the journal")
        expect(bench.record(claim.id).outcome, FIRST, "and the record still has it")


@scenario
def a_key_that_has_expired_starts_without_a_journal(bench: Bench) -> None:
    """A failed operation that is forgotten takes its journal with it: what comes after is new."""
    claim = bench.won()
    done(bench.renew(claim, outcome=FIRST), "the journal")
    done(bench.settle(claim, State.FAILED_RETRYABLE, outcome=b"", keep_for=SOON), "no effect")
    bench.outwait()
    execute = is_a(Execute, bench.enter(another_request(claim)), "a new operation")
    expect((execute.attempt, execute.journal), (1, b""), "with nothing behind it")
    expect(bench.record(claim.id).outcome, b"", "and nothing in its record")


@scenario
def an_answer_never_passes_for_a_journal(bench: Bench) -> None:
    """When an operator frees a completed key, its answer goes; a reconciler who frees an unknown keeps the journal."""
    answered = bench.settled(outcome=b"an answer")
    unknown = bench.won()
    done(bench.renew(unknown, outcome=FIRST), "the journal")
    done(bench.settle(unknown, State.UNKNOWN, outcome=b"", keep_for=None), "unknown")
    facts = Facts(0, cannot_land=True, reason="because")
    for claim, row, kept in ((answered, "override_retryable", b""), (unknown, "reconcile_not_done", FIRST)):
        seen = bench.seen(claim.id)
        new = is_a(Record, moved(row, seen.record, facts._replace(now=seen.now), Aftermath(keep_for=HOUR)), row)
        done(bench.store.swap(Swap(seen.record, new)), row)
        expect(bench.record(claim.id).outcome, kept, f"what stays after {row}")
