"""What the relay takes, sends and marks, on SQLite and PostgreSQL."""

from __future__ import annotations

import asyncio
from collections import Counter
from typing import Any

import pytest

from oncekey.effects.inbox import Patience
from oncekey.effects.outbox import Outbox, OutboxDesk, Pace, Relay, Report
from oncekey.effects.outbox import relay as relaying
from oncekey.engine import events
from oncekey.errors import BrokerUnavailable, ConfigurationError, MessageRefused, SchemaMissing
from tests.effects.inbox.places import Place
from tests.effects.outbox.brokers import Shelf
from tests.effects.outbox.conftest import Make, stage, store_of

QUICK = Patience(attempts=3, first_for=0.01, most_for=0.02)


async def until(true: Any) -> None:
    """Wait for it."""
    async with asyncio.timeout(20):
        while not true():
            await asyncio.sleep(0.01)


async def test_what_is_committed_is_sent_once(place: Place, shelf: Shelf, relay_on: Make) -> None:
    """With its id, its key, its headers; and not again."""
    with place.connect() as connection:
        Outbox().stage(connection, "orders", b"undone")
        connection.rollback()
        id_ = Outbox().stage(connection, "orders", b"kept", key="A-1", headers={"trace": "x"}, type="OrderPlaced")
        connection.commit()
    relay = relay_on(place)
    assert await relay.run_once() == Report(taken=1, sent=1)
    assert await relay.run_once() == Report()
    (message,) = shelf.messages
    assert (message.id, message.topic, message.body, message.key) == (id_, "orders", b"kept", "A-1")
    assert (message.named_headers, message.type) == ({"trace": "x", "oncekey-id": id_}, "OrderPlaced")


async def test_a_message_that_commits_late_is_not_skipped(postgres: Place, shelf: Shelf, relay_on: Make) -> None:
    """It was staged first and commits last: no cursor runs past it."""
    relay = relay_on(postgres)
    with postgres.connect() as late, postgres.connect() as early:
        Outbox().stage(late, "orders", b"late")
        Outbox().stage(early, "orders", b"early")
        early.commit()
        assert (await relay.run_once()).sent == 1
        assert (await relay.run_once()).taken == 0
        late.commit()
    assert (await relay.run_once()).sent == 1
    assert shelf.bodies == ["early", "late"]


async def test_several_relays_share_the_work(place: Place, relay_on: Make) -> None:
    """Each message is sent by one of them, and those of one key in order."""
    for key in ("a", "b", None):
        with place.connect() as connection:
            for number in range(60):
                Outbox().stage(connection, "orders", str(number), key=key)
            connection.commit()
    shelf = Shelf(slow_for=0.001)
    relays = [relay_on(place, shelf, pace={"batch": 7}) for _ in range(4)]

    async def drain(relay: Relay) -> int:
        sent = 0
        while len(shelf.messages) < 180:
            sent += (await relay.run_once()).sent
            await asyncio.sleep(0)
        return sent

    shares = await asyncio.gather(*map(drain, relays))
    assert sum(shares) == 180
    assert set(Counter(shelf.ids).values()) == {1}
    for key in ("a", "b"):
        assert [int(message.body) for message in shelf.messages if message.key == key] == list(range(60))


async def test_a_message_that_fails_holds_up_its_key_alone(place: Place, shelf: Shelf, relay_on: Make) -> None:
    """Others are sent meanwhile; when it is given up, its followers go on in order."""
    stage(place, "a1", "poison", "a3", "a4", key="a")
    stage(place, "b1", "b2", key="b")
    stage(place, "free")
    shelf.refusing["poison"] = MessageRefused("too blue")
    relay = relay_on(place, patience=QUICK)
    first = await relay.run_once()
    assert first == Report(taken=7, sent=4, refused=1, untried=2)
    assert sorted(shelf.bodies) == ["a1", "b1", "b2", "free"]
    total = first
    while not total.parked:
        total += await relay.run_once()
        assert "a3" not in shelf.bodies
    await relay.run_once()
    assert total.refused == 2
    assert [body for body in shelf.bodies if body[0] == "a"] == ["a1", "a3", "a4"]


