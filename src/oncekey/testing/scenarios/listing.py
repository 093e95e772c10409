"""What can be listed, who is told of a change, and the verbs that look after the store itself."""

from __future__ import annotations

import queue
from collections.abc import Sequence

from oncekey.core.commands import Claim, Swap
from oncekey.core.decision import Execute
from oncekey.core.flows import lapse
from oncekey.core.record import OPEN, Guarantee, Record, State, replace
from oncekey.stores.contract import Finding, Store
from oncekey.testing.bench import HOUR, PATIENCE, SOON, TERMS, Bench, a_claim, a_settlement, another_request
from oncekey.testing.expect import RuleBroken, done, expect, holds, is_a, won
from oncekey.testing.scenarios.registry import scenario

ENDS = (State.COMPLETED, State.FAILED_RETRYABLE, State.UNKNOWN)


def listed(store: Store, states: Sequence[State], due_before: int | None = None, limit: int = 100) -> list[Record]:
    """All pages of a listing."""
    found: list[Record] = []
    after = None
    while True:
        page = store.scan(states, due_before=due_before, after=after, limit=limit)
        holds(len(page.records) <= limit, f"a page of {limit} holds no more", len(page.records))
        holds(all(record.state in states for record in page.records), "only the states asked for")
        found += page.records
        after = page.after
        if after is None:
            ids = [record.id for record in found]
            expect(len(ids), len(set(ids)), "no record is listed twice")
            return found


def ours(found: Sequence[Record], claims: Sequence[Claim]) -> set[bytes]:
    """Which of these claims are listed."""
    return {record.id for record in found} & {claim.id for claim in claims}


def ids(*claims: Claim) -> set[bytes]:
    """Their ids."""
    return {claim.id for claim in claims}


@scenario
def a_listing_shows_each_state(bench: Bench) -> None:
    """A listing shows the records in the states asked for, whole, and no others."""
    claims = {
        State.CLAIMED: bench.won(state=State.CLAIMED),
        State.EXECUTING: bench.won(),
        **{end: bench.settled(end) for end in ENDS},
    }
    for state, claim in claims.items():
        found = listed(bench.store, (state,))
        expect(ours(found, list(claims.values())), ids(claim), f"only {state.name}")
        expect([one for one in found if one.id == claim.id], [bench.record(claim.id)], "as it stands")
    expect(
        ours(listed(bench.store, OPEN), list(claims.values())), ids(*(claims[one] for one in OPEN)), "all that is open"
    )
    expect(ours(listed(bench.store, tuple(State)), list(claims.values())), ids(*claims.values()), "all")


@scenario
def pages_are_complete(bench: Bench) -> None:
    """Page by page everything is listed exactly once, whatever the size of a page."""
    claims = [bench.won() for _ in range(9)] + [bench.won(state=State.CLAIMED) for _ in range(4)]
    for limit in (5, 13, 1000):
        expect(ours(listed(bench.store, OPEN, limit=limit), claims), ids(*claims), f"pages of {limit}")


@scenario
def the_longest_due_come_first(bench: Bench) -> None:
    """Due unknown records come by their times, page by page; what is due later, or never, is not among them."""
    waits = (30, 10, 20, 10, 40)
    due = [bench.settled(State.UNKNOWN, keep_for=None, due_for=wait) for wait in waits]
    later = bench.settled(State.UNKNOWN, keep_for=None, due_for=HOUR)
    never = bench.settled(State.UNKNOWN, keep_for=None)
    bench.outwait()
    for limit in (2, 1000):
        found = [one for one in listed(bench.store, (State.UNKNOWN,), 0, limit) if one.id in ids(*due, later, never)]
        expect({one.id for one in found}, ids(*due), f"pages of {limit}: all that is due")
        times = [one.due_at or 0 for one in found]
        expect(times, sorted(times), f"pages of {limit}: by their times")


@scenario
def a_millisecond_makes_a_difference(bench: Bench) -> None:
    """Times are whole milliseconds, and none is lost: what is due one later is not due yet."""
    at = bench.now() - HOUR
    later, sooner = _due(bench, at + 1), _due(bench, at)

    def due(instant: int) -> list[bytes]:
        return [one.id for one in listed(bench.store, (State.UNKNOWN,), instant) if one.id in ids(later, sooner)]

    expect(due(at - 1), [], "a millisecond before the first")
    expect(due(at), [sooner.id], "at the first")
    expect(due(at + 1), [sooner.id, later.id], "a millisecond after the first")


