"""A message is handled once, whatever goes wrong, on SQLite and PostgreSQL."""

from __future__ import annotations

import sqlite3
import threading
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from oncekey.effects.inbox import Handled, Inbox, Later, Message, Patience, by_header
from oncekey.engine import events
from oncekey.errors import BadMessage, ConfigurationError, RedeliverLater, SchemaMissing
from tests.effects.inbox.places import Place

Make = Callable[..., Inbox]
NUMBER_1 = Message("orders", b'{"number": "1"}', "m-1")


def shipping(place: Place, inbox: Inbox, **chosen: Any) -> Any:
    """A handler that ships what the message names, and fails as often as the message says."""

    @inbox.once("orders", **chosen)
    def ship(message: Message, connection: Any) -> str:
        number = message.json()["number"]
        place.ship(connection, number)
        if number in failing:
            raise failing[number]
        return f"shipped {number}"

    failing: dict[str, BaseException] = {}
    ship.failing = failing  # type: ignore[attr-defined]  # the test's own handle on its handler
    return ship


def test_a_message_that_comes_twice_is_handled_once(place: Place, make: Make) -> None:
    """The second delivery finds the name of the first, and is to be acknowledged like it."""
    ship = shipping(place, make())
    assert ship(NUMBER_1) == "shipped 1"
    assert ship.deliver(NUMBER_1) == Handled("duplicate")
    assert ship.deliver(replace(NUMBER_1, redelivered=True)) == Handled("duplicate")
    assert place.shipped() == ["1"]


def test_two_sources_may_give_one_id(place: Place, make: Make) -> None:
    """Identity is consumer, source and id together: producers know nothing of one another."""
    inbox = make()
    handlers = [inbox.once(source)(lambda message, connection: place.ship(connection, "x")) for source in ("a", "b")]
    other = make(consumer="mailing").once("a")(lambda message, connection: place.ship(connection, "x"))
    for handler in (*handlers, other):
        handler(NUMBER_1)
        handler(NUMBER_1)
    assert place.shipped() == ["x"] * 3


def test_a_failure_leaves_nothing_behind(place: Place, make: Make) -> None:
    """Name and effect are rolled back together, so the next delivery runs."""
    ship = shipping(place, make())
    ship.failing["1"] = ValueError("no such address")
    with pytest.raises(ValueError, match="no such address"):
        ship(NUMBER_1)
    assert place.shipped() == []
    ship.failing.clear()
    assert ship(NUMBER_1) == "shipped 1"
    assert place.shipped() == ["1"]


def test_a_message_whose_id_cannot_be_found_is_parked(place: Place, make: Make) -> None:
    """Whatever `id=` raises is the message's story: it is kept aside, and what comes behind it is handled."""
    inbox = make()
    ship = shipping(place, inbox, id=lambda message: message.json()["payment"])
    verdict = ship.deliver(NUMBER_1)
    assert (verdict.how, len(inbox.parked().parked)) == ("parked", 1)
    assert "KeyError" in verdict.reason
    other = replace(NUMBER_1, body=b'{"number": "2", "payment": "p"}')
    assert [verdict.how for verdict in ship.deliver_many([other, NUMBER_1])] == ["done", "parked"]
    assert place.shipped() == ["2"]


def test_poison_is_parked_after_its_attempts(place: Place, make: Make) -> None:
    """Attempts are counted although each was rolled back; the last one parks the message with its reason."""
    inbox = make(patience=Patience(attempts=3))
    ship = shipping(place, inbox)
    ship.failing["1"] = ValueError("no such address")
    verdicts = [ship.deliver(replace(NUMBER_1, redelivered=attempt > 1)) for attempt in (1, 2, 3, 4)]
    assert [type(verdict) for verdict in verdicts] == [Later, Later, Handled, Handled]
    assert [verdict.after for verdict in verdicts[:2]] == [1, 2]
    (found,) = inbox.parked().parked
    assert (found.message_id, found.attempts, found.body) == ("m-1", 3, NUMBER_1.body)
    assert found.reason == "ValueError: no such address"
    assert place.shipped() == []


