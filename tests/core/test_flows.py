"""What a request may do, by what the store answers: never Execute without a claim, never without an end."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace as changed

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from oncekey.core.commands import DONE, Claim, Done, Look, Renewal, Settlement, Stale, Swap, Won
from oncekey.core.decision import Decision, Execute, InProgress, Mismatch, Refused, Replay, Unknown
from oncekey.core.flows import TRIES, Answer, Command, Flow, Terms, enter, lapse
from oncekey.core.record import FINAL, IN_PROGRESS, Guarantee, Record, Seen, State, replace
from oncekey.errors import StoreUnavailable
from oncekey.stores.memory import MemoryStore
from oncekey.testing import ManualClock
from oncekey.testing.bench import Exactly, OneByOne

S = State
NOW = 10_000
MINE, OTHERS = b"m" * 16, b"o" * 16
TERMS = Terms(keep_for=1_000, reconcile_after_for=50, attempts=3)
CLAIM = Claim(b"id", MINE, b"print", 300)
ASKED = Exactly(b"print")
RECORD = Record(b"id", S.EXECUTING, 4, OTHERS, b"print", claimed_at=NOW - 9, lease_until=NOW + 200)


def decide(record: Record, claim: Claim = CLAIM, terms: Terms = TERMS) -> tuple[Decision | None, list[Command]]:
    """The decision on a record, and what was asked of the store; every swap is done."""
    flow = enter(claim, ASKED, terms)
    asked: list[Command] = [next(flow)]
    try:
        asked.append(flow.send(Seen(record, NOW)))
        while True:
            asked.append(flow.send(DONE))
    except StopIteration as end:
        return end.value, asked


def test_a_granted_claim_executes() -> None:
    """Won is Execute, with what is left of the lease."""
    flow = enter(CLAIM, ASKED, TERMS)
    assert next(flow) == CLAIM
    with pytest.raises(StopIteration) as end:
        flow.send(Won(250))
    assert end.value.value == Execute(b"id", MINE, 1, 250)


COMPLETED = replace(RECORD, state=S.COMPLETED, lease_until=None, expires_at=NOW + 1)
FAILED = replace(RECORD, state=S.FAILED_RETRYABLE, lease_until=None)
UNKNOWN = replace(RECORD, state=S.UNKNOWN, lease_until=None, due_at=NOW + 30)
SOFT = replace(COMPLETED, due_at=NOW)
ANSWERS: dict[str, tuple[Record, Decision]] = {
    "completed": (COMPLETED, Replay(COMPLETED)),
    "completed for good": (replace(COMPLETED, expires_at=None), Replay(replace(COMPLETED, expires_at=None))),
    "the answer is over, the key is kept": (SOFT, Refused(SOFT, "expired")),
    "softly expired": (replace(SOFT, state=S.EXPIRED), Refused(replace(SOFT, state=S.EXPIRED), "expired")),
    "alive": (RECORD, InProgress(RECORD, 200)),
    "no deadline": (replace(RECORD, lease_until=None), InProgress(replace(RECORD, lease_until=None), 0)),
    "unknown": (UNKNOWN, Unknown(UNKNOWN, 30)),
    "too early": (replace(FAILED, due_at=NOW + 7), InProgress(replace(FAILED, due_at=NOW + 7), 7)),
    "used up": (replace(FAILED, attempts=3), Refused(replace(FAILED, attempts=3), "exhausted")),
    "our own": (replace(RECORD, token=MINE, attempts=2), Execute(b"id", MINE, 2, 200)),
}


@pytest.mark.parametrize(("record", "decision"), ANSWERS.values(), ids=ANSWERS.keys())
def test_what_stands_there_decides(record: Record, decision: Decision) -> None:
    """Each of these records is answered at once, with nothing written."""
    assert decide(record) == (decision, [CLAIM])


MISMATCHED = [
    COMPLETED,
    SOFT,
    FAILED,
    UNKNOWN,
    RECORD,
    replace(RECORD, lease_until=NOW),
    replace(SOFT, state=S.EXPIRED),
]


@pytest.mark.parametrize("record", MISMATCHED, ids=lambda record: record.state.name)
def test_another_request_is_a_mismatch(record: Record) -> None:
    """Another fingerprint is a mismatch whatever the state, and writes nothing."""
    other = replace(record, fingerprint=b"other")
    assert decide(other) == (Mismatch(other), [CLAIM])


TAKEN: dict[str, tuple[Record, int]] = {
    "an expired answer": (replace(COMPLETED, expires_at=NOW, fingerprint=b"whatever"), 1),
    "an expired key": (replace(SOFT, state=S.EXPIRED, expires_at=NOW), 1),
    "an expired failure": (replace(FAILED, expires_at=NOW, attempts=3), 1),
    "a failure": (replace(FAILED, attempts=2), 3),
    "a failure whose time has come": (replace(FAILED, due_at=NOW), 2),
    "a lapsed attempt that may be taken over": (
        replace(RECORD, lease_until=NOW, guarantee=Guarantee.TRANSACTIONAL),
        2,
    ),
}


@pytest.mark.parametrize(("record", "attempt"), TAKEN.values(), ids=TAKEN.keys())
def test_a_key_is_taken_by_compare_and_set(record: Record, attempt: int) -> None:
    """These keys are taken on the version that was seen, and executed only when that is done."""
    decision, asked = decide(record)
    assert decision == Execute(b"id", MINE, attempt, 300)
    assert [type(one) for one in asked] == [Claim, Swap]
    swap = asked[1]
    assert isinstance(swap, Swap)
    assert (swap.seen.version, swap.new.version, swap.new.token) == (4, 5, MINE)


def test_a_lapse_before_begin_is_made_first_and_then_retried() -> None:
    """A lapsed claim becomes a failure in one write, and that failure is retried in the next."""
    decision, asked = decide(replace(RECORD, state=S.CLAIMED, lease_until=NOW))
    assert decision == Execute(b"id", MINE, 2, 300)
    assert [one.new.state for one in asked if isinstance(one, Swap)] == [S.FAILED_RETRYABLE, S.EXECUTING]


def test_a_lapse_while_executing_is_made_unknown() -> None:
    """With at_most_once nobody runs a lapsed attempt: it is made unknown, and reported as that."""
    decision, asked = decide(replace(RECORD, lease_until=NOW))
    assert isinstance(decision, Unknown)
    assert decision.left_for == TERMS.reconcile_after_for
    assert [one.new.token for one in asked if isinstance(one, Swap)] == [OTHERS]


def test_an_own_claim_whose_lease_is_over_is_not_executed() -> None:
    """A claim whose answer came after its lease is no permission: it lapses like anybody's."""
    decision, _ = decide(replace(RECORD, token=MINE, lease_until=NOW))
    assert isinstance(decision, Unknown)


