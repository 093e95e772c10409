from __future__ import annotations

import asyncio
import logging
import threading
from typing import Any

import pytest

from oncekey import SHARED, OnceKey
from oncekey.core.commands import Page, Settlement
from oncekey.core.outcome import Answer, unpack
from oncekey.core.record import Record, State
from oncekey.engine.events import Event
from oncekey.engine.journals import journal_of
from oncekey.engine.sealing import Sealer
from oncekey.errors import ConfigurationError, StoreUnavailable
from oncekey.operations import history
from oncekey.reconcile import AsyncReconciler, Finding, Inquiry, Pace, Reconciler, Report
from oncekey.stores.memory import AsyncMemoryStore, MemoryStore
from oncekey.testing.bench import a_claim
from oncekey.testing.clock import ManualClock
from tests.reconcile.kit import CALL, ENDPOINT, SEALER, not_there, paid, reconciler, rules, silent, unknown


@pytest.fixture
def clock() -> ManualClock:
    """The clock of `store`."""
    return ManualClock()


@pytest.fixture
def store(clock: ManualClock) -> MemoryStore:
    """An empty store."""
    return MemoryStore(clock)


def record(store: MemoryStore, id_: bytes) -> Record:
    """What stands there."""
    return store._records[id_]


def test_a_resolver_is_given_what_the_attempt_has_called(store: MemoryStore, clock: ManualClock) -> None:
    """Whom, where, under which key; the client's key, and how often it has been asked."""
    asked: list[Inquiry] = []

    def look(inquiry: Inquiry) -> Finding:
        asked.append(inquiry)
        return silent(inquiry)

    id_ = unknown(store, key="order-1")
    worker = reconciler(store, look)
    for _ in range(3):
        clock.advance(10_000_000)
        worker.run_once()
    assert [one.try_ for one in asked] == [1, 2, 3]
    assert asked[0].calls == (CALL,)
    assert (asked[0].id, asked[0].key, asked[0].endpoint) == (id_, "order-1", ENDPOINT)
    assert [one.unclear_for for one in asked] == [0.0, 10_000.0, 20_000.0]


def test_what_is_unclear_is_asked_later_and_then_given_up(store: MemoryStore, clock: ManualClock) -> None:
    """The waits grow; after the last try it is a dead letter that says why, still unknown, its owner's proof kept."""
    id_ = unknown(store)
    token = record(store, id_).token
    worker = reconciler(store, silent, Pace(first_for=5, tries=3))
    clock.advance(1)
    waits = []
    for _ in range(3):
        worker.run_once()
        due = record(store, id_).due_at
        waits.append(due - clock() if due else None)
        if due:
            clock.reach(due - 1)
            assert worker.run_once().asked == 0
            clock.reach(due)
    assert waits[0] is not None
    assert waits[1] is not None
    assert 2500 <= waits[0] <= 5000
    assert 5000 <= waits[1] <= 10_000
    assert waits[2] is None
    dead = record(store, id_)
    assert (dead.state, dead.token, dead.note) == (
        State.UNKNOWN,
        token,
        "reconciler: given up after 3 tries: no answer",
    )
    clock.advance(10**9)
    assert worker.run_once().asked == 0
    assert worker.total == Report(unclear=2, dead_letter=1)


def test_a_proof_serves_its_own_inquiry_only(store: MemoryStore, clock: ManualClock) -> None:
    """A proof that was kept from another operation, or from an earlier try, frees nothing."""
    kept: list[Finding] = []

    def cunning(inquiry: Inquiry) -> Finding:
        kept.append(inquiry.cancelled("V-1").not_done("nothing"))
        return kept[0]

    first, second = unknown(store), unknown(store)
    clock.advance(1)
    reconciler(store, cunning, Pace(at_once=1)).run_once()
    states = sorted(record(store, id_).state for id_ in (first, second))
    assert states == [State.FAILED_RETRYABLE, State.UNKNOWN]