async def test_dead_letters_are_listed_and_sent_again(place: Place, shelf: Shelf, relay_on: Make) -> None:
    """With their reasons; what nobody wants any more can be forgotten."""
    ids = stage(place, "one", "two", "three")
    for body in ("one", "two", "three"):
        shelf.refusing[body] = MessageRefused(f"{body} is too large", final=True)
    relay = relay_on(place)
    assert (await relay.run_once()).parked == 3
    async with OutboxDesk(store_of(place)) as desk:
        page = await desk.letters(limit=2)
        rest = await desk.letters(after=page.after)
        found = [*page.letters, *rest.letters]
        assert [letter.message.id for letter in found] == ids
        assert found[0].reason == "one is too large"
        assert (page.after is not None, rest.after) == (True, None)
        assert await desk.discard(ids[0])
        assert not await desk.discard(ids[0])
        shelf.refusing.clear()
        assert await desk.requeue(ids[1])
        assert not await desk.requeue(ids[1])
        assert (await relay.run_once()).sent == 1
        assert await desk.requeue_all() == 1
        assert (await desk.count())[:4] == (1, 0, 1, 1 - 1)
        with pytest.raises(ConfigurationError, match="no message's id"):
            await desk.requeue("orders")
    assert (await relay.run_once()).sent == 1
    assert shelf.ids == ids[1:]


async def test_a_broker_that_is_away_is_no_attempt(place: Place, shelf: Shelf, relay_on: Make) -> None:
    """However often: nothing is held against the messages, and they are sent when it is back."""
    ids = stage(place, "one", "two", key="k")
    relay = relay_on(place, patience=Patience(attempts=1))
    shelf.down = True
    for _ in range(3):
        report = await relay.run_once()
        assert (report.untried, report.trouble) == (2, "the shelf is away")
    shelf.down = False
    assert await relay.run_once() == Report(taken=2, sent=2)
    assert shelf.ids == ids


