"""Many at once, in threads: one winner, no deadlock, nobody's result at somebody else's place."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence

from oncekey.core.commands import Claim, Done, Swap, Won
from oncekey.core.decision import Execute
from oncekey.core.record import State, replace
from oncekey.stores.contract import Store
from oncekey.testing.bench import SOON, Bench, a_claim, a_renewal, a_settlement, another_request, at_once
from oncekey.testing.expect import done, expect, holds, stands
from oncekey.testing.scenarios.registry import scenario

THREADS = 16


def clients(bench: Bench) -> list[Store]:
    """Two clients, taken in turns by the threads."""
    pair = (bench.store, bench.another())
    return [pair[number % 2] for number in range(THREADS)]


@scenario
def one_of_many_claims_wins(bench: Bench) -> None:
    """Of sixteen threads that claim one key at once exactly one is granted, and all others see the winner."""
    stores = clients(bench)
    for _ in range(5):
        first = a_claim()
        claims = [first, *(another_request(first) for _ in range(THREADS - 1))]
        found = at_once([_claiming(store, [claim]) for store, claim in zip(stores, claims, strict=True)])
        winners = [claim for claim, (one,) in zip(claims, found, strict=True) if isinstance(one, Won)]
        expect(len(winners), 1, "one winner")
        seen = {stands(one).token for (one,) in found if not isinstance(one, Won)}
        expect(seen, {winners[0].token}, "the losers see the winner")


@scenario
def batches_in_any_order_do_not_deadlock(bench: Bench) -> None:
    """Batches over the same keys in different orders all end, and every key has exactly one winner."""
    ids = [a_claim().id for _ in range(40)]
    orders = [ids[turn:] + ids[:turn] if turn % 2 else (ids[turn:] + ids[:turn])[::-1] for turn in range(0, 40, 5)]
    batches = [[a_claim(id=one) for one in order] for order in orders]
    stores = clients(bench)
    found = at_once([_claiming(store, batch) for store, batch in zip(stores, batches, strict=False)])
    granted: Counter[bytes] = Counter()
    owners: dict[bytes, Claim] = {}
    for batch, results in zip(batches, found, strict=True):
        for claim, one in zip(batch, results, strict=True):
            if isinstance(one, Won):
                granted[claim.id] += 1
                owners[claim.id] = claim
    expect(granted, Counter(ids), "each key is granted once")
    at_once([_settling_all(store, order, owners) for store, order in zip(stores, orders, strict=False)])
    for one in ids:
        record = bench.record(one)
        expect((record.state, record.outcome), (State.COMPLETED, b"answer"), "each is completed")


@scenario
def one_of_many_swaps_wins(bench: Bench) -> None:
    """Of sixteen threads that swap the same version exactly one is done."""
    claim = bench.won()
    record = bench.record(claim.id)
    news = [replace(record, version=record.version + 1, note=str(number)) for number in range(THREADS)]
    written = at_once([_swapping(s, Swap(record, n)) for s, n in zip(clients(bench), news, strict=True)])
    winners = [new for new, one in zip(news, written, strict=True) if isinstance(one, Done)]
    expect(len(winners), 1, "one winner")
    expect(bench.record(claim.id), winners[0], "and its record stands")


@scenario
def an_expiry_under_contention_has_one_winner(bench: Bench) -> None:
    """At the expiry of a record sixteen threads ask the rules at once, and exactly one may execute."""
    claim = bench.settled(keep_for=SOON)
    requests = [another_request(claim) for _ in range(THREADS)]
    stores = clients(bench)
    bench.outwait()
    decisions = at_once([_entering(bench, store, one) for store, one in zip(stores, requests, strict=True)])
    winners = [one for one in decisions if isinstance(one, Execute)]
    expect(len(winners), 1, "one winner")
    expect(bench.record(claim.id).token, winners[0].token, "and it owns the record")


@scenario
def an_end_under_contention_is_one_end(bench: Bench) -> None:
    """When an owner's two retried settlements, renewals and a thief's settlements meet, one end stands."""
    claim = bench.won()
    thief = another_request(claim)
    works = [_settling(bench.store, claim, b"answer"), _settling(bench.store, claim, b"answer")]
    works += [_settling(bench.store, thief, b"stolen"), _settling(bench.store, thief, b"stolen")]
    works += [lambda: bench.store.renew([a_renewal(claim)]), lambda: bench.store.renew([a_renewal(thief)])]
    written = [one for (one,) in at_once(works)]
    done(written[0], "the owner")
    done(written[1], "its repetition")
    holds(not any(isinstance(one, Done) for one in (written[2], written[3], written[5])), "the thief is refused")
    expect((bench.record(claim.id).state, bench.record(claim.id).outcome), (State.COMPLETED, b"answer"), "one end")


@scenario
def busy_neighbours_keep_their_own_results(bench: Bench) -> None:
    """Threads that claim, renew, read and settle their own keys at once get their own results only."""
    stores = clients(bench)

    def live(store: Store, number: int) -> None:
        for turn in range(6):
            claim = a_claim()
            holds(isinstance(store.claim([claim])[0], Won), "an own key is free")
            done(store.renew([a_renewal(claim)])[0], "an own lease is alive")
            outcome = f"{number}/{turn}".encode()
            done(store.settle([a_settlement(claim, outcome=outcome)])[0], "an own claim is settled")
            record = stands(store.get(claim.id))
            expect((record.id, record.outcome), (claim.id, outcome), "the own record")

    at_once([lambda s=store, n=number: live(s, n) for number, store in enumerate(stores)])  # type: ignore[misc]


def _claiming(store: Store, batch: Sequence[Claim]) -> Callable[[], list]:  # type: ignore[type-arg]
    return lambda: store.claim(batch)


def _settling(store: Store, claim: Claim, outcome: bytes) -> Callable[[], list]:  # type: ignore[type-arg]
    return lambda: store.settle([a_settlement(claim, outcome=outcome)])


def _settling_all(store: Store, order: Sequence[bytes], owners: dict[bytes, Claim]) -> Callable[[], list]:  # type: ignore[type-arg]
    return lambda: store.settle([a_settlement(owners[one]) for one in order])


def _swapping(store: Store, swap: Swap) -> Callable[[], object]:
    return lambda: store.swap(swap)


def _entering(bench: Bench, store: Store, claim: Claim) -> Callable[[], object]:
    return lambda: bench.enter(claim, store=store)
