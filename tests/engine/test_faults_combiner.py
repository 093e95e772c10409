from __future__ import annotations

import asyncio
import contextvars
from collections.abc import Sequence
from typing import Any, NamedTuple

import pytest

from oncekey.core.commands import Claim, Claimed, Won
from oncekey.core.record import Seen
from oncekey.core.transitions import claimed
from oncekey.engine.combiner import Combiner
from oncekey.engine.common import orphaned, seen
from oncekey.engine.tuning import Tuning
from oncekey.errors import ConfigurationError, MissingExtra, SchemaMissing, StoreUnavailable
from oncekey.stores.memory import AsyncMemoryStore, MemoryStore
from tests.engine.stubs import claim


class Ask(NamedTuple):
    id: bytes
    value: int = 0


class Script:
    """A store verb that meets each call with the next step: an error to raise, or None to answer; then it answers."""

    def __init__(self, *steps: BaseException | None) -> None:
        self.steps = list(steps)
        self.seen: list[list[Ask]] = []
        self.go = asyncio.Event()

    async def __call__(self, many: Sequence[Ask]) -> list[int]:
        self.seen.append(list(many))
        await self.go.wait()
        step = self.steps.pop(0) if self.steps else None
        if step is not None:
            raise step
        return [ask.value for ask in many]


async def settle_in() -> None:
    for _ in range(10):
        await asyncio.sleep(0)


async def outcomes(*futures: Any) -> list[Any]:
    """What became of each; whoever is left waiting is an error."""
    return await asyncio.wait_for(asyncio.gather(*futures, return_exceptions=True), 5)


async def test_what_is_queued_behind_a_faulty_batch_is_still_sent() -> None:
    """A driver's own error fails its batch; the next one goes out all the same."""
    script = Script(ZeroDivisionError())
    combiner = Combiner(script, Tuning(lanes=1))
    first = combiner(Ask(b"1", 1))
    await settle_in()
    second = combiner(Ask(b"2", 2))
    script.go.set()
    failed, answered = await outcomes(first, second)
    assert (type(failed), answered) == (StoreUnavailable, 2)


async def test_what_is_queued_behind_a_cancelled_lane_is_still_sent() -> None:
    """A lane that is cancelled in flight leaves its queue to another one."""
    script = Script()
    combiner = Combiner(script, Tuning(lanes=1))
    first = combiner(Ask(b"1", 1))
    await settle_in()
    second = combiner(Ask(b"2", 2))
    [lane] = combiner._running
    lane.cancel()
    await settle_in()
    script.go.set()
    failed, answered = await outcomes(first, second)
    assert (type(failed), answered) == (StoreUnavailable, 2)


async def test_what_came_with_a_cancelled_waking_lane_is_still_sent() -> None:
    """A lane that is cancelled between its waking and its first step does not take the queue with it."""
    script = Script()
    script.go.set()
    combiner = Combiner(script, Tuning(lanes=1))
    await combiner(Ask(b"0"))
    await settle_in()
    waiting = combiner(Ask(b"1", 1))
    [lane] = combiner._running
    lane.cancel()
    assert await outcomes(waiting) == [1]


@pytest.mark.parametrize("fault", [ZeroDivisionError(), asyncio.CancelledError()])
async def test_a_fault_while_asking_singly_leaves_nobody_waiting(fault: BaseException) -> None:
    """The batch fails, then a single one fails in another way: the rest are answered too."""
    script = Script(StoreUnavailable("refused"), fault)
    script.go.set()
    combiner = Combiner(script, Tuning(lanes=1))
    answers = await outcomes(*(combiner(Ask(b"%d" % number, number)) for number in range(4)))
    assert isinstance(answers[0], StoreUnavailable)
    assert len(answers) == 4


async def test_a_verb_that_answers_too_few_leaves_nobody_waiting() -> None:
    """A store that breaks its contract is a store that could not be asked."""

    async def short(many: Sequence[Ask]) -> list[int]:
        return [1]

    combiner = Combiner(short, Tuning(lanes=1))
    answers = await outcomes(combiner(Ask(b"1")), combiner(Ask(b"2")))
    assert all(isinstance(answer, StoreUnavailable) for answer in answers)


async def test_a_driver_fault_does_not_open_the_lanes_for_good() -> None:
    """After a fault no more batches are in flight at a time than before it."""
    script = Script(ZeroDivisionError())
    script.go.set()
    combiner = Combiner(script, Tuning(lanes=2))
    await outcomes(combiner(Ask(b"0")))
    script.go.clear()
    script.seen.clear()
    waiting = []
    for number in range(6):
        waiting.append(combiner(Ask(b"%d" % number, number)))
        await settle_in()
    assert len(script.seen) == 2
    script.go.set()
    assert await outcomes(*waiting) == list(range(6))


async def test_a_verb_that_hangs_is_given_up() -> None:
    """A store that keeps neither its promise nor its time budget cannot hold its callers for ever."""
    combiner = Combiner(Script(), Tuning(store_for=0.01, lanes=1))
    answers = await outcomes(combiner(Ask(b"1")))
    assert isinstance(answers[0], StoreUnavailable)