def test_a_conflict_is_decided_again() -> None:
    """When somebody else was quicker, what stands there now decides."""
    flow = enter(CLAIM, ASKED, TERMS)
    next(flow)
    assert isinstance(flow.send(Seen(FAILED, NOW)), Swap)
    with pytest.raises(StopIteration) as end:
        flow.send(Stale(Seen(COMPLETED, NOW)))
    assert end.value.value == Replay(COMPLETED)


def test_a_record_that_vanished_is_claimed_again() -> None:
    """When a purge was quicker, the key is claimed like a free one, never taken for ours."""
    flow = enter(CLAIM, ASKED, TERMS)
    next(flow)
    flow.send(Seen(FAILED, NOW))
    assert flow.send(Stale(None)) == CLAIM


def test_a_lost_swap_is_recognised() -> None:
    """A swap whose answer was lost shows our own token when it is repeated: that is our success."""
    flow = enter(CLAIM, ASKED, TERMS)
    next(flow)
    swap = flow.send(Seen(FAILED, NOW))
    assert isinstance(swap, Swap)
    with pytest.raises(StopIteration) as end:
        flow.send(Stale(Seen(swap.new, NOW + 100)))
    assert end.value.value == Execute(b"id", MINE, 2, 200)


def test_endless_conflict_ends_in_an_error() -> None:
    """Whoever loses every round is told to come back; nothing was run."""
    flow = enter(CLAIM, ASKED, TERMS)
    next(flow)
    flow.send(Seen(FAILED, NOW))
    for turn in range(TRIES - 1):
        assert isinstance(flow.send(Stale(Seen(replace(FAILED, version=5 + turn), NOW))), Swap)
    with pytest.raises(StoreUnavailable, match="nothing was run"):
        flow.send(Stale(Seen(FAILED, NOW)))


