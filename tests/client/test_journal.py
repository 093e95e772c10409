from __future__ import annotations

import stat
import threading
from contextlib import suppress
from pathlib import Path

import httpx
import pytest

from oncekey.client import (
    IntentOver,
    IntentReused,
    Journal,
    OutcomeUnknown,
    QueueFull,
    Retries,
    intent,
)
from oncekey.client.httpx import RetryTransport
from oncekey.client.journal import Kept, Request
from oncekey.errors import ConfigurationError

CREATED = httpx.MockTransport(lambda request: httpx.Response(201, json={"id": "a"}))
ONE = Retries(attempts=1, budget=None)


@pytest.fixture
def journal(tmp_path: Path) -> Journal:
    return Journal(tmp_path / "intents.db")


def age(journal: Journal, seconds: float) -> None:
    """Make everything in the journal so much older."""
    with journal._writing() as db:
        db.execute("UPDATE intents SET made_at = made_at - ?", (int(seconds * 1000),))


def test_an_intent_has_one_key(journal: Journal) -> None:
    """The same name and identity, over programs and threads, have the same key; others have others."""
    found = [Journal(journal.path).begin("pay", 17) for _ in range(3)]
    assert len(set(found)) == 1
    assert [key.first for key in found] == [True, False, False]
    assert journal.begin("pay", 18) not in found
    assert journal.begin("refund", 17) not in found


def test_threads_that_race_for_an_intent_agree(journal: Journal) -> None:
    """Whoever comes second gets the key of the first."""
    found: list[str] = []
    threads = [threading.Thread(target=lambda: found.append(journal.begin("pay", 1))) for _ in range(16)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(found) == 16
    assert len(set(found)) == 1


def test_the_file_is_flushed_and_private(journal: Journal) -> None:
    """A commit reaches the disk before anything is sent, and only its owner reads the file."""
    journal.begin("pay", 1)
    assert journal._opened().execute("PRAGMA synchronous").fetchone()[0] == 2
    assert stat.S_IMODE(journal.path.stat().st_mode) == 0o600


def test_an_intent_ends_with_its_block(journal: Journal) -> None:
    """A block that ends well ends the intent; one that raises leaves it open; `settle` ends it all the same."""
    with pytest.raises(RuntimeError), journal.intent("pay", 1):
        raise RuntimeError
    assert [entry.identity for entry in journal.pending()] == [("1",)]
    with suppress(RuntimeError), journal.intent("pay", 1) as key:
        key.settle()
        raise RuntimeError
    assert journal.pending() == []


def test_a_finished_intent_is_answered_from_the_journal(journal: Journal) -> None:
    """It is not sent again, however late it is: the server may have forgotten it."""
    with httpx.Client(transport=RetryTransport(CREATED, journal=journal)) as client, journal.intent("pay", 1):
        assert client.post("http://x/pay", json={}).json() == {"id": "a"}
    age(journal, 10)
    refusing = httpx.MockTransport(lambda request: pytest.fail("sent again"))
    with httpx.Client(transport=RetryTransport(refusing, journal=journal)) as client, journal.intent("pay", 1):
        response = client.post("http://x/pay", json={})
    assert (response.status_code, response.json()) == (201, {"id": "a"})
    assert response.extensions["oncekey"] == "journal"


def test_an_intent_that_is_too_old_is_unresolved(journal: Journal) -> None:
    """The server would run it as new: it is reported, never sent."""
    journal.begin("pay", 1)
    age(journal, journal.keep_for)
    with pytest.raises(OutcomeUnknown, match="unresolved"), journal.intent("pay", 1):
        pytest.fail("it went on")


def test_a_finished_intent_that_is_too_old_says_so(journal: Journal) -> None:
    """With a provider's own client nobody could answer from the journal: it is refused."""
    journal.done(journal.begin("pay", 1), Kept(201))
    age(journal, journal.keep_for)
    with pytest.raises(IntentOver, match="has ended with status 201"), journal.intent("pay", 1):
        pytest.fail("it went on")


def test_one_intent_sends_one_request(journal: Journal) -> None:
    """Two requests under one key would be refused by the server: it is said before anything leaves."""
    with httpx.Client(transport=RetryTransport(CREATED, journal=journal)) as client, journal.intent("pay", 1):
        client.post("http://x/pay", json={})
        with pytest.raises(IntentReused, match="open another intent"):
            client.post("http://x/receipt", json={})


def test_credentials_are_not_kept(journal: Journal) -> None:
    """Neither in headers nor in the address, neither of requests nor of answers."""
    answer = httpx.MockTransport(lambda request: httpx.Response(500, headers={"Set-Cookie": "s=1"}))
    secret = {"Authorization": "Bearer s3cret", "X-Api-Key": "s3cret", "Cookie": "s3cret", "X-Kept": "yes"}
    client = httpx.Client(transport=RetryTransport(answer, journal=journal, retries=ONE), headers=secret)
    with client, pytest.raises(OutcomeUnknown):
        client.post("http://user:s3cret@x/pay", json={})
    assert b"s3cret" not in b"".join(path.read_bytes() for path in journal.path.parent.iterdir())
    request = journal.pending()[0].request
    assert request is not None
    assert ("x-kept", "yes") in request.headers
    assert request.url == "http://x/pay"


def test_requests_without_an_intent_are_in_it_too(journal: Journal) -> None:
    """A program that dies leaves them to `oncekey client resume`."""
    dead = httpx.MockTransport(lambda request: httpx.Response(503))
    client = httpx.Client(transport=RetryTransport(dead, journal=journal, retries=ONE))
    with client, pytest.raises(OutcomeUnknown):
        client.post("http://x/pay", json={})
    (entry,) = journal.pending()
    assert (entry.name, entry.attempts, entry.trouble) == ("POST /pay", 1, "attempts after 1 attempts")


def test_the_journal_has_a_bound(tmp_path: Path) -> None:
    """What cannot be kept is not sent."""
    journal = Journal(tmp_path / "small.db", at_most=2)
    journal.begin("pay", 1)
    journal.put("pay", 2, request=Request("POST", "http://x/pay"))
    with pytest.raises(QueueFull, match="oncekey client resume"):
        journal.begin("pay", 3)
    assert journal.begin("pay", 1).first is False


def test_bad_settings_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each with what to write instead."""
    monkeypatch.delenv("ONCEKEY_JOURNAL", raising=False)
    with pytest.raises(ConfigurationError, match="keep_for above 0"):
        Journal(tmp_path / "x", keep_for=0)
    with pytest.raises(ConfigurationError, match="a folder that this program may write"):
        Journal(tmp_path / "none" / "x").begin("pay", 1)
    with pytest.raises(ConfigurationError, match="set ONCEKEY_JOURNAL"):
        intent("pay", 1)
    with pytest.raises(ConfigurationError, match="a name and whose it is"):
        Journal(tmp_path / "x").begin("pay")


def test_the_environment_names_the_journal(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """`intent` is that of the program's journal."""
    monkeypatch.setenv("ONCEKEY_JOURNAL", str(tmp_path / "mine.db"))
    with intent("pay", 1) as key:
        assert key == Journal(tmp_path / "mine.db").begin("pay", 1)