def test_a_process_that_dies_has_used_an_attempt(place: Place, make: Make) -> None:
    """A handler that kills its process is never heard to fail: what came before is counted before it runs."""
    inbox = make(patience=Patience(attempts=2))
    ship = shipping(place, inbox)
    ship.failing["1"] = KeyboardInterrupt()  # ends the process, as far as a flow can see
    for _ in range(2):
        with pytest.raises(KeyboardInterrupt):
            ship.deliver(replace(NUMBER_1, redelivered=True))
    verdict = ship.deliver(replace(NUMBER_1, redelivered=True))
    assert isinstance(verdict, Handled)
    assert verdict.how == "parked"
    assert "none of them ended" in verdict.reason
    assert place.shipped() == []


def test_a_handler_may_give_a_message_up(place: Place, make: Make) -> None:
    """BadMessage parks at once: trying again would be a waste."""
    inbox = make()
    ship = shipping(place, inbox)
    verdict = ship.deliver(Message("orders", b"no json", "m-2"))
    assert isinstance(verdict, Handled)
    assert verdict.how == "parked"
    assert "no JSON" in inbox.parked().parked[0].reason


def test_a_handler_may_ask_for_time(place: Place, make: Make) -> None:
    """RedeliverLater is no failure of the message: it is not counted, however often."""
    inbox = make(patience=Patience(attempts=1))
    ship = shipping(place, inbox)
    ship.failing["1"] = RedeliverLater("the warehouse is closed", 60)
    assert {ship.deliver(NUMBER_1).after for _ in range(3)} == {60}
    assert inbox.count().failing == 0


@pytest.mark.parametrize("error", [RedeliverLater("closed", 60), sqlite3.OperationalError("database is locked")])
def test_a_redelivered_message_may_ask_for_time(place: Place, make: Make, error: Exception) -> None:
    """What comes again is counted before it runs; what is no attempt is taken back, however often."""
    if isinstance(error, sqlite3.Error):
        error.sqlite_errorcode = sqlite3.SQLITE_BUSY
    inbox = make(patience=Patience(attempts=2))
    ship = shipping(place, inbox)
    ship.failing["1"] = error
    verdicts = [ship.deliver(replace(NUMBER_1, redelivered=attempt > 0)) for attempt in range(6)]
    assert {type(verdict) for verdict in verdicts} == {Later}
    ship.failing.clear()
    assert ship.deliver(replace(NUMBER_1, redelivered=True)).how == "done"
    assert inbox.count()[2:] == (0, 0)


@pytest.mark.parametrize("id_", [None, "", 7, "x" * 513])
def test_what_has_no_name_is_parked(place: Place, make: Make, id_: Any) -> None:
    """A message without an id cannot be recognised and must not be lost: it is kept. 7 may be an offset."""
    inbox = make()
    ship = shipping(place, inbox, id=lambda message: id_)
    assert [ship.deliver(NUMBER_1).how for _ in range(2)] == ["parked", "parked"]
    assert len(inbox.parked().parked) == 1
    assert place.shipped() == []


def test_requeued_messages_run_once(place: Place, make: Make) -> None:
    """What an operator sends back runs once, with the message as it was; if it fails again it stays parked."""
    inbox = make(patience=Patience(attempts=1))
    ship = shipping(place, inbox, id=by_header("number"))
    ship.failing["1"] = ValueError("closed")
    ship.deliver(replace(NUMBER_1, headers={"number": "m-1"}, key="k"))
    (found,) = inbox.parked().parked
    assert ship.run_requeued() is None
    assert inbox.requeue(found.id)
    assert ship.run_requeued().how == "parked"
    ship.failing.clear()
    assert inbox.requeue(found.id)
    assert ship.run_requeued() == Handled("done", "shipped 1")
    assert ship.run_requeued() is None
    assert (place.shipped(), inbox.count().parked) == (["1"], 0)


def test_requeued_after_it_was_handled_is_a_duplicate(place: Place, make: Make) -> None:
    """The producer sent it again meanwhile: the operator's order finds its name."""
    inbox = make(patience=Patience(attempts=1))
    ship = shipping(place, inbox)
    ship.failing["1"] = ValueError("closed")
    ship.deliver(NUMBER_1)
    ship.failing.clear()
    ship.deliver(NUMBER_1)
    inbox.requeue(inbox.parked().parked[0].id)
    assert ship.run_requeued() == Handled("duplicate")
    assert (place.shipped(), inbox.count().parked) == (["1"], 0)


