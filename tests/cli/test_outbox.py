"""`oncekey relay` and `oncekey outbox`, as processes."""

from __future__ import annotations

import json
import os
import signal
import sqlite3
import subprocess
from contextlib import closing
from pathlib import Path

import redis

from oncekey.effects.outbox import Outbox
from tests.cli.running import ONCEKEY, environment, oncekey
from tests.infra.process import free_port


def staged(folder: Path, *bodies: str) -> None:
    """An outbox in shop.db with messages to be sent."""
    with closing(sqlite3.connect(folder / "shop.db")) as connection:
        Outbox().migrate(connection)
        for body in bodies:
            Outbox().stage(connection, "orders", body)
        connection.commit()


STORE = ("--store", "sqlite:///shop.db")


def test_a_relay_sends_until_it_is_told_to_end(tmp_path: Path, redis_url: str) -> None:
    """It prints what it sent, and SIGTERM ends it with code 0."""
    staged(tmp_path, "one", "two")
    words = [ONCEKEY, "relay", *STORE, "--json"]
    with subprocess.Popen(
        words, stdout=subprocess.PIPE, text=True, cwd=tmp_path, env=environment(ONCEKEY_BROKER=redis_url)
    ) as running:
        assert running.stdout is not None
        assert json.loads(running.stdout.readline())["sent"] == 2
        staged(tmp_path, "three")
        assert json.loads(running.stdout.readline())["sent"] == 1
        running.send_signal(signal.SIGTERM)
        assert running.wait(30) == 0
    with redis.Redis.from_url(redis_url) as client:
        assert client.xlen("orders") == 3


def test_a_broker_that_is_away_is_waited_for(tmp_path: Path) -> None:
    """The relay lives on, says so without the password, and still ends when it is told to."""
    staged(tmp_path, "one")
    to = f"redis://user:secret@127.0.0.1:{free_port()}/0"
    with subprocess.Popen(
        [ONCEKEY, "relay", *STORE, "--to", to, "--json"],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        cwd=tmp_path,
        env=environment(),
    ) as running:
        assert running.stdout is not None
        said = [running.stdout.readline() for _ in range(4)]
        os.kill(running.pid, signal.SIGTERM)
        said += running.stdout.readlines()
        assert running.wait(30) == 0
    assert any("cannot be reached" in line for line in said)
    assert not any("secret" in line for line in said)


def test_once_ends_with_what_it_came_to(tmp_path: Path, redis_url: str) -> None:
    """Code 0 where all was sent, 1 where something is left."""
    assert oncekey("outbox", "migrate", *STORE, folder=tmp_path).out == "the table oncekey_outbox is there\n"
    staged(tmp_path, "one")
    away = oncekey("relay", *STORE, "--to", f"redis://127.0.0.1:{free_port()}", "--once", folder=tmp_path)
    assert (away.code, away.out.startswith("0 sent, 1 untried; Redis at")) == (1, True)
    sent = oncekey("relay", *STORE, "--to", redis_url, "--once", folder=tmp_path)
    assert (sent.code, sent.out, sent.err) == (0, "1 sent\n", "")


def test_dead_letters_from_a_terminal(tmp_path: Path, redis_url: str) -> None:
    """Listed with the reason, sent again, forgotten; what is not there is said."""
    staged(tmp_path, "one", "two")
    with redis.Redis.from_url(redis_url) as client:
        client.set("orders", "no stream")
        relay = ("relay", *STORE, "--to", redis_url, "--once", "--attempts", "1")
        assert oncekey(*relay, folder=tmp_path).code == 1
        listed = oncekey("outbox", "ls", *STORE, "--json", "--body", "--limit", "1", folder=tmp_path)
        (first,) = listed.objects
        assert (first["topic"], first["body"], "no stream" in first["reason"]) == ("orders", "one", True)
        rest = oncekey("outbox", "ls", *STORE, "--after", str(json.loads(listed.err)["after"]), folder=tmp_path)
        assert "no stream" in rest.out
        assert oncekey("outbox", "discard", *STORE, first["id"], folder=tmp_path).out == "discard: 1\n"
        again = oncekey("outbox", "discard", *STORE, first["id"], folder=tmp_path)
        assert (again.code, "is no dead letter" in again.err) == (1, True)
        client.delete("orders")
        assert oncekey("outbox", "requeue", *STORE, "--all", folder=tmp_path).out == "requeue: 1\n"
        assert oncekey(*relay, folder=tmp_path).out == "1 sent\n"
    (counted,) = oncekey("outbox", "stats", *STORE, "--json", folder=tmp_path).objects
    assert counted == {"pending": 0, "failing": 0, "sent": 1, "parked": 0, "oldest_for": None}


def test_what_is_missing_is_said(tmp_path: Path) -> None:
    """A sentence and a code, for a broker, a table, a store, an id."""
    (tmp_path / "shop.db").touch()
    wrong = {
        ("relay", *STORE): (2, "--to amqp://"),
        ("relay", "--to", "redis://127.0.0.1"): (2, "no store was named"),
        ("relay", *STORE, "--to", "kfka://x"): (2, "'kfka:' is not a broker"),
        ("relay", *STORE, "--to", "nonsense"): (2, "oncekey: the text given as its address is not a broker"),
        ("relay", *STORE, "--to", "redis://127.0.0.1:1"): (3, "oncekey outbox migrate"),
        ("outbox", "ls", "--store", "redis://127.0.0.1"): (2, "cannot keep an outbox"),
        ("outbox", "requeue", *STORE): (2, "needs an ID or --all"),
    }
    for words, (code, says) in wrong.items():
        ran = oncekey(*words, folder=tmp_path)
        assert (ran.code, says in ran.err, ran.out) == (code, True, ""), (words, ran)