def _due(bench: Bench, at: int) -> Claim:
    """An unknown record that is due at this instant."""
    claim = bench.settled(State.UNKNOWN, keep_for=None)
    seen = bench.record(claim.id)
    done(
        bench.store.swap(Swap(seen, replace(seen, version=seen.version + 1, due_at=at))),
        "an unknown record is given a time",
    )
    return claim


@scenario
def what_has_no_time_is_listed_apart(bench: Bench) -> None:
    """Unknown records without a time have a listing of their own, in pages, and leave it when they are given one."""
    dead = [bench.settled(State.UNKNOWN, keep_for=None) for _ in range(5)]
    dated = bench.settled(State.UNKNOWN, keep_for=None, due_for=HOUR)
    others = [bench.won(), bench.settled(), bench.settled(State.FAILED_RETRYABLE)]

    def undated(limit: int) -> set[bytes]:
        found: list[Record] = []
        after = None
        while True:
            page = bench.store.scan((State.UNKNOWN,), undated=True, after=after, limit=limit)
            found, after = found + page.records, page.after
            if after is None:
                return ours(found, [*dead, dated, *others])

    for limit in (2, 1000):
        expect(undated(limit), ids(*dead), f"pages of {limit}")
    seen = bench.record(dead[0].id)
    timed = replace(seen, version=seen.version + 1, due_at=seen.claimed_at + HOUR)
    done(bench.store.swap(Swap(seen, timed)), "it is given a time")
    expect(undated(1000), ids(*dead[1:]), "it is asked about again")


@scenario
def pages_survive_changes(bench: Bench) -> None:
    """Records that stay are listed, although others are claimed and settled between the pages."""
    staying = [bench.won() for _ in range(8)]
    leaving = [bench.won() for _ in range(8)]
    found: list[Record] = []
    after = None
    while True:
        page = bench.store.scan((State.EXECUTING,), after=after, limit=3)
        found += page.records
        if leaving:
            bench.settle(leaving.pop())
            bench.won(state=State.CLAIMED)
        after = page.after
        if after is None:
            break
    expect(ours(found, staying), ids(*staying), "what stayed is listed")


@scenario
def whatever_was_claimed_is_listed(bench: Bench) -> None:
    """Every claim is listed among the open records from its grant until its end, through lapse and retry as well."""
    claim = bench.lapsed(state=State.CLAIMED)

    def is_listed(state: State) -> None:
        expect(ours(listed(bench.store, (state,)), [claim]), ids(claim), f"listed as {state.name}")

    is_listed(State.CLAIMED)
    seen = bench.seen(claim.id)
    done(bench.store.swap(Swap(seen.record, is_a(Record, lapse(seen, TERMS), "lapse"))), "lapse")
    is_listed(State.FAILED_RETRYABLE)
    second = another_request(claim, state=State.EXECUTING)
    is_a(Execute, bench.enter(second), "retry")
    is_listed(State.EXECUTING)
    done(bench.renew(second), "renewed")
    is_listed(State.EXECUTING)
    done(bench.settle(second, State.UNKNOWN), "ambiguous")
    is_listed(State.UNKNOWN)
    done(bench.settle(second), "late truth")
    expect(ours(listed(bench.store, OPEN), [claim]), set(), "an end is not open")
    is_listed(State.COMPLETED)


@scenario
def what_is_due_is_listed(bench: Bench) -> None:
    """With due_before only records whose lease or due time is not later are listed; without a time, never."""
    lapsed = [bench.lapsed(), bench.lapsed(state=State.CLAIMED)]
    due = bench.settled(State.UNKNOWN, due_for=SOON)
    bench.wait_until(bench.record(due.id).due_at)
    later = [bench.won(), bench.settled(State.UNKNOWN, due_for=HOUR), bench.settled(State.UNKNOWN)]
    claims = [*lapsed, due, *later]
    now = bench.now()
    expect(ours(listed(bench.store, OPEN, now), claims), ids(*lapsed, due), "due by now")
    expect(ours(listed(bench.store, OPEN, now, limit=2), claims), ids(*lapsed, due), "page by page")
    expect(ours(listed(bench.store, OPEN, now + 2 * HOUR), claims), ids(*claims[:-1]), "due within two hours")
    expect(ours(listed(bench.store, OPEN, -HOUR), claims), set(), "due an hour ago")
    exactly = bench.record(due.id).due_at or 0
    expect(ours(listed(bench.store, OPEN, exactly), [due]), ids(due), "due exactly then")
    expect(ours(listed(bench.store, OPEN, exactly - 1), [due]), set(), "not due a millisecond before")


