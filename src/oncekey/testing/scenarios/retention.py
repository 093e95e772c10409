"""Rows expire and expire_softly: how long records stay, who may remove them, and who gets the key afterwards."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from oncekey.core.commands import Claim, Stale, Swap
from oncekey.core.decision import Execute, InProgress, Mismatch, Refused, Replay
from oncekey.core.record import OPEN, Record, State, replace
from oncekey.core.transitions import Aftermath, Facts, claimed, moved
from oncekey.stores.contract import Store
from oncekey.testing.bench import HOUR, SOON, Bench, another_request, at_once
from oncekey.testing.expect import RuleBroken, done, expect, holds, is_a, stale, won
from oncekey.testing.scenarios.registry import scenario

BATCHES = 1000


def purge_all(store: Store, limit: int = 500) -> None:
    """Purge batch by batch until the store says that nothing is left."""
    for _ in range(BATCHES):
        purged = store.purge(limit)
        holds(0 <= purged.deleted <= limit, f"a batch of {limit} deletes no more", purged.deleted)
        if not purged.more:
            return
    raise RuleBroken(f"purge still says that more is left after {BATCHES} batches of {limit}")


def expired(bench: Bench, number: int) -> list[Claim]:
    """Completed records whose retention is over."""
    claims = [bench.settled(keep_for=SOON) for _ in range(number)]
    bench.outwait()
    return claims


@scenario
def an_answer_is_replayed_until_it_expires(bench: Bench) -> None:
    """Within its retention a completed record is replayed byte for byte, to every request."""
    claim = bench.settled(outcome=b"\x00the answer\xff")
    for _ in range(3):
        replay = is_a(Replay, bench.enter(another_request(claim)), "a replay")
        expect(replay.record.outcome, b"\x00the answer\xff", "the same bytes")


@scenario
def an_expired_key_is_new(bench: Bench) -> None:
    """Past its expiry a key runs again as a first attempt, for whatever request; its old owner changes nothing."""
    for state in (State.COMPLETED, State.FAILED_RETRYABLE):
        claim = bench.settled(state, keep_for=SOON)
        bench.outwait()
        other = another_request(claim, fingerprint=b"something else")
        expect(is_a(Execute, bench.enter(other), "the key is new").attempt, 1, "a first attempt")
        expect(bench.record(claim.id).fingerprint, b"something else", "for what was asked now")
        stale(bench.settle(claim, state), "the old owner is stale")


@scenario
def an_expired_key_has_one_winner(bench: Bench) -> None:
    """Two requests that both saw the same expired record are told apart by its version: one gets the key."""
    claim = bench.settled(keep_for=10 * SOON)
    seen = bench.seen(claim.id)
    bench.wait_until(seen.record.expires_at)
    contenders = [another_request(claim), another_request(claim)]
    swaps = [Swap(seen.record, claimed(seen.record, one, bench.now())) for one in contenders]
    written = [bench.store.swap(swap) for swap in swaps]
    # A store that has dropped the record by itself gives it to neither, and to the first that claims it again.
    if not isinstance(written[0], Stale) or stale(written[0], "the first") is not None:
        done(written[0], "the first gets it")
        stale(written[1], "the second does not")
    decisions = [bench.enter(one) for one in contenders]
    expect(sorted(type(one).__name__ for one in decisions), ["Execute", "InProgress"], "one of them runs")


def completed_by_owner(bench: Bench, claim: Claim, keep_for: int) -> Record:
    """The record after its owner's settlement: the token stays."""
    done(bench.settle(claim, keep_for=keep_for), "its owner completes")
    return bench.record(claim.id)


def completed_by_operator(bench: Bench, claim: Claim, keep_for: int) -> Record:
    """The record after an override: the token is cleared."""
    seen = bench.seen(claim.id)
    facts = Facts(seen.now, reason="seen in the provider's books")
    new = is_a(Record, moved("override_completed", seen.record, facts, Aftermath(keep_for=keep_for)), "the row")
    done(bench.store.swap(Swap(seen.record, new)), "an operator completes")
    return bench.record(claim.id)


COMPLETIONS: tuple[Callable[[Bench, Claim, int], Record], ...] = (completed_by_owner, completed_by_operator)


@scenario
def a_swap_on_another_life_of_the_key_is_refused(bench: Bench) -> None:
    """Who saw a record before it was purged changes nothing on what was claimed and completed under its key since."""
    claims = [bench.won() for _ in COMPLETIONS]
    olds = [complete(bench, claim, 10 * SOON) for complete, claim in zip(COMPLETIONS, claims, strict=True)]
    bench.wait_until(max(old.expires_at or 0 for old in olds))
    purge_all(bench.store)
    for complete, claim, old in zip(COMPLETIONS, claims, olds, strict=True):
        fresh = another_request(claim)
        won(bench.store.claim([fresh])[0])
        # Versions may start again: then this record differs from the one that was seen in nothing but its life.
        stands = complete(bench, fresh, HOUR)
        late = Swap(old, claimed(old, another_request(claim), bench.now()))
        expect(stale(bench.store.swap(late), f"{complete.__name__}, an earlier life"), stands, "it is shown")
        expect(bench.record(claim.id), stands, "nothing changes")


