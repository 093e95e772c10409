"""Rows complete, late_truth, not_begun, no_effect and ambiguous: how work ends, and who may say so."""

from __future__ import annotations

import itertools

from oncekey.core.commands import Settlement, Swap
from oncekey.core.flows import lapse
from oncekey.core.record import Guarantee, Record, State, replace
from oncekey.core.transitions import Aftermath, Facts, moved
from oncekey.testing.bench import HOUR, TERMS, Bench, a_claim, a_settlement, another_request
from oncekey.testing.expect import done, expect, holds, is_a, remembered, stale
from oncekey.testing.scenarios.registry import scenario

# What a settlement writes beside the state; everything else stays.
WRITTEN = ("version", "lease_until", "due_at", "expires_at", "note", "outcome")
ENDS = (State.COMPLETED, State.FAILED_RETRYABLE, State.UNKNOWN)


def refused(bench: Bench, settlement: Settlement, rule: str) -> None:
    """The settlement must change nothing, and be told what stands there."""
    before = bench.record(settlement.id)
    expect(stale(bench.store.settle([settlement])[0], rule), before, f"{rule}: what stands there is shown")
    expect(bench.record(settlement.id), before, f"{rule}: nothing changes")


def settles(bench: Bench, settlement: Settlement, rule: str) -> Record:
    """The settlement must hold, be told Done, be visible, and be Done again without a change when repeated."""
    before = bench.record(settlement.id)
    done(bench.store.settle([settlement])[0], rule)
    after, now = bench.seen(settlement.id)
    expect(after.state, settlement.target, rule)
    holds(after.version > before.version, f"{rule}: the version grows", after.version)
    expect((after.outcome, after.note), (settlement.outcome, settlement.note), f"{rule}: outcome and note")
    expect(after.lease_until, None, f"{rule}: no lease is left")
    for at, after_for in ((after.expires_at, settlement.keep_for), (after.due_at, settlement.due_for)):
        if after_for is None:
            expect(at, None, f"{rule}: no time was asked for")
        else:
            holds(at is not None and now - HOUR < at - after_for <= now, f"{rule}: times count from now", at)
    written = {name: getattr(after, name) for name in ("state", *WRITTEN)}
    expect(remembered(after), remembered(replace(before, **written)), f"{rule}: the rest stays")
    done(bench.store.settle([settlement._replace(outcome=b"another answer", note="")])[0], f"{rule}: repeated")
    expect(bench.record(settlement.id), after, f"{rule}: a repetition changes nothing")
    return after