async def test_a_relay_lives_on_without_broker_and_database(
    place: Place, shelf: Shelf, relay_on: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`run` waits, tries again, and tells; `stop` ends it also while it waits."""
    monkeypatch.setattr(relaying, "FIRST_PAUSE", 0.01)
    told: list[Report] = []
    seen: list[events.Event] = []
    stage(place, "one")
    shelf.down = True
    relay = relay_on(place, sinks=(seen.append,))
    running = asyncio.create_task(relay.run(told.append))
    await until(lambda: len(told) >= 3)
    shelf.down = False
    await until(lambda: shelf.bodies == ["one"])
    stage(place, "two")
    await until(lambda: len(shelf.bodies) == 2)
    relay.stop()
    total = await asyncio.wait_for(running, 10)
    assert (total.sent, total.parked) == (2, 0)
    assert {event.name for event in seen} == {events.BROKER_DOWN, events.OUTBOX_SENT}


async def test_a_commit_wakes_the_relay(
    place: Place, shelf: Shelf, relay_on: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It need not look by itself: here it would look in an hour only."""
    monkeypatch.setattr(relaying, "LOOK_EVERY", 3600)
    relay = relay_on(place)
    running = asyncio.create_task(relay.run())
    for number in range(3):
        stage(place, str(number))
        await until(lambda: len(shelf.bodies) > number)  # noqa: B023 - awaited at once
    relay.stop()
    await asyncio.wait_for(running, 10)
    assert shelf.bodies == ["0", "1", "2"]


async def test_what_a_dead_relay_had_taken_is_sent_again(place: Place, shelf: Shelf, relay_on: Make) -> None:
    """When its lease is over, and not before; also when it had been sent without being marked."""
    (id_,) = stage(place, "one")
    dead = relay_on(place, pace={"lease_for": 0.5})
    dead._settle = _never  # type: ignore[method-assign,assignment]  # it dies between the broker's word and its own
    await dead.run_once()
    relay = relay_on(place)
    assert (await relay.run_once()).taken == 0
    total = Report()
    while not total.sent:
        total += await relay.run_once()
    assert shelf.ids == [id_, id_]


async def _never(*given: Any) -> Report:
    return Report()


async def test_a_relay_whose_lease_is_over_cannot_hold_a_message_back(place: Place, relay_on: Make) -> None:
    """Its refusal comes too late and changes nothing; a confirmation is true whenever it comes."""
    stage(place, "one", "two")
    slow, quick = Shelf(), Shelf()
    zombie = relay_on(place, slow, pace={"lease_for": 0.05})
    slow.refusing["one"] = MessageRefused("no")
    settle = zombie._settle

    async def late(*given: Any) -> Report:
        await asyncio.sleep(0.1)
        await relay_on(place, quick, pace={"batch": 1}).run_once()
        return await settle(*given)

    zombie._settle = late  # type: ignore[method-assign,assignment]
    await zombie.run_once()
    assert (quick.bodies, slow.bodies) == (["one"], ["two"])
    async with OutboxDesk(store_of(place)) as desk:
        assert (await desk.count())[:4] == (0, 0, 2, 0)


async def test_silence_is_held_against_the_message_if_others_are_confirmed(
    place: Place, shelf: Shelf, relay_on: Make
) -> None:
    """And against the broker if nothing is."""
    stage(place, "one", "poison")
    shelf.silent = {"one", "poison"}
    relay = relay_on(place, pace={"lease_for": 0.6}, patience=QUICK)
    first = await relay.run_once()
    assert (first.untried, first.refused) == (2, 0)
    assert "did not confirm" in first.trouble
    shelf.silent = {"poison"}
    second = await relay.run_once()
    assert (second.sent, second.refused, second.trouble) == (1, 1, "")


async def test_a_cancelled_batch_keeps_what_was_confirmed(place: Place, relay_on: Make) -> None:
    """And gives the rest back at once."""
    stage(place, "one", "two")
    shelf = Shelf()
    shelf.silent = {"two"}
    running = asyncio.create_task(relay_on(place, shelf).run_once())
    await until(lambda: shelf.bodies == ["one"])
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    shelf.silent = set()
    assert (await relay_on(place, shelf).run_once()).taken == 1
    assert shelf.bodies == ["one", "two"]


async def test_what_was_sent_is_forgotten_in_time(place: Place, shelf: Shelf, relay_on: Make) -> None:
    """A running relay purges by itself, and never what is unsent or given up."""
    stage(place, "one", "dead")
    shelf.refusing["dead"] = MessageRefused("no", final=True)
    relay = relay_on(place, pace={"keep_for": 0.001})
    running = asyncio.create_task(relay.run())
    async with OutboxDesk(store_of(place)) as desk:
        async with asyncio.timeout(20):
            while (await desk.count())[:4] != (0, 0, 0, 1):
                await asyncio.sleep(0.01)
    relay.stop()
    await running


async def test_a_missing_table_is_said(sqlite: Place, relay_on: Make, shelf: Shelf) -> None:
    """With the command that makes it; a missing file too, and an address that cannot keep an outbox."""
    sqlite.change("DROP TABLE oncekey_outbox")
    with pytest.raises(SchemaMissing, match="oncekey outbox migrate"):
        await relay_on(sqlite).check()
    with pytest.raises(SchemaMissing, match="there is no file"):
        async with Relay("sqlite:///nowhere.db", shelf) as nowhere:
            await nowhere.check()
    with pytest.raises(ConfigurationError, match="cannot keep an outbox"):
        Relay("redis://localhost", shelf)


@pytest.mark.parametrize("wrong", [{"batch": 0}, {"batch": True}, {"lease_for": 0}, {"keep_for": -1}], ids=str)
def test_a_pace_that_makes_no_sense_is_refused(wrong: dict[str, Any]) -> None:
    """Zero and negatives are no way to say never."""
    with pytest.raises(ConfigurationError, match="makes no sense"):
        Pace(**wrong)


def test_the_pause_of_a_broker_is_heard() -> None:
    """What a broker says of when to come again stands in the error."""
    assert BrokerUnavailable("later", 7).after == 7