@scenario
def purge_removes_what_has_expired(bench: Bench) -> None:
    """Purge removes completed and failed records past their expiry, in batches no larger than asked."""
    claims = expired(bench, 8)
    failed = bench.settled(State.FAILED_RETRYABLE, keep_for=SOON)
    bench.outwait()
    purge_all(bench.store, limit=3)
    for claim in (*claims, failed):
        expect(bench.store.get(claim.id), None, "the expired record is gone")
    purge_all(bench.store)


@scenario
def purge_comes_to_an_end(bench: Bench) -> None:
    """A key that ran again after its record expired is nothing to purge: a purge in the smallest batches ends."""
    claim = bench.settled(State.FAILED_RETRYABLE, keep_for=SOON)
    bench.outwait()
    is_a(Execute, bench.enter(another_request(claim)), "the key is new")
    purge_all(bench.store, limit=1)


@scenario
def purge_spares_what_is_kept(bench: Bench) -> None:
    """Purge spares records that have not expired, and those without an expiry, to the byte."""
    kept = [bench.settled(), bench.settled(keep_for=None), bench.settled(State.FAILED_RETRYABLE, keep_for=None)]
    before = [bench.record(claim.id) for claim in kept]
    expired(bench, 2)
    purge_all(bench.store)
    expect([bench.record(claim.id) for claim in kept], before, "what is kept stays as it is")


@scenario
def purge_spares_open_records(bench: Bench) -> None:
    """Nothing open is ever purged: living, lapsed and unknown records stay, even if an expiry got into them."""
    claims = [
        bench.won(),
        bench.lapsed(),
        bench.lapsed(state=State.CLAIMED),
        bench.settled(State.UNKNOWN, keep_for=SOON),
    ]
    for state in OPEN:
        claim = bench.won()
        record = bench.record(claim.id)
        odd = replace(record, state=state, version=record.version + 1, expires_at=record.claimed_at + SOON)
        done(bench.store.swap(Swap(record, odd)), "an expiry gets in")
        claims.append(claim)
    bench.wait_until(max(bench.record(claim.id).expires_at or 0 for claim in claims))
    before = [bench.record(claim.id) for claim in claims]
    purge_all(bench.store)
    expect([bench.record(claim.id) for claim in claims], before, "open records stay as they are")


@scenario
def an_answer_may_expire_before_its_key(bench: Bench) -> None:
    """Where the key is kept longer than the answer, the key stays shut without its answer, purged or not."""
    claim = bench.settled(due_for=SOON, outcome=b"secret" * 100)
    is_a(Replay, bench.enter(another_request(claim, fingerprint=claim.fingerprint)), "the answer is still there")
    bench.wait_until(bench.record(claim.id).due_at)
    expect(is_a(Refused, bench.enter(another_request(claim)), "before a purge").reason, "expired", "said why")
    version = bench.record(claim.id).version
    purge_all(bench.store)
    record = bench.record(claim.id)
    expect((record.state, record.outcome), (State.EXPIRED, b""), "the outcome is gone, the key stays")
    holds(record.version > version, "the version grows", record.version)
    expect(is_a(Refused, bench.enter(another_request(claim)), "after a purge").reason, "expired", "said why")
    is_a(Mismatch, bench.enter(another_request(claim, fingerprint=b"other")), "another request is still told apart")
    stale(bench.settle(claim), "the old owner changes nothing")
    purge_all(bench.store)
    expect(bench.record(claim.id), record, "a second purge changes nothing")


@scenario
def a_softly_expired_key_ends_too(bench: Bench) -> None:
    """When the key's own time is over as well, it is purged and runs again as new."""
    claims = [bench.settled(due_for=1, keep_for=5 * SOON) for _ in range(2)]
    bench.outwait(1)
    purge_all(bench.store)
    bench.outwait(5 * SOON)
    is_a(Execute, bench.enter(another_request(claims[0])), "the key is new")
    purge_all(bench.store)
    expect(bench.store.get(claims[1].id), None, "the other is purged")


@scenario
def several_purge_at_once(bench: Bench) -> None:
    """Several processes may purge at once: everything expired goes, everything kept stays, nobody fails."""
    kept = [bench.settled(), bench.won(), bench.settled(State.UNKNOWN)]
    before = [bench.record(claim.id) for claim in kept]
    claims = expired(bench, 30)
    clients = [bench.store, bench.another(), bench.store, bench.another()]
    at_once([lambda client=client: purge_all(client, limit=4) for client in clients])  # type: ignore[misc]
    for claim in claims:
        expect(bench.store.get(claim.id), None, "the expired record is gone")
    expect([bench.record(claim.id) for claim in kept], before, "what is kept stays as it is")


@scenario
def purge_never_takes_a_fresh_claim(bench: Bench) -> None:
    """A key that is claimed anew while a purge runs keeps its new claim, however the two meet."""
    claims = expired(bench, 40)
    fresh = [another_request(claim) for claim in claims]
    other = bench.another()

    def reclaim() -> None:
        for claim in fresh:
            is_a(Execute, bench.enter(claim, store=other), "the key is new")

    at_once([lambda: purge_all(bench.store, limit=2), reclaim, lambda: purge_all(bench.store, limit=7)])
    purge_all(bench.store)
    check_owners(bench, fresh)


def check_owners(bench: Bench, claims: Sequence[Claim]) -> None:
    """Every one of these claims must still own its record."""
    for claim in claims:
        record = bench.record(claim.id)
        expect((record.state.word, record.token), ("in_progress", claim.token), "the fresh claim stands")
        holds(isinstance(bench.enter(another_request(claim)), InProgress), "and is respected", HOUR)
