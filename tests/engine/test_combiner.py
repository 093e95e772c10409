from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import NamedTuple

import pytest

from oncekey.engine.combiner import Combiner
from oncekey.engine.tuning import Tuning
from oncekey.errors import RecordUnreadable, StoreUnavailable


class Ask(NamedTuple):
    id: bytes
    value: int = 0


class Sender:
    """A store verb that answers when it is let go, and keeps the batches that it saw."""

    def __init__(self) -> None:
        self.seen: list[list[Ask]] = []
        self.go = asyncio.Event()
        self.go.set()
        self.bad: dict[bytes, Exception] = {}

    async def __call__(self, many: Sequence[Ask]) -> list[int]:
        self.seen.append(list(many))
        await self.go.wait()
        for ask in many:
            if ask.id in self.bad:
                raise self.bad[ask.id]
        return [ask.value for ask in many]


def asks(count: int) -> list[Ask]:
    return [Ask(b"%d" % number, number) for number in range(count)]


async def settle_in() -> None:
    for _ in range(5):
        await asyncio.sleep(0)


async def test_a_lone_command_leaves_at_once() -> None:
    """A lone request waits for no timer and no neighbour."""
    sender = Sender()
    assert await Combiner(sender)(Ask(b"1", 7)) == 7
    assert sender.seen == [[Ask(b"1", 7)]]


async def test_what_arrives_together_leaves_together_and_each_gets_its_own_answer() -> None:
    """Requests of one moment share a batch; answers keep their places."""
    sender = Sender()
    combiner = Combiner(sender)
    assert await asyncio.gather(*(combiner(ask) for ask in asks(50))) == list(range(50))
    assert [len(batch) for batch in sender.seen] == [50]


async def test_what_arrives_while_a_batch_is_in_flight_is_the_next_batch() -> None:
    """With one lane the queue leaves when the batch before it lands."""
    sender = Sender()
    combiner = Combiner(sender, Tuning(lanes=1))
    sender.go.clear()
    first = combiner(Ask(b"first"))
    await settle_in()
    rest = [combiner(ask) for ask in asks(20)]
    await settle_in()
    assert len(sender.seen) == 1
    sender.go.set()
    await asyncio.gather(first, *rest)
    assert [len(batch) for batch in sender.seen] == [1, 20]


async def test_a_batch_has_a_largest_size() -> None:
    """A long queue leaves in several batches."""
    sender = Sender()
    combiner = Combiner(sender, Tuning(batch=8))
    await asyncio.gather(*(combiner(ask) for ask in asks(20)))
    assert max(len(batch) for batch in sender.seen) == 8


async def test_equal_ids_never_share_a_batch() -> None:
    """Two commands on one record go one after the other, in order."""
    sender = Sender()
    combiner = Combiner(sender)
    assert await asyncio.gather(combiner(Ask(b"a", 1)), combiner(Ask(b"a", 2)), combiner(Ask(b"b", 3))) == [1, 2, 3]  # type: ignore[comparison-overlap]
    assert sender.seen == [[Ask(b"a", 1), Ask(b"b", 3)], [Ask(b"a", 2)]]


async def test_cancelling_a_waiter_leaves_the_batch_alone() -> None:
    """A client that goes away does not disturb its neighbours; what its command brought is reported as orphaned."""
    sender, orphans = Sender(), []
    combiner: Combiner[Ask, int] = Combiner(sender, orphaned=lambda ask, answer: orphans.append((ask, answer)))
    sender.go.clear()
    gone, stays = combiner(Ask(b"gone", 1)), combiner(Ask(b"stays", 2))
    await settle_in()
    gone.cancel()
    sender.go.set()
    assert await stays == 2
    assert orphans == [(Ask(b"gone", 1), 1)]


async def test_a_command_cancelled_in_the_queue_is_never_sent() -> None:
    """Nobody waits for it, and the store has not seen it: it is dropped."""
    sender = Sender()
    combiner = Combiner(sender)
    gone, stays = combiner(Ask(b"gone")), combiner(Ask(b"stays", 2))
    gone.cancel()
    assert await stays == 2
    assert sender.seen == [[Ask(b"stays", 2)]]


async def test_one_bad_item_does_not_fail_its_neighbours() -> None:
    """When a batch fails each command is asked again alone, and only the bad one fails."""
    sender = Sender()
    sender.bad[b"3"] = RecordUnreadable("another version")
    answers = await asyncio.gather(*map(Combiner(sender), asks(6)), return_exceptions=True)
    assert [answer for answer in answers if not isinstance(answer, Exception)] == [0, 1, 2, 4, 5]
    assert isinstance(answers[3], RecordUnreadable)


async def test_a_store_that_is_away_is_not_asked_once_per_waiter() -> None:
    """Two single failures in a row are a broken store: the rest is told at once."""
    sender = Sender()
    sender.bad = {ask.id: StoreUnavailable("refused") for ask in asks(50)}
    answers = await asyncio.gather(*map(Combiner(sender), asks(50)), return_exceptions=True)
    assert all(isinstance(answer, StoreUnavailable) for answer in answers)
    assert len(sender.seen) == 3
    assert len({id(answer) for answer in answers}) == 50


async def test_a_fault_in_a_store_reaches_its_waiters_as_unavailable() -> None:
    """Whatever a driver throws, nobody is left waiting and nobody may start work on it."""
    sender = Sender()
    sender.bad[b"1"] = ZeroDivisionError()
    loop = asyncio.get_running_loop()
    loop.set_exception_handler(lambda *_: None)  # the lane reports the fault as well
    with pytest.raises(StoreUnavailable) as caught:
        await Combiner(sender)(Ask(b"1"))
    assert isinstance(caught.value.__cause__, ZeroDivisionError)


async def test_it_goes_on_after_its_lanes_were_cancelled() -> None:
    """At shutdown all tasks are cancelled; outcomes can still be stored then."""
    sender = Sender()
    combiner = Combiner(sender)
    await combiner(Ask(b"1", 1))
    for lane in asyncio.all_tasks() - {asyncio.current_task()}:
        lane.cancel()
    await settle_in()
    assert await combiner(Ask(b"2", 2)) == 2


def test_it_moves_to_a_new_event_loop() -> None:
    """A combiner that outlives its loop serves the next one."""
    sender_calls: list[int] = []

    async def send(many: Sequence[Ask]) -> list[int]:
        sender_calls.append(len(many))
        return [ask.value for ask in many]

    combiner = Combiner(send)

    async def once() -> int:
        return await combiner(Ask(b"1", 5))

    assert [asyncio.run(once()), asyncio.run(once())] == [5, 5]


async def test_close_answers_what_is_queued() -> None:
    """Closing ends the lanes after their work, not before."""
    sender = Sender()
    combiner = Combiner(sender)
    sender.go.clear()
    waiting = [combiner(ask) for ask in asks(3)]
    await settle_in()
    closing = asyncio.create_task(combiner.close())
    await settle_in()
    sender.go.set()
    await closing
    assert [future.result() for future in waiting] == [0, 1, 2]
