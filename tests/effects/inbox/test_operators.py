"""An inbox by its store's URL, as operators see it."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from oncekey.effects.inbox import Inbox, Message
from oncekey.effects.inbox.operators import InboxDesk
from oncekey.errors import BadMessage, SchemaMissing, StoreUnavailable
from tests.effects.inbox.places import Place
from tests.infra.process import free_port


def desk_of(place: Place) -> InboxDesk:
    return InboxDesk(place.url if place.url.startswith("postgresql") else f"sqlite:///{place.url}")


def test_a_desk_sees_all_consumers(place: Place, make: Callable[..., Inbox]) -> None:
    """Their parked messages are listed, run again or forgotten by the id under which they stand."""
    for consumer in ("warehouse", "books"):

        def refuse(message: Message) -> None:
            raise BadMessage("no")

        make(consumer=consumer).once("orders")(refuse)(Message("orders", b"{}", id="A-1"))
    desk = desk_of(place)
    found = desk.parked(limit=1)
    rest = desk.parked("orders", after=found.after)
    assert {one.consumer for one in (*found.parked, *rest.parked)} == {"warehouse", "books"}
    assert desk.requeue(found.parked[0].id)
    assert desk.discard(rest.parked[0].id)
    assert not desk.discard(rest.parked[0].id)
    assert desk.count() == (0, 0, 0, 1)


def test_missing_tables_are_said(place: Place) -> None:
    """With the command that makes them."""
    desk = desk_of(place)
    with pytest.raises(SchemaMissing, match="oncekey inbox migrate"):
        desk.count()
    desk.migrate()
    assert desk.count() == (0, 0, 0, 0)


def test_a_database_that_is_away_is_said() -> None:
    """With its address, and without the password."""
    with pytest.raises(StoreUnavailable, match="cannot be reached") as error:
        InboxDesk(f"postgresql://me:secret@127.0.0.1:{free_port()}/shop", store_for=2).count()
    assert "secret" not in str(error.value)
