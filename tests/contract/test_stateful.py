"""Random lives of a few records, on a store and on the memory store that the table drives: never a difference."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule, run_state_machine_as_test

from oncekey.core.commands import Claim, Done, Renewal, Settlement, Stale, Swap, Won
from oncekey.core.decision import Decision, Execute, Refused
from oncekey.core.flows import Terms, enter, lapse
from oncekey.core.record import FINAL, IN_PROGRESS, OPEN, Guarantee, Record, Seen, State, replace
from oncekey.core.transitions import TABLE, Aftermath, Facts, moved, refusal
from oncekey.stores.contract import Store
from oncekey.stores.memory import MemoryStore
from oncekey.testing.bench import HOUR, Bench, Exactly, drive
from oncekey.testing.clock import ManualClock
from oncekey.testing.scenarios.listing import listed
from tests.contract.stores import ALL, Subject, fresh_id
from tests.contract.wrong import WRONG

KEYS = 3
TERMS = Terms(keep_for=HOUR, reconcile_after_for=HOUR, attempts=3)
# Where a clock cannot be set, a retention or waiting time ends at once (it is waited for) or not at all, and a lease
# ends when a rule says so: the shortest could end before the store has answered.
SOON, LATER = 5, 60
DURATIONS = st.sampled_from([SOON, LATER, HOUR])
TIMES = st.none() | DURATIONS
PLACES = st.integers(0, KEYS - 1)
PICKS = st.integers(0, 1_000)
ENDS = st.sampled_from([State.COMPLETED, State.FAILED_RETRYABLE, State.UNKNOWN])


class Lives(RuleBasedStateMachine):
    """Each rule does the same to both stores and compares the answers; the invariant compares the records."""

    bench: Bench
    settable: bool
    clock: ManualClock

    def __init__(self) -> None:
        super().__init__()
        self.reference = MemoryStore(self.clock)
        self.store: Store = self.bench.store
        self.ids = sorted(fresh_id() for _ in range(KEYS))
        self.claims: list[Claim] = [self.new_claim(place) for place in range(KEYS)]
        self.seen: dict[bytes, tuple[Record, Record]] = {}
        self.versions: dict[bytes, tuple[int, int]] = {}
        self.number = itertools.count(1)

    # ---- both ----------------------------------------------------------------------------------------------------

    def both(self, work: Callable[[Store], Any]) -> tuple[Any, Any]:
        """Do it to the reference and to the store under test."""
        return work(self.reference), work(self.store)

    def new_claim(self, place: int, **changes: Any) -> Claim:
        """A claim with a token that nobody used."""
        return Claim(self.ids[place], fresh_id()[:16], b"request 0", HOUR)._replace(**changes)

    def pick(self, number: int) -> Claim:
        """One of the claims ever made; three times of four the one that owns a record, or did last."""
        found = self.reference.get(self.ids[number % KEYS]) if number % 4 else None
        owners = [claim for claim in self.claims if found is not None and claim.token == found.record.token]
        return (owners or self.claims)[number % len(owners or self.claims)]

    def wait(self) -> None:
        """Let all that ends soon end, where time cannot be set: leases, waiting times, retentions."""
        if self.settable:
            return
        ends = [at for id_ in self.ids for at in instants(self.store.get(id_))]
        now = self.bench.now()
        self.bench.wait_until(max((at for at in ends if at < now + HOUR // 2), default=now))
        self.clock.advance(LATER)

    def lease(self, lease_for: int) -> int:
        """A lease that lasts at least until the next rule."""
        return lease_for if self.settable else HOUR

    def may_repeat(self, *durations: int | None) -> bool:
        """Whether a repetition surely comes before any of these durations ends."""
        return self.settable or all(one in {None, HOUR} for one in durations)

    def clear(self, id_: bytes) -> None:
        """What has expired a store may have dropped by itself: have both drop it before they are compared."""
        found = self.reference.get(id_)
        if found is not None and refusal(TABLE["expire"], found.record, Facts(found.now)) is None:
            self.purge()

    # ---- rules ---------------------------------------------------------------------------------------------------

    @rule(
        place=PLACES,
        body=st.integers(0, 1),
        guarantee=st.sampled_from(Guarantee),
        state=st.sampled_from(IN_PROGRESS),
        lease_for=DURATIONS,
        lost=st.booleans(),
    )
    def request(self, place: int, body: int, guarantee: Guarantee, state: State, lease_for: int, *, lost: bool) -> None:
        """A request comes; perhaps the answer to its first try is lost."""
        claim = self.new_claim(
            place, fingerprint=b"request %d" % body, guarantee=guarantee, state=state, lease_for=self.lease(lease_for)
        )
        self.claims.append(claim)
        self.seen.pop(claim.id, None)
        if lost:
            self.both(lambda store: store.claim([claim]))
        asked = Exactly(claim.fingerprint)
        wanted, found = self.both(lambda store: drive(store, enter(claim, asked, TERMS)))
        assert essence(found) == essence(wanted), (found, wanted)
        self.wait()

    @rule(numbers=st.permutations(range(KEYS)), lease_for=DURATIONS)
    def claims_in_one_batch(self, numbers: list[int], lease_for: int) -> None:
        """A batch of claims on all keys."""
        for id_ in self.ids:
            self.clear(id_)
        batch = [self.new_claim(place, lease_for=self.lease(lease_for)) for place in numbers]
        self.claims += batch
        wanted, found = self.both(lambda store: [isinstance(one, Won) for one in store.claim(batch)])
        assert found == wanted
        self.wait()

    @rule(number=PICKS, end=ENDS, keep_for=TIMES, due_for=TIMES, bare=st.booleans(), lost=st.booleans())
    def settle(
        self, number: int, end: State, keep_for: int | None, due_for: int | None, *, bare: bool, lost: bool
    ) -> None:
        """An owner, old or new, settles, with an outcome or without; perhaps its first answer is lost."""
        claim = self.pick(number)
        self.clear(claim.id)
        outcome = b"" if bare else b"outcome %d" % next(self.number)
        one = Settlement(claim.id, claim.token, end, outcome, keep_for, due_for, note=f"note {number}")
        self.write(lambda store: store.settle([one])[0], lost=lost and self.may_repeat(keep_for, due_for))

    @rule(numbers=st.lists(PICKS, min_size=2, max_size=5), end=ENDS)
    def settle_in_one_batch(self, numbers: list[int], end: State) -> None:
        """Several settle in one batch, most of them stale."""
        claims = {claim.id: claim for claim in map(self.pick, numbers)}
        for id_ in claims:
            self.clear(id_)
        batch = [Settlement(one.id, one.token, end, b"batched", HOUR) for one in claims.values()]
        wanted, found = self.both(lambda store: [type(one) for one in store.settle(batch)])
        assert found == wanted

    @rule(
        number=PICKS,
        lease_for=DURATIONS,
        old=st.booleans(),
        begin=st.booleans(),
        journal=st.none() | st.binary(max_size=40),
        lost=st.booleans(),
    )
    def renew(self, number: int, lease_for: int, *, old: bool, begin: bool, journal: bytes | None, lost: bool) -> None:
        """An owner, old or new, renews or begins, or keeps a journal; perhaps its attempt is older than its cap."""
        claim = self.pick(number)
        self.clear(claim.id)
        if old and not self.settable:
            self.bench.wait_until(max((r.record.claimed_at + 1 for r in [self.store.get(claim.id)] if r), default=0))
            self.clock.advance(1)
        one = Renewal(claim.id, claim.token, self.lease(lease_for), 1 if old else HOUR, begin, journal)
        self.write(lambda store: store.renew([one])[0], lost=lost)

    @rule(number=PICKS, end=st.sampled_from([State.UNKNOWN, State.FAILED_RETRYABLE]))
    def end_with_a_journal(self, number: int, end: State) -> None:
        """An owner keeps a journal, and then ends without an outcome."""
        claim = self.pick(number)
        self.clear(claim.id)
        kept = Renewal(claim.id, claim.token, self.lease(HOUR), HOUR, outcome=b"journal %d" % number)
        self.write(lambda store: store.renew([kept])[0], lost=False)
        one = Settlement(claim.id, claim.token, end, b"", HOUR, None, note=f"note {number}")
        self.write(lambda store: store.settle([one])[0], lost=False)

    @rule(place=PLACES)
    def sweep(self, place: int) -> None:
        """A sweep finds a lease over, or nothing to do."""
        self.move(place, lambda seen: lapse(seen, TERMS))

    @rule(place=PLACES, row=st.sampled_from([name for name in TABLE if name.startswith(("reconcile", "override"))]))
    def find_out(self, place: int, row: str) -> None:
        """A reconciler or an operator acts, where the table lets it."""
        completes = TABLE[row].target is State.COMPLETED
        after = Aftermath(keep_for=HOUR, note="found out", outcome=b"found out" if completes else b"")
        seen = row == "reconcile_done"

        def new(found: Seen) -> Record | None:
            facts = Facts(found.now, effect_seen=seen, cannot_land=not seen, reason="an operator says so")
            return moved(row, found.record, facts, after)

        self.move(place, new)

    @rule(place=PLACES, state=st.sampled_from([State.UNKNOWN, State.EXECUTING]))
    def arrive(self, place: int, state: State) -> None:
        """A record comes from another store, and takes no key that is taken here."""
        id_ = self.ids[place]
        self.clear(id_)
        record = Record(id_, state, 3, fresh_id()[:16], b"request 1", attempts=2, note="arrived")
        wanted, found = self.both(lambda store: store.put([record]))
        assert [type(one) for one in found] == [type(one) for one in wanted]
        if isinstance(wanted[0], Done):
            self.seen.pop(id_, None)
            self.versions.pop(id_, None)

    @rule(place=PLACES)
    def look(self, place: int) -> None:
        """Somebody looks, and will act on it later."""
        id_ = self.ids[place]
        self.clear(id_)
        wanted, found = self.both(lambda store: store.get(id_))
        if wanted is not None:
            self.seen[id_] = (wanted.record, found.record)

    @precondition(lambda self: self.seen)
    @rule(number=PICKS, lost=st.booleans())
    def act_on_what_was_seen(self, number: int, *, lost: bool) -> None:
        """Whoever looked before swaps now, and perhaps the record has changed since."""
        id_ = list(self.seen)[number % len(self.seen)]
        self.clear(id_)
        if id_ not in self.seen:
            return
        swaps = [Swap(one, replace(one, version=one.version + 1, note="late")) for one in self.seen[id_]]
        self.write(lambda store: store.swap(swaps[0] if store is self.reference else swaps[1]), lost=lost)

    @rule(place=PLACES)
    def watch(self, place: int) -> None:
        """A duplicate waits for the record."""
        id_ = self.ids[place]
        self.clear(id_)
        wanted, found = self.both(lambda store: store.watch(id_))
        assert (found is None) == (wanted is None)
        assert found is None or found.record.waited == wanted.record.waited or found.record.state not in IN_PROGRESS

    @rule()
    def purge(self) -> None:
        """A purge runs until nothing is left."""
        for _ in range(1_000):
            if not any(purged.more for purged in self.both(lambda store: store.purge())):
                break
        for id_ in self.ids:
            if self.reference.get(id_) is None:
                self.seen.pop(id_, None)
                self.versions.pop(id_, None)

    @precondition(lambda self: self.settable)
    @rule(passed=st.sampled_from([1, SOON - 1, SOON, LATER, HOUR]))
    def time_passes(self, passed: int) -> None:
        """Time passes: exactly to an end, just before one, or long past it."""
        self.clock.advance(passed)

    @precondition(lambda self: self.settable)
    @rule()
    def a_day_later(self) -> None:
        """All that ends has ended, and a purge comes by."""
        self.clock.advance(24 * HOUR)
        self.purge()

    @precondition(lambda self: not self.settable)
    @rule(place=PLACES)
    def the_lease_ends(self, place: int) -> None:
        """What time would do, done by hand: the lease is over."""
        self.move(
            place,
            lambda seen: (
                replace(seen.record, version=seen.record.version + 1, lease_until=seen.now)
                if seen.record.state in IN_PROGRESS
                else None
            ),
        )

    # ---- how -----------------------------------------------------------------------------------------------------

    def write(self, work: Callable[[Store], Any], *, lost: bool) -> None:
        """Do a guarded write to both, twice if the first answer is lost, and compare what they say."""
        if lost:
            self.both(work)
        wanted, found = self.both(work)
        assert type(found) is type(wanted), (found, wanted)
        if isinstance(found, Stale):
            assert (found.found is None) == (wanted.found is None)
        self.wait()

    def move(self, place: int, new: Callable[[Seen], Record | None]) -> None:
        """Take a row by compare-and-set on each store's own record."""
        id_ = self.ids[place]
        self.clear(id_)
        seen = self.both(lambda store: store.get(id_))
        if seen[0] is None:
            return
        news = [new(one) for one in seen]
        assert (news[0] is None) == (news[1] is None)
        for store, one, record in zip((self.reference, self.store), seen, news, strict=True):
            if record is not None:
                assert isinstance(store.swap(Swap(one.record, record)), Done)

    @invariant()
    def the_records_are_alike(self) -> None:
        """Both stores hold the same records, and versions grow exactly where something was written."""
        for id_ in self.ids:
            wanted, found = self.reference.get(id_), self.store.get(id_)
            if wanted is not None and refusal(TABLE["expire"], wanted.record, Facts(wanted.now)) is None:
                self.versions.pop(id_, None)
                assert found is None or view(found) == view(wanted)
                continue
            assert view(found) == view(wanted)
            if wanted is None or found is None:
                continue
            before = self.versions.get(id_)
            self.versions[id_] = (wanted.record.version, found.record.version)
            if before is not None:
                grew = wanted.record.version > before[0], found.record.version > before[1]
                assert grew[0] == grew[1], "a version grows if and only if something was written"

    def teardown(self) -> None:
        """Whatever is open is listed."""
        states = {id_: seen.record.state for id_ in self.ids if (seen := self.reference.get(id_)) is not None}
        wanted = {id_ for id_, state in states.items() if state in OPEN}
        assert {record.id for record in listed(self.store, OPEN)} & set(self.ids) == wanted