@pytest.mark.parametrize("error", [SchemaMissing("run: oncekey migrate"), MissingExtra("the store x://", "x")])
async def test_what_to_do_about_a_wrong_set_up_reaches_the_caller(error: ConfigurationError) -> None:
    """The sentence that says what to write is not replaced by one that does not."""
    script = Script(*[error] * 3)
    script.go.set()
    combiner = Combiner(script)
    for answer in await outcomes(combiner(Ask(b"1")), combiner(Ask(b"2"))):
        assert isinstance(answer, type(error))
        assert str(answer) == str(error)


async def test_a_lane_does_not_keep_the_context_of_the_request_that_opened_it() -> None:
    """What a tracer or a framework binds to one request is not seen by the store calls of all later ones."""
    who = contextvars.ContextVar("who", default="nobody")
    seen: list[str] = []

    async def send(many: Sequence[Ask]) -> list[int]:
        seen.append(who.get())
        return [0 for _ in many]

    combiner = Combiner(send)
    who.set("alice")
    await combiner(Ask(b"1"))
    assert seen == ["nobody"]


async def test_another_running_loop_is_refused_and_disturbs_nobody() -> None:
    """An engine serves one event loop at a time; a second one at the same time is told so."""
    script = Script()
    combiner = Combiner(script, Tuning(lanes=1))
    first = combiner(Ask(b"1", 1))
    await settle_in()

    async def elsewhere() -> None:
        await combiner(Ask(b"2"))

    with pytest.raises(ConfigurationError, match="event loop"):
        await asyncio.to_thread(asyncio.run, elsewhere())
    script.go.set()
    assert await outcomes(first) == [1]


class Books:
    """A keeper that only notes what it is asked to settle."""

    def __init__(self) -> None:
        self.owed: list[bytes] = []

    def owe(self, settlement: Any, *, quiet: bool = False) -> None:
        self.owed.append(settlement.token)


@pytest.mark.parametrize(("own", "given_back"), [(True, 1), (False, 0)])
def test_a_claim_seen_again_by_its_own_token_is_given_back(own: bool, given_back: int) -> None:
    """The first reply was lost and the caller has left: what the repetition finds is ours to release."""
    ours = claim()
    standing = claimed(None, ours if own else ours._replace(token=b"x" * 16), 1000)
    books: Any = Books()
    answer: Claimed = Seen(standing, 1000)
    orphaned(books)(ours, answer)
    assert len(books.owed) == given_back


def test_a_claim_that_was_won_for_nobody_is_given_back() -> None:
    """Its caller has left before the answer came."""
    books: Any = Books()
    ours: Claim = claim()
    orphaned(books)(ours, Won(1000))
    assert books.owed == [ours.token]


async def test_a_command_between_a_lanes_last_look_and_its_end_is_sent() -> None:
    """At the close of an engine an outcome may come just then: a new lane takes it, and nobody waits for ever."""
    script = Script()
    script.go.set()
    combiner: Combiner[Ask, int] = Combiner(script, Tuning(lanes=1))
    assert await combiner(Ask(b"1", 1)) == 1
    assert len(combiner._running) == 1  # it has found the queue empty, and ends in this turn of the loop
    late = combiner(Ask(b"2", 2))
    await combiner.close()
    assert await outcomes(late) == [2]


async def test_duplicates_in_the_queue_share_one_question() -> None:
    """A hot key costs one for its winner and one for all others, and nobody is told of a victory that is not his."""
    store, asked = AsyncMemoryStore(MemoryStore()), []

    async def send(many: Sequence[Claim]) -> list[Claimed]:
        asked.append(len(many))
        await asyncio.sleep(0)
        return await store.claim(many)

    combiner: Combiner[Claim, Claimed] = Combiner(send, Tuning(lanes=1), shared=seen)
    answers = await outcomes(*(combiner(claim("hot")) for _ in range(500)), combiner(claim("cold")))
    assert sum(isinstance(answer, Won) for answer in answers) == 2
    assert sum(isinstance(answer, Seen) for answer in answers) == 499
    assert len(asked) <= 3


async def test_duplicates_fail_together() -> None:
    """While a store is away they do not wait for its time budget one after the other."""
    script = Script(*(StoreUnavailable("away") for _ in range(99)))
    script.go.set()
    combiner: Combiner[Ask, int] = Combiner(script, Tuning(lanes=1), shared=lambda answer: True)
    failed = await outcomes(*(combiner(Ask(b"hot", number)) for number in range(50)))
    assert {type(error) for error in failed} == {StoreUnavailable}
    assert len({id(error) for error in failed}) == 50
    assert len(script.seen) <= 2


async def test_a_duplicate_outlives_the_one_before_it() -> None:
    """The caller whose question it was has left: the next one asks for itself."""
    script = Script()
    combiner: Combiner[Ask, int] = Combiner(script, Tuning(lanes=1), shared=lambda answer: True)
    first, second = combiner(Ask(b"hot", 1)), combiner(Ask(b"hot", 2))
    await settle_in()
    first.cancel()
    script.go.set()
    assert await outcomes(second) == [2]