def test_a_late_request_only_looks() -> None:
    """A request older than answers are kept may find its answer, and is never run as new."""
    flow = enter(CLAIM, ASKED, TERMS, late=True)
    assert next(flow) == Look(b"id")
    with pytest.raises(StopIteration) as end:
        flow.send(None)
    assert end.value.value == Refused(None, "late")


@pytest.mark.parametrize("record", [COMPLETED, replace(COMPLETED, expires_at=NOW), replace(FAILED, expires_at=NOW)])
def test_a_late_request_finds_its_answer_or_nothing(record: Record) -> None:
    """What a late request finds alive it is given; what has expired is not run again for it."""
    flow = enter(CLAIM, ASKED, TERMS, late=True)
    next(flow)
    with pytest.raises(StopIteration) as end:
        flow.send(Seen(record, NOW))
    assert end.value.value == (Replay(record) if record is COMPLETED else Refused(record, "late"))


# ---- whatever the store answers ----------------------------------------------------------------------------------

times = st.none() | st.integers(NOW - 2, NOW + 2)
records = st.builds(
    Record,
    id=st.just(b"id"),
    state=st.sampled_from(State),
    version=st.integers(1, 9),
    token=st.sampled_from([MINE, OTHERS, b""]),
    fingerprint=st.sampled_from([b"print", b"other"]),
    guarantee=st.sampled_from(Guarantee),
    attempts=st.integers(1, 4),
    lease_until=times,
    due_at=times,
    expires_at=times,
)
seen = st.builds(Seen, records, st.just(NOW))
claim_answers = st.one_of(st.builds(Won, st.integers(1, 300)), seen)
look_answers = st.one_of(st.none(), seen)
swap_answers = st.one_of(st.just(DONE), st.builds(Stale, st.none() | seen))


def answer_to(command: Command, draw: Callable[[st.SearchStrategy[Answer]], Answer]) -> Answer:
    """Something that a store may answer to this command."""
    if isinstance(command, Claim):
        return draw(claim_answers)
    return draw(look_answers if isinstance(command, Look) else swap_answers)


@given(data=st.data(), late=st.booleans(), latch=st.booleans())
def test_nothing_executes_without_a_claim(data: st.DataObject, late: bool, latch: bool) -> None:
    """Whatever a store answers, Execute follows only Won, a swap of ours that was done, or our own living claim."""
    claim = CLAIM._replace(state=S.CLAIMED if latch else S.EXECUTING)
    flow = enter(claim, ASKED, TERMS, late=late)
    command: Command = next(flow)
    for _ in range(3 * TRIES):
        answer = answer_to(command, data.draw)
        following = advance(flow, answer)
        if following is None or isinstance(following, Decision):
            assert not isinstance(following, Execute) or granted(command, answer)
            return
        assert not isinstance(following, Settlement | Renewal)
        if isinstance(following, Swap):
            assert following.new.version == following.seen.version + 1
        command = following
    raise AssertionError("the flow asks for ever")


def advance(flow: Flow, answer: Answer) -> Command | Decision | None:
    """The next command, the decision at the end, or None if it could not be decided."""
    try:
        return flow.send(answer)
    except StoreUnavailable:
        return None
    except StopIteration as end:
        return end.value  # type: ignore[no-any-return]


def granted(command: Command, answer: Answer) -> bool:
    """Whether this answer to this command is a claim of ours."""
    if isinstance(answer, Won):
        return isinstance(command, Claim)
    if isinstance(answer, Done):
        return isinstance(command, Swap) and command.new.token == MINE and command.new.state in IN_PROGRESS
    found = answer.found if isinstance(answer, Stale) else answer
    assert found is not None
    record = found.record
    return record.token == MINE and record.state in IN_PROGRESS and (record.lease_until or 0) > found.now