@pytest.mark.parametrize("answer", [None, True, "landed", NotImplemented])
def test_an_answer_that_is_none_is_unclear_and_said_aloud(
    store: MemoryStore, clock: ManualClock, caplog: pytest.LogCaptureFixture, answer: object
) -> None:
    """A resolver that forgets to return, or returns a word, settles nothing."""
    id_ = unknown(store)
    clock.advance(1)
    assert reconciler(store, lambda _: answer).run_once().unclear == 1  # type: ignore[arg-type,return-value]
    assert record(store, id_).state is State.UNKNOWN
    assert "return landed(...)" in caplog.text


def test_a_failing_resolver_settles_nothing_and_stops_nobody(
    store: MemoryStore, clock: ManualClock, caplog: pytest.LogCaptureFixture
) -> None:
    """Its error is the note; the others are asked about all the same."""

    def fails(inquiry: Inquiry) -> Finding:
        if inquiry.key == "bad":
            raise ConnectionError("the bank is away")
        return paid(inquiry)

    bad, good = unknown(store, key="bad"), unknown(store, key="good")
    clock.advance(1)
    report = reconciler(store, fails).run_once()
    assert (report.landed, report.unclear) == (1, 1)
    assert record(store, bad).note == "reconciler: ConnectionError: the bank is away"
    assert record(store, good).state is State.COMPLETED


def test_too_early_waits_exactly_so_long(store: MemoryStore, clock: ManualClock) -> None:
    """While the attempt can still land nothing is decided; the next try comes when it cannot."""

    def by_age(inquiry: Inquiry) -> Finding:
        return inquiry.expired(60.0, "the bank refuses older requests").not_done("nothing there")

    id_ = unknown(store)
    clock.advance(1)
    worker = reconciler(store, by_age)
    assert worker.run_once().unclear == 1
    due = record(store, id_).due_at
    assert due is not None
    assert due - clock() == 60_000
    clock.reach(due)
    assert worker.run_once().not_done == 1


def test_without_a_resolver_it_says_so(store: MemoryStore, clock: ManualClock) -> None:
    """An endpoint that nobody answers for is not lost in silence, and holds up nobody."""
    id_ = unknown(store, endpoint="POST /other")
    clock.advance(1)
    assert reconciler(store, paid).run_once().unclear == 1
    assert record(store, id_).note == "reconciler: no resolver is registered for POST /other"


def test_a_journal_that_cannot_be_read_is_left_alone(store: MemoryStore, clock: ManualClock) -> None:
    """Without the application's ring nothing of it is overwritten, and the note says what is missing."""
    id_ = unknown(store)
    ring = Sealer.from_text("k1:" + "A" * 43 + "=")
    sealed = ring.seal(id_, b"\x13\x00")
    store._records[id_] = record(store, id_)._replace(outcome=sealed)
    clock.advance(1)
    assert reconciler(store, paid).run_once().unclear == 1
    left = record(store, id_)
    assert left.outcome == sealed
    assert "sealer" in left.note


def test_whoever_wrote_in_between_has_the_last_word(store: MemoryStore, clock: ManualClock) -> None:
    """A late owner completes while the resolver looks: its truth stands."""
    id_ = unknown(store)
    token = record(store, id_).token

    def slow(inquiry: Inquiry) -> Finding:
        store.settle([Settlement(inquiry.id, token, State.COMPLETED, b"the truth", keep_for=1000)])
        return not_there(inquiry)

    clock.advance(1)
    assert reconciler(store, slow).run_once() == Report(moved_on=1)
    assert record(store, id_).outcome == b"the truth"


def test_the_trail_tells_evidence_and_proof(store: MemoryStore, clock: ManualClock) -> None:
    """What the reconciler decided is signed: by whom, why, when, from where to where."""
    landed, free = unknown(store, key="landed"), unknown(store, key="free")
    clock.advance(1)
    reconciler(store, lambda one: paid(one) if one.key == "landed" else not_there(one)).run_once()
    [line] = history(record(store, landed))
    assert line == ("reconciler", "charge ch_1", clock(), State.UNKNOWN, State.COMPLETED)
    [line] = history(record(store, free))
    assert line.why == "cancelled: V-77; then no charge under this key"
    assert journal_of(record(store, free), SEALER).asked is None
    answer = unpack(SEALER.open(landed, record(store, landed).outcome))
    assert isinstance(answer, Answer)
    assert answer.body == b'{"id":"ch_1"}'


