"""Batches that need no task: sent in the caller's own step, answered in a callback."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Any

import pytest

from oncekey.engine.combiner import PART, Combiner
from oncekey.engine.tuning import Tuning
from oncekey.errors import StoreError, StoreUnavailable
from tests.engine.test_combiner import Ask, Sender, asks, settle_in


class Post:
    """What was posted, and whom to tell; `full` while every connection is taken."""

    def __init__(self) -> None:
        self.seen: list[list[Ask]] = []
        self.told: list[Callable[[Any], None]] = []
        self.full = False

    def __call__(self, many: Sequence[Ask], told: Callable[[Any], None]) -> bool:
        if self.full:
            return False
        self.seen.append(list(many))
        self.told.append(told)
        return True

    def land(self, number: int = 0) -> None:
        """The server answers one of those that are under way."""
        batch, told = self.seen.pop(number), self.told.pop(number)
        told([ask.value for ask in batch])


def posting(post: Post, sender: Sender, lanes: int = 2, **more: Any) -> Combiner[Ask, int]:
    return Combiner(sender, Tuning(store_for=5.0, lanes=lanes), post=post, **more)


async def test_each_gets_its_own_answer_and_no_task_is_made() -> None:
    """What comes in one turn of the loop leaves together."""
    post, sender = Post(), Sender()
    combiner = posting(post, sender)
    waiting = [combiner(ask) for ask in asks(10)]
    await settle_in()
    assert [len(batch) for batch in post.seen] == [10]
    assert not combiner._running
    post.land()
    assert await asyncio.gather(*waiting) == list(range(10))
    assert (combiner.batches, combiner.items, sender.seen) == (1, 10, [])


async def test_a_lone_command_leaves_in_its_own_step() -> None:
    """Where the one before it had no neighbours either; in company it waits for them to the end of the turn."""
    post, sender = Post(), Sender()
    combiner = posting(post, sender)
    first = combiner(Ask(b"1", 1))
    assert not post.seen
    await settle_in()
    post.land()
    assert await first == 1
    second = combiner(Ask(b"2", 2))
    assert post.seen == [[Ask(b"2", 2)]]
    post.land()
    assert await second == 2


async def test_a_long_queue_is_parted_among_the_lanes() -> None:
    """So that the server works on one half while we work on the other; small batches are not worth it."""
    post = Post()
    combiner = posting(post, Sender())
    waiting = [combiner(ask) for ask in asks(3 * PART)]
    await settle_in()
    assert [len(batch) for batch in post.seen] == [3 * PART // 2] * 2
    more = combiner(Ask(b"more", 7))
    await settle_in()
    assert len(post.seen) == 2
    post.land()
    assert post.seen[1] == [Ask(b"more", 7)]
    post.land()
    post.land()
    assert await asyncio.gather(*waiting, more) == [*range(3 * PART), 7]


async def test_what_cannot_be_posted_is_asked_for_in_a_task() -> None:
    """No connection is open, or all are taken: the usual way waits for one."""
    post, sender = Post(), Sender()
    post.full = True
    combiner = posting(post, sender)
    assert await asyncio.gather(*(combiner(ask) for ask in asks(5))) == list(range(5))
    assert [len(batch) for batch in sender.seen] == [5]
    assert (combiner.batches, combiner.items) == (1, 5)


async def test_a_post_that_raises_leaves_nobody_waiting() -> None:
    """What cannot be written down at all: the usual way meets it too, and tells each who asked."""
    sender = Sender()

    def raising(many: Sequence[Ask], told: Callable[[Any], None]) -> bool:
        raise OverflowError

    combiner: Combiner[Ask, int] = Combiner(sender, Tuning(), post=raising)
    answers = asyncio.gather(*(combiner(ask) for ask in asks(3)))
    assert await asyncio.wait_for(answers, 5) == [0, 1, 2]


async def test_what_failed_soon_is_asked_again_in_the_usual_way() -> None:
    """A connection that the server had closed costs nobody an error: all verbs may be repeated."""
    post, sender = Post(), Sender()
    combiner = posting(post, sender)
    waiting = [combiner(ask) for ask in asks(3)]
    await settle_in()
    post.told[0](StoreUnavailable("cut"))
    assert await asyncio.gather(*waiting) == [0, 1, 2]
    assert [len(batch) for batch in sender.seen] == [1, 1, 1]


async def test_what_failed_late_is_not_asked_again() -> None:
    """The time is up: each is told so, with an error of its own."""
    post, sender = Post(), Sender()
    combiner: Combiner[Ask, int] = Combiner(sender, Tuning(store_for=0.0), post=post)
    waiting = [combiner(ask) for ask in asks(3)]
    await settle_in()
    post.told[0](StoreUnavailable("late"))
    failed = await asyncio.gather(*waiting, return_exceptions=True)
    assert [str(error) for error in failed] == ["late"] * 3
    assert len({id(error) for error in failed}) == 3
    assert sender.seen == []


async def test_what_was_to_be_asked_again_and_was_cancelled_leaves_nobody_waiting() -> None:
    """At shutdown all tasks are cancelled, some before their first step."""
    post, sender = Post(), Sender()
    combiner = posting(post, sender)
    waiting = [combiner(ask) for ask in asks(3)]
    await settle_in()
    post.told[0](StoreUnavailable("cut"))
    for task in combiner._running:
        task.cancel()
    for ended in await asyncio.wait_for(asyncio.gather(*waiting, return_exceptions=True), 5):
        assert isinstance(ended, StoreError)


async def test_an_answer_for_nobody_is_reported() -> None:
    """Its caller has left before it came: a claim that was won must be given back."""
    post, orphans = Post(), []
    combiner = posting(post, Sender(), orphaned=lambda ask, answer: orphans.append((ask, answer)))
    gone, stays = combiner(Ask(b"gone", 1)), combiner(Ask(b"stays", 2))
    await settle_in()
    gone.cancel()
    post.land()
    assert await stays == 2
    assert orphans == [(Ask(b"gone", 1), 1)]


async def test_close_waits_for_what_is_under_way() -> None:
    """And for what stands in the queue behind it."""
    post = Post()
    combiner = posting(post, Sender(), lanes=1)
    first = combiner(Ask(b"1", 1))
    await settle_in()
    second = combiner(Ask(b"2", 2))
    closing = asyncio.create_task(combiner.close())
    for _ in range(2):
        await settle_in()
        assert not closing.done()
        post.land()
    await closing
    assert [await first, await second] == [1, 2]


@pytest.mark.parametrize("shared", [None, lambda answer: True])
async def test_equal_ids_never_share_a_batch(shared: Callable[[int], bool] | None) -> None:
    """The later one takes the earlier one's answer, or goes after it."""
    post = Post()
    combiner = posting(post, Sender(), lanes=1, shared=shared)
    waiting = [combiner(Ask(b"a", 1)), combiner(Ask(b"a", 2)), combiner(Ask(b"b", 3))]
    await settle_in()
    assert post.seen == [[Ask(b"a", 1), Ask(b"b", 3)]]
    while not all(future.done() for future in waiting):
        post.land()
        await settle_in()
    assert await asyncio.gather(*waiting) == ([1, 2, 3] if shared is None else [1, 1, 3])
