"""Rows claim and claim_expired's first half: what a claim gets, and what it leaves behind."""

from __future__ import annotations

import secrets

from oncekey.core.record import NO_LABEL, Guarantee, Label, State
from oncekey.testing.bench import HOUR, SOON, Bench, a_claim, a_settlement, another_request
from oncekey.testing.expect import done, expect, holds, stands, won
from oncekey.testing.scenarios.registry import scenario


@scenario
def a_free_key_is_granted(bench: Bench) -> None:
    """A claim on a free key is granted with its whole lease, and the record says what was claimed."""
    label = Label("tenant-1", "POST /orders", "order-1")
    claim = a_claim(guarantee=Guarantee.TRANSACTIONAL, label=label)
    before = bench.now()
    left = won(bench.store.claim([claim])[0])
    record, now = bench.seen(claim.id)
    expect(record.id, claim.id, "the record carries its id")
    expect((record.state, record.token), (State.EXECUTING, claim.token), "the claimant owns it")
    expect((record.fingerprint, record.label), (claim.fingerprint, label), "what was asked is kept")
    expect((record.guarantee, record.attempts), (Guarantee.TRANSACTIONAL, 1), "guarantee and attempt are kept")
    expect((record.outcome, record.note, record.waited), (b"", "", False), "nothing else is known yet")
    expect((record.due_at, record.expires_at), (None, None), "an open record has no retention")
    holds(before <= record.claimed_at <= now, "claimed_at is the store's time", record.claimed_at)
    holds(0 < left <= HOUR, "left_for is what is left of the lease", left)
    expect(record.lease_until, record.claimed_at + HOUR, "the lease counts from the claim")


@scenario
def a_claim_may_leave_the_latch_open(bench: Bench) -> None:
    """A claim asks for the phase claimed or executing, and gets the one it asked for."""
    for state in (State.CLAIMED, State.EXECUTING):
        expect(bench.record(bench.won(state=state).id).state, state, "the phase asked for")


@scenario
def every_guarantee_is_kept(bench: Bench) -> None:
    """The guarantee of the claim is the guarantee of the record."""
    for guarantee in Guarantee:
        expect(bench.record(bench.won(guarantee=guarantee).id).guarantee, guarantee, "the guarantee is kept")


@scenario
def a_repeated_claim_shows_its_own_record(bench: Bench) -> None:
    """A claim whose first answer was lost finds its own token, and the record is not touched."""
    claim = bench.won()
    first = bench.record(claim.id)
    expect(stands(bench.store.claim([claim])[0]), first, "the repeated claim sees its own record")
    expect(bench.record(claim.id), first, "and changes nothing")


@scenario
def a_taken_key_is_shown_and_not_touched(bench: Bench) -> None:
    """A claim on a record in any state returns that record whole and changes nothing."""
    settlings = (State.COMPLETED, State.FAILED_RETRYABLE, State.UNKNOWN)
    claims = [bench.won(), bench.won(state=State.CLAIMED), bench.lapsed(), *(bench.settled(s) for s in settlings)]
    for claim in claims:
        before = bench.record(claim.id)
        other = another_request(claim, fingerprint=b"another request", label=Label("x", "y", "z"))
        expect(stands(bench.store.claim([other])[0]), before, f"a claim on {before.state.name} shows it")
        expect(bench.record(claim.id), before, f"a claim on {before.state.name} changes nothing")


@scenario
def an_expired_record_is_not_overwritten_by_a_claim(bench: Bench) -> None:
    """A claim never overwrites: past its expiry a record is shown as it stands, unless the store has dropped it."""
    claim = bench.settled(keep_for=10 * SOON)
    before = bench.record(claim.id)
    bench.wait_until(before.expires_at)
    other = another_request(claim)
    found = bench.store.claim([other])[0]
    if bench.record(claim.id).token == other.token:
        won(found, "a claim that stands was granted")
    else:
        expect(stands(found), before, "the expired record is shown")


@scenario
def a_batch_answers_in_order(bench: Bench) -> None:
    """Each claim of a batch has its own result at its own place, and taken keys do not disturb free ones."""
    taken = [bench.won(), bench.settled()]
    free = [a_claim() for _ in range(3)]
    batch = [free[0], another_request(taken[0]), free[1], another_request(taken[1]), free[2]]
    found = bench.store.claim(batch)
    expect(len(found), 5, "one result for each claim")
    for place in (0, 2, 4):
        won(found[place], "a free key of the batch")
    expect([stands(found[1]).id, stands(found[3]).id], [one.id for one in taken], "the holders, in order")