def test_a_round_sweeps_and_tells_what_it_did(store: MemoryStore, clock: ManualClock) -> None:
    """Lapsed leases become unknown and are asked about when due; sinks hear of all of it."""
    heard: list[Event] = []
    store.claim([a_claim(lease_for=5)])
    unknown(store)
    clock.advance(10)
    worker = Reconciler(store, rules(paid), (heard.append,))
    assert worker.run_once().swept.unknown == 1
    assert sorted((event.name, event.detail) for event in heard) == [
        ("lapsed", "the lease ended while the work was running"),
        ("resolved", "landed"),
        ("turned_unknown", "the lease ended while the work was running"),
    ]


def test_an_embedded_worker_settles_beside_the_work() -> None:
    """`with once.reconciler():` is a thread; leaving it waits for the inquiry at hand."""
    once = OnceKey("memory://", scope=SHARED)
    asked = threading.Event()

    @once.resolver(ENDPOINT)
    def look(inquiry: Inquiry) -> Finding:
        asked.set()
        return paid(inquiry)

    id_ = unknown(once.engine.store)
    with once.reconciler(Pace(poll_for=0.01)):
        assert asked.wait(10)
    seen = once.engine.store.get(id_)
    assert seen is not None
    assert seen.record.state is State.COMPLETED
    once.close()


async def test_coroutines_and_functions_resolve_under_asyncio() -> None:
    """`async with once.async_reconciler():` is a task; both kinds of resolvers are asked, several at a time."""
    once = OnceKey("memory://", scope=SHARED)
    both, inside = asyncio.Event(), 0

    @once.resolver(ENDPOINT)
    async def look(inquiry: Inquiry) -> Finding:
        nonlocal inside
        inside += 1
        if inside == 2:
            both.set()
        await both.wait()
        return paid(inquiry)

    once.resolver("POST /other")(not_there)
    store = once.async_engine.store
    assert isinstance(store, AsyncMemoryStore)
    ids = [unknown(store.sync), unknown(store.sync), unknown(store.sync, "POST /other")]
    async with once.async_reconciler(Pace(poll_for=0.01, at_once=3)) as worker:
        while worker.total.settled < 3:
            await asyncio.sleep(0.005)
    states = [store.sync._records[id_].state for id_ in ids]
    assert states == [State.COMPLETED, State.COMPLETED, State.FAILED_RETRYABLE]
    await once.aclose()


async def test_a_coroutine_that_never_answers_is_unclear() -> None:
    """After `answer_for` another worker may ask, so this one stops waiting."""

    async def stuck(inquiry: Inquiry) -> Finding:
        await asyncio.Event().wait()
        return paid(inquiry)

    store = MemoryStore()
    id_ = unknown(store)
    await asyncio.sleep(0.002)
    worker = AsyncReconciler(AsyncMemoryStore(store), rules(stuck, pace=Pace(answer_for=0.01)))  # type: ignore[arg-type]
    assert (await worker.run_once()).unclear == 1
    assert "TimeoutError" in record(store, id_).note


def test_a_coroutine_is_refused_under_threads() -> None:
    """It would never be awaited: the sentence says what to use."""

    async def look(inquiry: Inquiry) -> Finding:
        return paid(inquiry)

    with pytest.raises(ConfigurationError, match="asyncio"):
        reconciler(MemoryStore(), look)  # type: ignore[arg-type]


class Away(MemoryStore):
    """Does not answer at first."""

    def __init__(self, worker_stops: threading.Event) -> None:
        super().__init__()
        self.left = 2
        self.stops = worker_stops

    def scan(self, *args: Any, **options: Any) -> Page:
        """Fail, then answer."""
        self.left -= 1
        if self.left >= 0:
            raise StoreUnavailable("away")
        self.stops.set()
        return super().scan(*args, **options)


def test_a_worker_outlives_the_store_being_away(caplog: pytest.LogCaptureFixture) -> None:
    """It says so, waits, and goes on."""
    back = threading.Event()
    with caplog.at_level(logging.WARNING), reconciler(Away(back), paid, Pace(poll_for=0.01)):
        assert back.wait(10)
    assert "will be asked again" in caplog.text