def test_plain_messages_are_parked_as_json(place: Place, make: Make) -> None:
    """A message need not be ours: a dict with an id does, and comes back as it was. What cannot be kept is shown."""
    inbox = make(patience=Patience(attempts=1))
    seen: list[Any] = []

    @inbox.once("orders", id=lambda message: message["id"])
    def note(message: Any) -> None:
        seen.append(message)
        if len(seen) < 3:
            raise ValueError("not yet")

    note.deliver({"id": "1"})
    note.deliver({"id": "2", "what": object()})
    for found in inbox.parked().parked:
        inbox.requeue(found.id)
    assert {getattr(note.run_requeued(), "how", "") for _ in range(2)} == {"done", "parked"}
    assert seen[-1] == {"id": "1"}
    assert "only the looks" in inbox.parked().parked[0].reason


def test_the_caller_may_own_the_transaction(place: Place, make: Make) -> None:
    """`within` writes into an open transaction and leaves its end to the caller."""
    ship = shipping(place, make())
    with place.connect() as connection:
        assert ship.within(connection, NUMBER_1)
        connection.rollback()
        assert ship.within(connection, NUMBER_1)
        connection.commit()
        assert not ship.within(connection, NUMBER_1)
        connection.commit()
    assert place.shipped() == ["1"]


def test_the_window_is_purged_in_small_batches(place: Place, make: Make) -> None:
    """Only what is past the window goes, and so many at a time; parked messages stay."""
    inbox = make(keep_for=3600, patience=Patience(attempts=1))
    ship = shipping(place, inbox)
    for number in range(5):
        ship(Message("orders", b'{"number": "x"}', f"m-{number}"))
    ship.deliver(Message("orders", b"-", "bad"))
    assert inbox.purge(limit=2) == (0, False)
    place.change("UPDATE oncekey_inbox SET expires_at = 1")
    assert [inbox.purge(limit=2) for _ in range(3)] == [(2, True), (2, True), (1, False)]
    assert inbox.count()[:] == (0, 0, 0, 1)


def test_a_message_older_than_the_window_is_not_run_as_new(place: Place, make: Make) -> None:
    """It may have been handled and forgotten: it is parked, unless its name is still there."""
    inbox = make(keep_for=3600)
    ship = shipping(place, inbox)
    old = replace(NUMBER_1, sent_at=1.0)
    assert ship.deliver(old).how == "parked"
    assert "older than messages are remembered" in inbox.parked().parked[0].reason
    ship(NUMBER_1)
    assert ship.deliver(old).how == "duplicate"
    inbox.requeue(inbox.parked().parked[0].id)
    assert ship.run_requeued().how == "duplicate"


def test_a_batch_is_one_transaction_and_its_culprit_is_found(place: Place, make: Make) -> None:
    """Ten messages commit together; if one fails, the others are handled one by one."""
    ship = shipping(place, make())
    messages = [Message("orders", b'{"number": "%d"}' % number, f"m-{number}") for number in range(4)]
    assert [verdict.how for verdict in ship.deliver_many(messages[:2])] == ["done", "done"]
    ship.failing["2"] = ValueError("closed")
    verdicts = ship.deliver_many([*messages, replace(messages[3])])
    assert [getattr(verdict, "how", "later") for verdict in verdicts] == [
        "duplicate",
        "duplicate",
        "later",
        "done",
        "duplicate",
    ]
    assert place.shipped() == ["0", "1", "3"]


