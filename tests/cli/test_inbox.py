"""`oncekey inbox`, as processes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from oncekey.effects.inbox import Inbox, Message
from oncekey.errors import BadMessage
from tests.cli.running import oncekey
from tests.effects.inbox.places import sqlite_place

STORE = ("--store", "sqlite:///shop.db")


def parked(path: Path, *ids: str) -> tuple[Inbox, Any]:
    """An inbox whose warehouse has parked messages with these ids."""
    inbox = Inbox(sqlite_place(path).connect, consumer="warehouse", keep_for=None)
    inbox.migrate()
    seen: list[str] = []

    @inbox.once("orders")
    def ship(message: Message) -> None:
        if message.id not in seen:
            seen.append(str(message.id))
            raise BadMessage("no such article")

    for id_ in ids:
        ship(Message("orders", b"{}", id=id_))
    return inbox, ship


def test_parked_messages_are_listed_run_again_and_forgotten(tmp_path: Path) -> None:
    """By the id that the list shows; what is to be run again is run by its consumer."""
    inbox, ship = parked(tmp_path / "shop.db", "A-1", "A-2")
    (first,) = oncekey("inbox", "ls", *STORE, "--json", "--body", "--limit", "1", folder=tmp_path).objects
    assert (first["message_id"], first["consumer"], first["body"]) == ("A-1", "warehouse", "{}")
    more = oncekey("inbox", "ls", *STORE, "--limit", "1", folder=tmp_path).err.split()[-1]
    (second,) = oncekey("inbox", "ls", *STORE, "--json", "--after", more, folder=tmp_path).objects
    assert second["message_id"] == "A-2"
    assert oncekey("inbox", "requeue", *STORE, first["id"], folder=tmp_path).out == "requeue: 1\n"
    assert ", to be run again\n  BadMessage: no such article" in oncekey("inbox", "ls", *STORE, folder=tmp_path).out
    ship.run_requeued()
    assert oncekey("inbox", "discard", *STORE, second["id"], folder=tmp_path).code == 0
    assert oncekey("inbox", "ls", *STORE, folder=tmp_path).err == "nothing is parked\n"
    assert oncekey("inbox", "stats", *STORE, "--json", folder=tmp_path).objects == [inbox.count()._asdict()]


def test_what_is_wrong_is_said_in_a_sentence(tmp_path: Path) -> None:
    """A missing file or table, another database, an id that nothing has, and text that is no id."""
    assert "there is no file" in oncekey("inbox", "ls", *STORE, folder=tmp_path).err
    sqlite_place(tmp_path / "shop.db")
    assert "run `oncekey inbox migrate`" in oncekey("inbox", "stats", *STORE, folder=tmp_path).err
    assert oncekey("inbox", "migrate", *STORE, folder=tmp_path).code == 0
    for words, said in (
        (("ls", "--store", "redis://localhost"), "redis: cannot keep an inbox"),
        (("ls", *STORE, "--after", "x"), "is no cursor"),
        (("requeue", *STORE, "A-1"), "is no parked message's id"),
        (("discard", *STORE, "00ff"), "00ff is no parked message"),
        (("stats",), "no store was named"),
    ):
        ran = oncekey("inbox", *words, folder=tmp_path)
        assert (ran.code != 0, said in ran.err, "Traceback" in ran.err) == (True, True, False), ran.err
