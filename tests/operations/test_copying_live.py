"""A copy of a store that is in use, at random: whatever happens between its pages, no key is freed by it."""

from __future__ import annotations

import random
from typing import Any

import pytest

from oncekey.core.commands import Claim, Renewal
from oncekey.core.decision import Execute
from oncekey.core.flows import Terms, enter
from oncekey.core.outcome import Answer
from oncekey.core.record import Guarantee, State
from oncekey.operations import Desk, Signature, Walk, copy, purge, sweep
from oncekey.operations.copying import canonical, is_running
from oncekey.stores.memory import MemoryStore
from oncekey.testing.bench import Exactly, another_request, drive
from oncekey.testing.clock import ManualClock
from tests.operations.every_store import PLAIN, ended, record_of, taken

ANN = Signature("ann", "moving")
TERMS = Terms(keep_for=60, reconcile_after_for=5)
HELD = (State.EXECUTING, Guarantee.AT_MOST_ONCE)
KEYS = [f"k{number}" for number in range(6)]


class Shop:
    """The old store in use: clients, owners, sweeps, operators and time, in any order."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.clock = ManualClock()
        self.old, self.new = MemoryStore(self.clock), MemoryStore(self.clock)
        self.owners: list[Claim] = []

    def act(self) -> None:
        """One thing that happens."""
        self.random.choice((self.request, self.request, self.end, self.end, self.renew, self.operate, self.wait))()

    def request(self) -> None:
        """A client asks; whoever may execute becomes an owner."""
        fresh = taken(MemoryStore(self.clock), "alice", self.random.choice(KEYS))
        state = self.random.choice((State.CLAIMED, State.EXECUTING))
        claim = another_request(fresh, lease_for=self.random.choice((5, 40)), state=state)
        decision = drive(self.old, enter(claim, Exactly(claim.fingerprint), TERMS))
        if isinstance(decision, Execute):
            self.owners.append(claim._replace(token=decision.token))

    def end(self) -> None:
        """An owner settles, if it still may."""
        if self.owners:
            owner = self.random.choice(self.owners)
            target = self.random.choice((State.COMPLETED, State.FAILED_RETRYABLE, State.UNKNOWN))
            done = PLAIN.seal(owner.id, b"\x12done")
            ended(self.old, owner, target, outcome=done if target is State.COMPLETED else b"")

    def renew(self) -> None:
        """An owner begins, or goes on."""
        if self.owners:
            owner = self.random.choice(self.owners)
            self.old.renew([Renewal(owner.id, owner.token, 40, 1000, begin=True)])

    def operate(self) -> None:
        """A sweep, a purge, or a person who decides about an unknown."""
        sweep(self.old)
        if self.random.random() < 0.3:
            purge(self.old, rest=lambda seconds: None)
        for record in self.old.scan((State.UNKNOWN,)).records:
            seen = self.old.get(record.id)
            if seen is not None and self.random.random() < 0.5:
                desk = Desk(self.old, PLAIN)
                if self.random.random() < 0.5:
                    desk.complete(seen, Answer(200, (), b"found"), ANN, keep_for=0.06)
                else:
                    desk.retryable(seen, ANN, keep_for=0.06)

    def wait(self) -> None:
        """Time goes by."""
        self.clock.advance(self.random.choice((1, 10, 30)))

    def pages(self, limit: int) -> Any:
        """The old store page by page, with life in between; what each page showed is what the new one may know."""
        for page in Walk(self.old).pages(1):
            yield page
            for _ in range(self.random.randrange(4)):
                self.act()


@pytest.mark.parametrize("seed", range(200))
def test_a_copy_of_a_living_store_frees_no_key_and_ends_identical(seed: int) -> None:
    """While it lasts, what is held in the old store never runs in the new one; at rest, the last pass proves all."""
    shop = Shop(seed)
    for _ in range(3):
        for _ in range(shop.random.randrange(12)):
            shop.act()
        copy(shop, shop.new, ANN, rest=lambda seconds: None)
        shut(shop)
    at_rest(shop)


def shut(shop: Shop) -> None:
    """Whatever is not allowed to run in the new store although its lease there is over, stays so after a sweep."""
    for record in shop.old.scan(tuple(State)).records:
        there = shop.new.get(record.id)
        if is_running(record, shop.clock()) and there is not None and there.record.token == record.token:
            assert there.record.state in (State.EXECUTING, State.UNKNOWN)
            assert not there.record.guarantee.may_take_over


def at_rest(shop: Shop) -> None:
    """Everything stops, leases end, the last copy is made: now all is as it is in the old store."""
    shop.clock.advance(2)
    sweep(shop.old)
    for record in shop.old.scan((State.CLAIMED, State.EXECUTING)).records:
        owner = next(claim for claim in shop.owners if claim.token == record.token)
        ended(shop.old, owner, State.UNKNOWN if record.state is State.EXECUTING else State.FAILED_RETRYABLE)
    report = copy(Walk(shop.old), shop.new, ANN, rest=lambda seconds: None)
    for record in shop.old.scan(tuple(State)).records:
        if record.expires_at is not None and record.expires_at <= shop.clock():
            continue
        there = record_of(shop.new, record.id)
        same = canonical(there) == canonical(record)
        # What was left alone, and said, is shut in the new store, whatever the old one thinks.
        assert same or there.state is State.UNKNOWN or (there.state, there.guarantee) == HELD
    assert report.settled == (report.last.left == 0)