def test_threads_that_get_one_message_handle_it_once(place: Place, make: Make) -> None:
    """Whoever comes second while the first is at it is told to come again, or finds the name."""
    ship = shipping(place, make())
    together = threading.Barrier(6)
    verdicts: list[Any] = []

    def deliver() -> None:
        together.wait()
        verdicts.append(ship.deliver(NUMBER_1))

    threads = [threading.Thread(target=deliver) for _ in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert place.shipped() == ["1"]
    assert sum(getattr(verdict, "how", "") == "done" for verdict in verdicts) == 1


def test_what_happens_is_told(place: Place, make: Make) -> None:
    """A parked message is an alarm: sinks hear of it, and of all else."""
    heard: list[str] = []
    ship = shipping(place, make(patience=Patience(attempts=2), sinks=(lambda event: heard.append(event.name),)))
    ship(NUMBER_1)
    ship(NUMBER_1)
    ship.failing["2"] = ValueError("closed")
    for _ in range(2):
        ship.deliver(Message("orders", b'{"number": "2"}', "m-2"))
    assert heard == [
        events.MESSAGE_DONE,
        events.MESSAGE_DUPLICATE,
        events.MESSAGE_LATER,
        events.MESSAGE_PARKED,
    ]


# ---- refusals ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("chosen", "says"),
    [
        ({"keep_for": 60, "redelivery_for": 61}, "write keep_for=61 or more"),
        ({"keep_for": 0}, "a number of seconds above 0"),
        ({"redelivery_for": float("inf")}, "a number of seconds above 0"),
        ({"table": "Inbox; drop"}, "lower-case letters"),
        ({"window": 3}, "an inbox has no window"),
    ],
)
def test_bad_choices_are_refused(place: Place, chosen: dict[str, Any], says: str) -> None:
    """What would forget too early, or cannot be read, is refused with the words to write instead."""
    with pytest.raises(ConfigurationError, match=says):
        Inbox(place.connect, **chosen)


@pytest.mark.parametrize("chosen", [{"attempts": 0}, {"attempts": True}, {"first_for": 0}, {"most_for": 0.5}])
def test_bad_patience_is_refused(chosen: dict[str, Any]) -> None:
    """Never to try, and to wait for nothing, are mistakes."""
    with pytest.raises(ConfigurationError, match="makes no sense"):
        Patience(**chosen)


def test_nobody_said_for_how_long(place: Place) -> None:
    """Without a horizon the window is a guess: nothing is handled before somebody has said it."""
    ship = shipping(place, Inbox(place.connect))
    with pytest.raises(ConfigurationError, match="write redelivery_for="):
        ship(NUMBER_1)


def test_a_broker_that_remembers_longer_is_refused(place: Place) -> None:
    """What a broker says of itself is compared with the window, whatever the user believes."""
    inbox = Inbox(place.connect, keep_for=3600, redelivery_for=60)
    with pytest.raises(ConfigurationError, match="SQS keeps messages for 7200 s"):
        inbox.choices.compare(7200, "SQS")
    inbox.choices.compare(None, "NATS")
    with pytest.raises(ConfigurationError, match="NATS keeps messages for ever"):
        Inbox(place.connect, keep_for=3600).choices.compare(None, "NATS")


def test_two_handlers_of_one_source_are_refused(place: Place, make: Make) -> None:
    """Each would take the other's messages for handled."""
    inbox = make()
    inbox.once("orders")(lambda message: None)
    with pytest.raises(ConfigurationError, match="another consumer="):
        inbox.once("orders")(test_nobody_said_for_how_long)


def test_coroutines_need_the_other_inbox(make: Make) -> None:
    """A coroutine that nobody awaits would be acknowledged and never run."""

    async def ship(message: Message) -> None:
        pass

    with pytest.raises(ConfigurationError, match="AsyncInbox"):
        make().once("orders")(ship)


def test_missing_tables_are_told(place: Place) -> None:
    """The check at the start says what to run."""
    with pytest.raises(SchemaMissing, match="call inbox"):
        Inbox(place.connect).check()


def test_a_handler_that_commits_is_noticed(place: Place, make: Make) -> None:
    """Whoever ends the transaction breaks the promise: it is a failure, and the effect is still there at most once."""
    inbox = make()

    @inbox.once("orders")
    def ship(message: Message, connection: Any) -> None:
        place.ship(connection, "1")
        connection.commit()

    verdict = ship.deliver(NUMBER_1)
    assert isinstance(verdict, Later)
    assert "transaction" in verdict.reason.lower()
    ship.deliver(NUMBER_1)
    assert len(place.shipped()) <= 1


def test_bad_message_can_be_raised_anywhere() -> None:
    """It is one of ours."""
    assert BadMessage("x").status == 400