@scenario
def relative_due_times_are_the_stores(bench: Bench) -> None:
    """A negative due_before counts back from the store's own clock, so that a sweep needs no clock of its own."""
    claim = bench.lapsed()
    bench.wait_until((bench.record(claim.id).lease_until or 0) + 2)
    expect(ours(listed(bench.store, OPEN, -1), [claim]), ids(claim), "over since a millisecond and more")


class Ear:
    """Listens, and can wait for what it hears."""

    def __init__(self, store: Store) -> None:
        self.heard: queue.Queue[bytes] = queue.Queue()
        self.listener = store.listen(self.heard.put)

    def until(self, id_: bytes) -> set[bytes]:
        """Everything heard up to this id, which must come."""
        heard = set()
        while id_ not in heard:
            try:
                heard.add(self.heard.get(timeout=PATIENCE))
            except queue.Empty:
                raise RuleBroken("a listener was not told of a record that was waited for") from None
        return heard


def watched(bench: Bench, claim: Claim) -> Claim:
    """Say that somebody waits for it."""
    found = bench.store.watch(claim.id)
    holds(found is not None and found.record.waited, "watch marks a record in progress", found)
    return claim


@scenario
def a_mark_is_set_only_in_progress(bench: Bench) -> None:
    """Watching marks a record in progress and returns it; any other state is returned as it is."""
    for claim in (bench.won(), bench.won(state=State.CLAIMED)):
        watched(bench, watched(bench, claim))
        holds(bench.record(claim.id).waited, "the mark is stored")
        done(bench.renew(claim), "the mark hinders nobody")
        holds(bench.record(claim.id).waited, "a renewal keeps the mark")
    for end in ENDS:
        claim = bench.settled(end)
        before = bench.record(claim.id)
        found = bench.store.watch(claim.id)
        expect(found and found.record, before, "what stands there")
        expect(bench.record(claim.id), before, "nothing changes")


@scenario
def a_settlement_wakes_who_waits(bench: Bench) -> None:
    """Listeners are told of every end of a record that is waited for, and of no other."""
    ear = Ear(bench.store)
    quiet = bench.won()
    bench.settle(quiet)
    claims = [watched(bench, bench.won()) for _ in ENDS]
    heard: set[bytes] = set()
    for claim, end in zip(claims, ENDS, strict=True):
        done(bench.renew(claim), "a renewal is no end")
        done(bench.settle(claim, end), "an end")
        heard |= ear.until(claim.id)
    expect(heard & ids(quiet, *claims), ids(*claims), "told of those that were waited for")
    ear.listener.close()


@scenario
def a_swap_wakes_who_waits(bench: Bench) -> None:
    """Listeners are told when a record that is waited for lapses or is taken over."""
    ear = Ear(bench.store)
    lapsed = watched(bench, bench.lapsed())
    bench.enter(another_request(lapsed))
    ear.until(lapsed.id)
    taken = watched(bench, bench.lapsed(guarantee=Guarantee.TRANSACTIONAL))
    is_a(Execute, bench.enter(another_request(taken)), "taken over")
    ear.until(taken.id)
    expect(bench.record(taken.id).waited, False, "the mark was the old attempt's")
    ear.listener.close()


@scenario
def another_client_hears_it_too(bench: Bench) -> None:
    """A listener hears of what another client settled; one that was closed hears nothing more."""
    ear, closed = Ear(bench.store), Ear(bench.store)
    closed.listener.close()
    claim = watched(bench, bench.won())
    other = bench.another()
    done(other.settle([a_settlement(claim)])[0], "another client settles")
    ear.until(claim.id)
    holds(closed.heard.empty(), "a closed listener hears nothing")
    ear.listener.close()
    ear.listener.close()


@scenario
def statistics_count_states(bench: Bench) -> None:
    """Statistics count records by the public word of their state."""
    before = bench.store.stats().get("in_progress", 0)
    for found in bench.store.claim([a_claim(), a_claim(state=State.CLAIMED)]):
        won(found)
    after = bench.store.stats().get("in_progress", 0)
    expect(int(after) - int(before), 2, "both phases are in_progress")


@scenario
def looking_after_a_store_is_repeatable(bench: Bench) -> None:
    """A second migration finds nothing to do, and checks are findings with a level."""
    bench.store.migrate()
    expect(bench.store.migrate(), [], "nothing is left to do")
    for finding in bench.store.check():
        is_a(Finding, finding, "a finding")
        holds(finding.level in {"ok", "warning", "refusal"}, "a known level", finding)
        holds(finding.level == "ok" or bool(finding.fix), "trouble comes with what to change", finding)
