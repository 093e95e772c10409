from __future__ import annotations

import threading
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import NamedTuple

import pytest

from oncekey.engine.threads import ThreadCombiner
from oncekey.engine.tuning import Tuning
from oncekey.errors import RecordUnreadable, StoreUnavailable


class Ask(NamedTuple):
    id: bytes
    value: int = 0


class Sender:
    """A store verb that answers when it is let go, and keeps the batches that it saw."""

    def __init__(self) -> None:
        self.seen: list[list[Ask]] = []
        self.go = threading.Event()
        self.go.set()
        self.entered = threading.Event()
        self.bad: dict[bytes, Exception] = {}

    def __call__(self, many: Sequence[Ask]) -> list[int]:
        self.seen.append(list(many))
        self.entered.set()
        self.go.wait(10)
        for ask in many:
            if ask.id in self.bad:
                raise self.bad[ask.id]
        return [ask.value for ask in many]


def asks(count: int) -> list[Ask]:
    return [Ask(b"%d" % number, number) for number in range(count)]


def queued(combiner: ThreadCombiner[Ask, int], count: int) -> None:
    """Wait until so many threads sleep in the queue."""
    while len(combiner._queue) < count:
        threading.Event().wait(0.001)


def test_a_lone_command_leaves_at_once() -> None:
    """A lone thread leads a batch of one."""
    sender = Sender()
    assert ThreadCombiner(sender)(Ask(b"1", 7)) == 7
    assert sender.seen == [[Ask(b"1", 7)]]


def test_what_arrives_meanwhile_is_the_next_batch() -> None:
    """Threads that come while a batch is in flight share the next one, led by one of themselves."""
    sender = Sender()
    combiner = ThreadCombiner(sender, Tuning(lanes=1))
    sender.go.clear()
    with ThreadPoolExecutor(40) as pool:
        first = pool.submit(combiner, Ask(b"first"))
        sender.entered.wait(10)
        rest = [pool.submit(combiner, ask) for ask in asks(30)]
        queued(combiner, 30)
        sender.go.set()
        assert [future.result(10) for future in rest] == list(range(30))
        first.result(10)
    assert [len(batch) for batch in sender.seen] == [1, 30]


def test_many_threads_and_many_rounds_lose_nothing() -> None:
    """Every call gets its own answer and the lead is always given back."""
    combiner = ThreadCombiner(Sender(), Tuning(lanes=2, batch=7))

    def work(worker: int) -> bool:
        return all(combiner(Ask(b"%d %d" % (worker, n), n)) == n for n in range(100))

    with ThreadPoolExecutor(24) as pool:
        assert all(pool.map(work, range(24)))
    assert combiner._leaders == 0
    assert combiner.items == 2400


def test_equal_ids_never_share_a_batch() -> None:
    """Two commands on one record go one after the other."""
    sender = Sender()
    combiner = ThreadCombiner(sender, Tuning(lanes=1))
    sender.go.clear()
    with ThreadPoolExecutor(4) as pool:
        first = pool.submit(combiner, Ask(b"first"))
        sender.entered.wait(10)
        same = [pool.submit(combiner, Ask(b"a", n)) for n in (1, 2)]
        queued(combiner, 2)
        sender.go.set()
        assert sorted(future.result(10) for future in same) == [1, 2]
        first.result(10)
    assert [len(batch) for batch in sender.seen] == [1, 1, 1]


def test_one_bad_item_does_not_fail_its_neighbours() -> None:
    """When a batch fails each command is asked again alone, and only the bad one fails."""
    sender = Sender()
    sender.bad[b"3"] = RecordUnreadable("another version")
    combiner = ThreadCombiner(sender, Tuning(lanes=1))
    sender.go.clear()
    with ThreadPoolExecutor(10) as pool:
        first = pool.submit(combiner, Ask(b"first"))
        sender.entered.wait(10)
        rest = [pool.submit(combiner, ask) for ask in asks(6)]
        queued(combiner, 6)
        sender.go.set()
        errors = [future.exception(10) for future in rest]
        first.result(10)
    assert [type(error) for error in errors] == [type(None)] * 3 + [RecordUnreadable] + [type(None)] * 2


def test_a_fault_in_a_store_fails_its_callers_and_gives_the_lead_back() -> None:
    """Whatever a driver throws, nobody waits for ever and the next call is served."""
    sender = Sender()
    sender.bad[b"1"] = ZeroDivisionError()
    combiner = ThreadCombiner(sender)
    with pytest.raises(StoreUnavailable) as caught:
        combiner(Ask(b"1"))
    assert isinstance(caught.value.__cause__, ZeroDivisionError)
    assert combiner(Ask(b"2", 2)) == 2
    assert combiner._leaders == 0


def test_a_store_that_is_away_is_not_asked_once_per_waiter() -> None:
    """Two single failures in a row are a broken store: the rest is told at once."""
    sender = Sender()
    sender.bad = {ask.id: StoreUnavailable("refused") for ask in asks(20)}
    combiner = ThreadCombiner(sender, Tuning(lanes=1))
    sender.go.clear()
    with ThreadPoolExecutor(24) as pool:
        first = pool.submit(combiner, Ask(b"first"))
        sender.entered.wait(10)
        rest = [pool.submit(combiner, ask) for ask in asks(20)]
        queued(combiner, 20)
        sender.go.set()
        assert all(isinstance(future.exception(10), StoreUnavailable) for future in rest)
        first.result(10)
    assert len(sender.seen) == 4
