"""Ordered mode: of each partition only the last place is kept, whatever number of messages came."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from oncekey.effects.inbox import Handled, Inbox, Later, Message, Patience
from oncekey.errors import ConfigurationError, RedeliverLater
from tests.effects.inbox.places import Place

Make = Callable[..., Inbox]


def at(partition: int, offset: int) -> Message:
    return Message("orders", b"", place=(partition, offset))


@pytest.fixture
def ship(place: Place, make: Make) -> Any:
    """A handler in ordered mode, in an inbox without a window: it needs none."""
    inbox = make(redelivery_for=None, patience=Patience(attempts=2))

    @inbox.once("orders", ordered=True)
    def handler(message: Message, connection: Any) -> None:
        assert message.place is not None
        place.ship(connection, f"{message.place[0]}/{message.place[1]}")
        if message.place in bad:
            raise ValueError("poison")

    bad: list[tuple[int, int]] = []
    handler.bad = bad  # type: ignore[attr-defined]
    return handler


def test_space_does_not_grow(place: Place, ship: Any) -> None:
    """A thousand messages of two partitions leave two rows."""
    for first in range(0, 1000, 100):
        for partition in (0, 1):
            ship.deliver_many([at(partition, offset) for offset in range(first, first + 100)])
    assert len(place.shipped()) == 2000
    assert ship.inbox.count()[:] == (0, 2, 0, 0)
    assert ship.inbox.place("orders", 1) == 999


def test_what_came_before_is_a_duplicate(place: Place, ship: Any) -> None:
    """Everything up to the last place was handled; offsets may have gaps, and every partition has its own."""
    verdicts = [ship.deliver(at(partition, offset)) for partition, offset in [(0, 5), (0, 5), (0, 3), (0, 9), (1, 5)]]
    assert [verdict.how for verdict in verdicts] == ["done", "duplicate", "duplicate", "done", "done"]
    assert place.shipped() == ["0/5", "0/9", "1/5"]


def test_a_batch_may_begin_with_duplicates(place: Place, ship: Any) -> None:
    """Whoever takes over a partition begins at the last committed offset, which may be behind ours."""
    ship.deliver_many([at(0, 0), at(0, 1)])
    assert [verdict.how for verdict in ship.deliver_many([at(0, 1), at(0, 2)])] == ["duplicate", "done"]
    assert [verdict.how for verdict in ship.deliver_many([at(0, 1), at(0, 2)])] == ["duplicate"] * 2
    assert place.shipped() == ["0/0", "0/1", "0/2"]


def test_nothing_overtakes_one_that_waits(place: Place, ship: Any) -> None:
    """After a failure the rest of the batch waits; what was before it is kept."""
    ship.bad.append((0, 1))
    verdicts = ship.deliver_many([at(0, 0), at(0, 1), at(0, 2)])
    assert verdicts[0] == Handled("done")
    assert isinstance(verdicts[1], Later)
    assert isinstance(verdicts[1].error, ValueError)
    assert isinstance(verdicts[2], Later)
    assert place.shipped() == ["0/0"]


def test_poison_is_stepped_over(place: Place, ship: Any) -> None:
    """When its attempts are used up the place moves past it, in the transaction that parks it."""
    ship.bad.append((0, 1))
    verdicts = [
        ship.deliver(replace(at(0, offset), redelivered=again))
        for offset, again in [(1, False), (1, True), (1, True), (2, False)]
    ]
    assert [getattr(verdict, "how", "later") for verdict in verdicts] == ["later", "parked", "duplicate", "done"]
    assert place.shipped() == ["0/2"]
    ship.bad.clear()
    (found,) = ship.inbox.parked().parked
    ship.inbox.requeue(found.id)
    assert ship.run_requeued() == Handled("done")
    assert place.shipped() == ["0/1", "0/2"]


def test_a_zombie_is_rolled_back(place: Place, make: Make) -> None:
    """Whoever lost its partition while it worked cannot move the place back, and its effects go with it."""
    inbox = make()

    @inbox.once("orders", ordered=True)
    def late(message: Message, connection: Any) -> None:
        # Whoever moved on, it is seen by the write that comes last.
        connection.execute("INSERT INTO oncekey_inbox_place VALUES ('', 'orders', 0, 7, 0)")
        place.ship(connection, "zombie")

    verdict = late.deliver(at(0, 6))
    assert isinstance(verdict, Later)
    assert isinstance(verdict.error, RedeliverLater)
    assert place.shipped() == []


def test_a_topic_made_anew_can_begin_anew(place: Place, ship: Any) -> None:
    """Its offsets begin at zero, and all would pass for duplicates: an operator says so."""
    ship.deliver(at(0, 7))
    assert ship.deliver(at(0, 0)).how == "duplicate"
    assert ship.inbox.forget_places("orders") == 1
    assert ship.deliver(at(0, 0)).how == "done"


def test_a_message_without_a_place_is_parked(ship: Any) -> None:
    """There is nothing to know it by."""
    assert ship.deliver(Message("orders", b"", "m-1")).how == "parked"


def test_a_source_is_needed(make: Make) -> None:
    """Whose offsets they are is half of the name."""
    with pytest.raises(ConfigurationError, match="the source is empty"):
        make().once("", ordered=True)(lambda message: None)