def instants(seen: Seen | None) -> list[int]:
    """When something about a record ends."""
    if seen is None:
        return []
    record = seen.record
    return [at for at in (record.lease_until, record.due_at, record.expires_at) if at is not None]


def essence(decision: Decision) -> tuple[Any, ...]:
    """What two stores must agree on."""
    run = (decision.attempt, decision.journal) if isinstance(decision, Execute) else None
    return type(decision), run, decision.reason if isinstance(decision, Refused) else None


def view(seen: Seen | None) -> tuple[Any, ...] | None:
    """A record without what stores may differ in: versions, exact instants, what they forget of ended ones."""
    if seen is None:
        return None
    record, now = seen
    ended = record.state in (State.COMPLETED, State.EXPIRED)
    times = (record.lease_until, record.due_at, record.expires_at)
    return (
        record.state,
        record.fingerprint,
        record.guarantee,
        record.attempts,
        record.note,
        record.outcome,
        None if ended else record.token,
        record.waited if record.state not in FINAL else None,
        tuple(at if at is None else at <= now for at in times),
    )


EXAMPLES = {"memory": 100, "sqlite": 120, "postgres": 40, "redis7": 40, "valkey": 30, "redis62": 30}


def live(bench: Bench, clock: ManualClock | None, examples: int, phases: tuple[Phase, ...]) -> None:
    """Run the machine on this bench."""
    attributes = {"bench": bench, "settable": clock is not None, "clock": clock or ManualClock()}
    run_state_machine_as_test(
        type("Lives", (Lives,), attributes),
        settings=settings(
            max_examples=examples,
            stateful_step_count=20,
            deadline=None,
            phases=phases,
            derandomize=Phase.shrink not in phases,
            suppress_health_check=list(HealthCheck),
        ),
    )


@pytest.mark.parametrize(("store", "colour"), ALL)
def test_the_store_lives_like_the_table(store: str, colour: str, subject: Subject) -> None:
    """Whatever is done in whatever order, the store answers and stands like the memory store that the table drives."""
    bench = subject.bench()
    examples = EXAMPLES[store] if colour == "sync" else EXAMPLES[store] // 2
    try:
        live(bench, subject.clock, examples, (Phase.generate, Phase.shrink))
    finally:
        bench.close()


@pytest.mark.parametrize("kind", WRONG)
def test_the_machine_finds_a_wrong_store(kind: type[MemoryStore]) -> None:
    """A store with one common fault does not live like the table, and the machine shows it."""
    clock = ManualClock()
    store = kind(clock)
    with pytest.raises((AssertionError, ExceptionGroup)):
        live(Bench(lambda: store, clock), clock, 2_000, (Phase.generate,))