@scenario
def the_owner_completes(bench: Bench) -> None:
    """The owner completes from either phase; the repetition is Done and the first bytes stay."""
    for state in (State.CLAIMED, State.EXECUTING):
        settles(bench, a_settlement(bench.won(state=state), due_for=HOUR // 2), f"complete from {state.name}")


@scenario
def the_owner_completes_after_its_lease(bench: Bench) -> None:
    """A lease that is over does not stop the truth: nobody took over, so its owner still completes."""
    settles(bench, a_settlement(bench.lapsed()), "complete after the lease")


@scenario
def the_owner_declares_that_nothing_was_done(bench: Bench) -> None:
    """From either phase the owner may declare that no effect happened: the key may be tried again."""
    for state in (State.CLAIMED, State.EXECUTING):
        settlement = a_settlement(
            bench.won(state=state), State.FAILED_RETRYABLE, due_for=HOUR, note="declined, nothing done"
        )
        settles(bench, settlement, f"no effect from {state.name}")


@scenario
def the_owner_does_not_know(bench: Bench) -> None:
    """An ambiguous attempt becomes unknown and keeps its token, so that its owner can still bring the truth."""
    settlement = a_settlement(bench.won(), State.UNKNOWN, outcome=b"", keep_for=None, due_for=HOUR, note="no reply")
    settles(bench, settlement, "ambiguous")


@scenario
def what_was_not_begun_is_not_ambiguous(bench: Bench) -> None:
    """An attempt whose latch is open cannot become unknown by its owner: it knows that nothing was done."""
    refused(bench, a_settlement(bench.won(state=State.CLAIMED), State.UNKNOWN), "ambiguous before begin")


@scenario
def late_truth_is_welcome(bench: Bench) -> None:
    """From unknown its last owner completes, whether it or a sweep made it unknown."""
    said = bench.settled(State.UNKNOWN, keep_for=None)
    settles(bench, a_settlement(said), "late truth after ambiguous")
    swept = bench.lapsed()
    seen = bench.seen(swept.id)
    done(bench.store.swap(Swap(seen.record, is_a(Record, lapse(seen, TERMS), "it lapses"))), "lapse")
    settles(bench, a_settlement(swept), "late truth after a lapse")


@scenario
def late_truth_is_refused_after_reconciliation(bench: Bench) -> None:
    """Once an unknown was reconciled, either way, its last owner changes nothing and is told so."""
    for row, facts in (
        ("reconcile_done", Facts(0, effect_seen=True)),
        ("reconcile_not_done", Facts(0, cannot_land=True)),
    ):
        claim = bench.settled(State.UNKNOWN, keep_for=None)
        seen = bench.seen(claim.id)
        after = Aftermath(keep_for=HOUR, note="asked the receiver", outcome=b"reconciled")
        new = is_a(Record, moved(row, seen.record, facts._replace(now=seen.now), after), row)
        done(bench.store.swap(Swap(seen.record, new)), row)
        for target in ENDS:
            refused(bench, a_settlement(claim, target), f"{target.name} after {row}")


@scenario
def nobody_else_settles(bench: Bench) -> None:
    """Only the token of the record settles, in whatever state the record is."""
    for claim in (bench.won(), bench.won(state=State.CLAIMED), bench.lapsed(), *(bench.settled(end) for end in ENDS)):
        for target in ENDS:
            refused(bench, a_settlement(another_request(claim), target), f"another token, to {target.name}")
            refused(bench, a_settlement(claim, target, token=b""), f"no token, to {target.name}")


@scenario
def an_absent_record_is_not_settled(bench: Bench) -> None:
    """Settling what is not there is stale, and leaves nothing behind."""
    claim = a_claim()
    for target in ENDS:
        expect(stale(bench.settle(claim, target), "absent"), None, "nothing stands there")
    expect(bench.store.get(claim.id), None, "nothing was made")


@scenario
def ends_are_final(bench: Bench) -> None:
    """What is not in the table is refused: leaving completed or failed, and freeing an unknown, even by the owner."""
    for source, target in (
        (State.COMPLETED, State.FAILED_RETRYABLE),
        (State.COMPLETED, State.UNKNOWN),
        (State.FAILED_RETRYABLE, State.COMPLETED),
        (State.FAILED_RETRYABLE, State.UNKNOWN),
        (State.UNKNOWN, State.FAILED_RETRYABLE),
    ):
        refused(bench, a_settlement(bench.settled(source), target), f"{source.name} to {target.name}")


@scenario
def a_lapsed_claim_is_out_of_its_owners_hands(bench: Bench) -> None:
    """Where a lapse made the key free, the old owner cannot settle any more, but may learn what stands there."""
    for changes in ({"state": State.CLAIMED}, {"guarantee": Guarantee.TRANSACTIONAL}):
        claim = bench.lapsed(**changes)
        seen = bench.seen(claim.id)
        new = is_a(Record, lapse(seen, TERMS), "it lapses")
        expect((new.state, new.token), (State.FAILED_RETRYABLE, b""), "freed, token cleared")
        done(bench.store.swap(Swap(seen.record, new)), "lapse")
        for target in ENDS:
            refused(bench, a_settlement(claim, target), f"{target.name} after the lapse")


@scenario
def a_batch_of_settlements_answers_in_order(bench: Bench) -> None:
    """One batch may hold every kind of end and every kind of refusal; each has its own result at its own place."""
    kinds = [State.COMPLETED, State.UNKNOWN, State.FAILED_RETRYABLE]
    good = [a_settlement(bench.won(), kind, outcome=kind.name.encode()) for kind in kinds]
    bad = [a_settlement(another_request(bench.won())), a_settlement(a_claim())]
    repeated = a_settlement(bench.settled(outcome=b"first"), outcome=b"second")
    found = bench.store.settle([good[0], bad[0], good[1], bad[1], good[2], repeated])
    for place in (0, 2, 4, 5):
        done(found[place], f"place {place}")
    expect(is_a(Record, stale(found[1], "another token"), "shown").id, bad[0].id, "the refused one is shown")
    expect(stale(found[3], "absent"), None, "nothing stands there")
    for one in good:
        record = bench.record(one.id)
        expect((record.state, record.outcome), (one.target, one.outcome), "each its own outcome")
    expect(bench.record(repeated.id).outcome, b"first", "the first bytes stay")


@scenario
def outcomes_come_back_byte_for_byte(bench: Bench) -> None:
    """Outcomes of any bytes and sizes, and notes in any language, come back as they went in."""
    large = bytes(range(256)) * 800
    for outcome in (b"", b"\x00", bytes(range(256)), b"\x80\x04N.", large):
        settles(
            bench, a_settlement(bench.won(), outcome=outcome, note="grüße 🧾 'quoted' \\ {x}"), f"{len(outcome)} bytes"
        )
    batch = [a_settlement(bench.won(), outcome=large[number:]) for number in range(4)]
    bench.store.settle(batch)
    for one in batch:
        expect(bench.record(one.id).outcome, one.outcome, "large outcomes of one batch")


@scenario
def versions_only_grow(bench: Bench) -> None:
    """Every write of a record's life raises its version; nothing ever lowers it."""
    claim = bench.won(state=State.CLAIMED)
    versions = [bench.record(claim.id).version]

    def wrote() -> None:
        versions.append(bench.record(claim.id).version)

    bench.renew(claim, begin=True)
    wrote()
    bench.renew(claim)
    wrote()
    bench.settle(claim, State.UNKNOWN)
    wrote()
    bench.settle(claim)
    wrote()
    record = bench.record(claim.id)
    done(bench.store.swap(Swap(record, replace(record, version=record.version + 1))), "a swap")
    wrote()
    holds(versions[0] >= 1, "versions start at 1 or above", versions)
    holds(all(one < other for one, other in itertools.pairwise(versions)), "versions grow", versions)