@scenario
def a_large_batch_is_one_claim_each(bench: Bench) -> None:
    """Three hundred claims in one call are granted, each to its owner; again, they all show themselves."""
    batch = [a_claim(label=Label("t", "e", str(number))) for number in range(300)]
    for found in bench.store.claim(batch):
        won(found)
    again = [stands(found) for found in bench.store.claim(batch)]
    expect([record.token for record in again], [claim.token for claim in batch], "own tokens, in order")
    expect([record.label.key for record in again], [claim.label.key for claim in batch], "own labels, in order")
    for written in bench.store.settle([a_settlement(claim) for claim in batch]):
        done(written, "and settled in one call too")


@scenario
def a_repeated_batch_is_partly_own(bench: Bench) -> None:
    """A batch that was half applied before its answer was lost is finished by its repetition."""
    batch = [a_claim() for _ in range(6)]
    bench.store.claim(batch[:3])
    found = bench.store.claim(batch)
    expect([stands(one).token for one in found[:3]], [one.token for one in batch[:3]], "the first half is ours")
    for one in found[3:]:
        won(one, "the second half is granted")


@scenario
def an_empty_batch_is_an_empty_answer(bench: Bench) -> None:
    """A batch of nothing is answered with nothing, by every verb that takes batches."""
    expect(bench.store.claim([]), [], "claim")
    expect(bench.store.settle([]), [], "settle")
    expect(bench.store.renew([]), [], "renew")


@scenario
def ids_may_hold_any_bytes(bench: Bench) -> None:
    """Ids are bytes: no two of them are taken for one, whatever bytes they hold."""
    tail = secrets.token_bytes(8)
    heads = [bytes(12), b"\xff" * 12, b"abcabcabcabc", b"ABCABCABCABC", b"abcabcabcab ", b"abcabcabcab\x00"]
    heads += [b"{tag}{tag}xx", b"'; DROP x;--", b"%s%%_?*[a-c]", b"\r\n\r\n\t\\\\\"\"''", "ﬁßéＡ".encode()[:10] + b"  "]
    claims = [a_claim(id=head + tail) for head in heads]
    for found in bench.store.claim(claims):
        won(found, "another id is another key")
    for claim in claims:
        record = bench.record(claim.id)
        expect((record.id, record.token), (claim.id, claim.token), "each id has its own record")


@scenario
def claims_come_back_byte_for_byte(bench: Bench) -> None:
    """Tokens, fingerprints and labels come back as they went in."""
    labels = [
        NO_LABEL,
        Label("täñant 租户 🏦", "POST /ö/{id}?a=b&c='\"\\", 'k"' * 127),
        Label("s" * 255, "e" * 900, "k" * 255),
    ]
    tokens = [b"\x00" * 15 + b"\x01", b"\xff" * 16, bytes(range(16))]
    fingerprints = [b"\x00", bytes(range(200)), b"\xff\x00" * 32]
    for label, token, fingerprint in zip(labels, tokens, fingerprints, strict=True):
        claim = bench.won(label=label, token=token, fingerprint=fingerprint)
        record = bench.record(claim.id)
        expect(record.label, label, "the label")
        expect((record.token, record.fingerprint), (token, fingerprint), "token and fingerprint")


@scenario
def no_label_fails_a_claim(bench: Bench) -> None:
    """A label is for reading: whatever text a client got into it, its claim and its neighbours' are granted."""
    odd = [
        Label("s" * 300, "e" * 70_000, "k" * 70_000),
        Label("\x00", "POST /\x00", "\x00"),
        Label("\ud800", "\udcff", ""),
    ]
    claims = [a_claim(), *(a_claim(label=label) for label in odd), a_claim()]
    for claim, found in zip(claims, bench.store.claim(claims), strict=True):
        won(found)
        expect(bench.record(claim.id).token, claim.token, "each has its own record")
        done(bench.settle(claim), "and is settled like any other")


@scenario
def clients_of_one_store_see_each_other(bench: Bench) -> None:
    """What one client wrote, another client of the same records sees at once."""
    other = bench.another()
    claim = bench.won()
    expect(stands(other.get(claim.id)).token, claim.token, "the other client sees the claim")
    expect(stands(other.claim([another_request(claim)])[0]).token, claim.token, "and cannot have it")
    bench.settle(claim, outcome=b"from the first")
    expect(stands(other.get(claim.id)).outcome, b"from the first", "the other client sees the outcome")


@scenario
def an_absent_record_is_absent(bench: Bench) -> None:
    """What was never claimed is not there, for reading and for watching."""
    missing = a_claim().id
    expect((bench.store.get(missing), bench.store.watch(missing)), (None, None), "nothing is there")
