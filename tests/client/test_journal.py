from __future__ import annotations

import asyncio
import itertools
import os
import sqlite3
import stat
import subprocess
import sys
import threading
from contextlib import suppress
from pathlib import Path

import httpx
import pytest

from oncekey.cli import app
from oncekey.client import (
    IntentOver,
    IntentReused,
    Journal,
    JournalUnusable,
    OutcomeUnknown,
    QueueFull,
    Retries,
    intent,
)
from oncekey.client.httpx import AsyncRetryTransport, RetryTransport
from oncekey.client.journal import Kept, Request
from oncekey.errors import ConfigurationError

CREATED = httpx.MockTransport(lambda request: httpx.Response(201, json={"id": "a"}))
ONE = Retries(attempts=1, budget=None)


@pytest.fixture
def journal(tmp_path: Path) -> Journal:
    return Journal(tmp_path / "intents.db")


def age(journal: Journal, seconds: float) -> None:
    """Make everything in the journal so much older."""
    with journal._file.writing() as db:
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
    assert journal._file._opened().execute("PRAGMA synchronous").fetchone()[0] == 2
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


# ---- a file that fails -----------------------------------------------------------------------------------------------


def test_a_full_disk_sends_nothing(journal: Journal) -> None:
    """What cannot be remembered is not sent, and the error says what to do."""
    with journal._file.reading() as db:
        pages = db.execute("PRAGMA page_count").fetchone()[0]
        db.execute(f"PRAGMA max_page_count = {pages}")
    refusing = httpx.MockTransport(lambda request: pytest.fail("sent"))
    with (
        httpx.Client(transport=RetryTransport(refusing, journal=journal)) as client,
        pytest.raises(JournalUnusable, match="make room on its disk"),
    ):
        client.post("http://x/pay", content=b"a" * 100_000)
    assert journal.pending() == []


def test_a_disk_that_is_full_afterwards_hides_no_answer(journal: Journal, caplog: pytest.LogCaptureFixture) -> None:
    """The answer is given to the caller; the operation stays open, and asking again is safe."""

    def answer(request: httpx.Request) -> httpx.Response:
        with journal._file.reading() as db:
            db.execute("PRAGMA query_only = ON")
        return httpx.Response(201)

    with httpx.Client(transport=RetryTransport(httpx.MockTransport(answer), journal=journal)) as client:
        with journal.intent("pay", 1):
            assert client.post("http://x/pay").status_code == 201
        assert len(journal.pending()) == 1
        with pytest.raises(JournalUnusable, match="may write"):
            client.post("http://x/pay")
    assert "stays open" in caplog.text


@pytest.mark.parametrize("where", ["head", "middle"])
def test_a_damaged_file_is_named(tmp_path: Path, where: str, capsys: pytest.CaptureFixture[str]) -> None:
    """In a program and on the command line: a sentence with what to do, and no traceback."""
    path = tmp_path / "intents.db"
    journal = Journal(path)
    for number in range(200):
        journal.begin("pay", number)
    journal.close()
    damaged = bytearray(path.read_bytes())
    damaged[0 if where == "head" else 4096 :] = b"nonsense" * 9000
    path.write_bytes(damaged)
    with pytest.raises(JournalUnusable, match="move it away") as caught:
        Journal(path).pending()
    assert isinstance(caught.value, ConfigurationError)
    assert app.main(["client", "pending", "--journal", str(path)]) == 2
    assert "move it away" in capsys.readouterr().err


def test_a_folder_that_may_not_be_written(tmp_path: Path) -> None:
    """SQLite needs to write beside the file as well."""
    with pytest.raises(JournalUnusable, match="a folder that this program may write"):
        Journal(tmp_path).begin("pay", 1)
    with pytest.raises(JournalUnusable, match="a folder that this program may write"):
        Journal("/proc/none/x.db").begin("pay", 1)


def test_a_foreign_database_is_no_journal(tmp_path: Path) -> None:
    """A table of the same name, of another program."""
    with sqlite3.connect(tmp_path / "x.db") as db:
        db.execute("CREATE TABLE intents (name TEXT)")
    db.close()
    with pytest.raises(JournalUnusable, match="name another file"):
        Journal(tmp_path / "x.db").begin("pay", 1)


PROGRAM = """
import sys
from oncekey.client import Journal
print(Journal(sys.argv[1]).begin("pay", 1))
"""


def test_programs_that_race_for_a_new_file_agree(tmp_path: Path) -> None:
    """Six programs make the file and the intent at once."""
    words = [sys.executable, "-c", PROGRAM, str(tmp_path / "new.db")]
    started = [subprocess.Popen(words, stdout=subprocess.PIPE, text=True) for _ in range(6)]
    found = [program.communicate(timeout=60)[0] for program in started]
    assert len(set(found)) == 1
    assert len(found[0]) == 37


def test_a_clock_that_was_set_back_is_no_reason_to_send_late(journal: Journal) -> None:
    """What was made in the future has an age that nobody knows: it is unresolved."""
    journal.begin("pay", 1)
    age(journal, -86_400)
    with pytest.raises(OutcomeUnknown, match="unresolved"):
        journal.begin("pay", 1)
    assert [journal.unresolved(entry) for entry in journal.pending()] == [True]
    age(journal, 86_400 - 60)
    assert journal.begin("pay", 1)


def test_a_journal_is_closed_before_a_fork(journal: Journal) -> None:
    """A child that inherits an open SQLite file believes that it holds its parent's locks."""
    key = journal.begin("pay", 1)
    child = os.fork()
    if child == 0:
        os._exit(0 if journal._file._db is None and journal.begin("pay", 1) == key else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert journal.begin("pay", 1) == key


async def test_a_cancelled_call_leaves_its_operation_open(journal: Journal) -> None:
    """Wherever it is cancelled: at the journal, on the way, or while waiting; the same key finds the answer later."""
    waits = itertools.count()

    async def answer(request: httpx.Request) -> httpx.Response:
        await asyncio.sleep(0)
        return httpx.Response(503 if next(waits) % 2 else 201)

    slow = Retries(wait_for=30, longest_wait_for=30, budget=None)
    transport = AsyncRetryTransport(httpx.MockTransport(answer), journal=journal, retries=slow)
    for steps in range(30):
        call = asyncio.ensure_future(_paid(journal, transport, steps))
        for _ in range(steps):
            await asyncio.sleep(0.001 if steps % 3 else 0)
        call.cancel()
        await asyncio.wait([call])
        entry = journal.look(journal.begin("pay", steps))
        assert entry is not None
        assert entry.done or call.cancelled()
        assert not entry.done or (entry.answer is not None and entry.answer.status == 201)


async def _paid(journal: Journal, transport: AsyncRetryTransport, number: int) -> int:
    async with httpx.AsyncClient(transport=transport) as client:
        with journal.intent("pay", number):
            return (await client.post("http://x/pay")).status_code