@example(record=replace(RECORD, state=S.EXECUTING, token=MINE, lease_until=NOW))
@given(record=records)
def test_a_swap_is_a_row_of_the_table(record: Record) -> None:
    """Whatever stands there, a flow takes it only as the table says: nothing open is overwritten while it is alive."""
    decision, asked = decide(record)
    assert decision is not None
    for one in asked:
        if isinstance(one, Swap) and one is asked[1]:
            over = record.lease_until is not None and record.lease_until <= NOW
            if one.new.state not in IN_PROGRESS:  # a lapse, which may keep a token that is ours
                assert record.state in IN_PROGRESS
                assert over
                continue
            expired = record.expires_at is not None and record.expires_at <= NOW
            failed = record.state is S.FAILED_RETRYABLE and record.fingerprint == b"print"
            taken = record.state is S.EXECUTING and over and record.guarantee.may_take_over
            assert one.new.token == MINE
            assert (record.state in FINAL and expired) or failed or taken


@pytest.mark.parametrize("state", State)
def test_only_a_lease_that_is_over_lapses(state: State) -> None:
    """A sweep changes nothing that is alive, has no deadline, or is not in progress."""
    for until in (None, NOW, NOW + 1):
        new = lapse(Seen(replace(RECORD, state=state, lease_until=until), NOW), TERMS)
        assert (new is not None) == (state in IN_PROGRESS and until == NOW)


def test_a_lapse_says_when_to_look_again() -> None:
    """An unknown is due for a reconciler; a key that became free is kept as long as an answer."""
    unknown = lapse(Seen(replace(RECORD, lease_until=NOW), NOW), TERMS)
    freed = lapse(Seen(replace(RECORD, state=S.CLAIMED, lease_until=NOW), NOW), TERMS)
    assert unknown is not None
    assert freed is not None
    assert (unknown.due_at, unknown.expires_at) == (NOW + 50, None)
    assert (freed.due_at, freed.expires_at) == (None, NOW + 1_000)


def test_a_life_on_the_memory_store() -> None:
    """Claim, fail, wait, retry, lapse, and the truth that comes late: the flow and the store agree all the way."""
    clock = ManualClock()
    store = OneByOne(MemoryStore(clock))

    def ask(token: bytes) -> Decision:
        flow = enter(CLAIM._replace(token=token), ASKED, changed(TERMS, attempts=None))
        answer: Answer = next(flow).on(store)
        while True:
            try:
                answer = flow.send(answer).on(store)
            except StopIteration as end:
                return end.value  # type: ignore[no-any-return]

    assert isinstance(ask(MINE), Execute)
    store.settle(Settlement(b"id", MINE, S.FAILED_RETRYABLE, due_for=100))
    assert isinstance(ask(OTHERS), InProgress)
    clock.advance(100)
    assert ask(OTHERS) == Execute(b"id", OTHERS, 2, 300)
    clock.advance(300)
    assert isinstance(ask(MINE), Unknown)
    assert store.settle(Settlement(b"id", OTHERS, S.COMPLETED, b"at last")) == DONE
    replay = ask(MINE)
    assert isinstance(replay, Replay)
    assert replay.record.outcome == b"at last"


def test_a_purged_key_is_another_record() -> None:
    """Who saw a record before it expired and was purged has no claim on what is claimed under its key after that."""
    clock = ManualClock()
    store = OneByOne(MemoryStore(clock))
    store.claim(CLAIM._replace(token=OTHERS))
    store.settle(Settlement(b"id", OTHERS, S.COMPLETED, b"old", keep_for=100))
    clock.advance(100)
    slow = enter(CLAIM, ASKED, TERMS)
    swap = slow.send(next(slow).on(store))
    store.store.purge()
    store.claim(CLAIM._replace(token=b"n" * 16))
    store.settle(Settlement(b"id", b"n" * 16, S.COMPLETED, b"new", keep_for=100))
    assert isinstance(swap, Swap)
    assert isinstance(swap.on(store), Stale)
