from __future__ import annotations

import json
from pathlib import Path

import httpx
import pytest

from oncekey.cli import app
from oncekey.client import Journal, Retries
from oncekey.client.httpx import RetryTransport
from oncekey.client.journal import Request
from oncekey.client.resuming import resume, sender
from tests.client.scripted import CREATED, DROP, Scripted, reply
from tests.client.test_journal import age

ONE = Retries(attempts=1, budget=None)


@pytest.fixture
def journal(tmp_path: Path) -> Journal:
    return Journal(tmp_path / "intents.db")


def left_open(journal: Journal, url: str, path: str = "/pay") -> str:
    """A request whose program has died."""
    dead = httpx.MockTransport(lambda request: httpx.Response(503))
    client = httpx.Client(transport=RetryTransport(dead, journal=journal, retries=ONE))
    with client, pytest.raises(httpx.TransportError):
        client.post(url + path, json={"amount": 10})
    return journal.pending()[-1].key


def test_what_is_left_is_sent_under_its_key(journal: Journal) -> None:
    """The same body and the same key, with the credentials that somebody brings."""
    server = Scripted([CREATED])
    key = left_open(journal, server.url)
    with sender(journal, headers={"Authorization": "Bearer t"}) as client:
        report = resume(journal, client)
    assert report.done == [key]
    assert report.finished
    (seen,) = server.seen
    assert (seen.headers["idempotency-key"], seen.headers["authorization"]) == (key, "Bearer t")
    assert json.loads(seen.body) == {"amount": 10}
    assert journal.pending() == []


def test_a_queue_keeps_its_order(journal: Journal) -> None:
    """What is behind an operation without an answer waits; the other queue does not."""
    server = Scripted([DROP, CREATED])
    for queue, number in [("a", 1), ("a", 2), ("b", 3)]:
        journal.put("pay", number, request=Request("POST", f"{server.url}/{number}", (), b"{}"), queue=queue)
    with sender(journal, retries=ONE) as client:
        report = resume(journal, client)
        assert [len(found) for found in (report.left, report.waiting, report.done)] == [1, 1, 1]
        assert resume(journal, client).finished
    assert [seen.path for seen in server.seen] == ["/1", "/3", "/1", "/2"]
    assert server.keys[0] == server.keys[2]


def test_what_is_too_old_is_never_sent(journal: Journal) -> None:
    """It is reported, and stays."""
    server = Scripted([CREATED])
    key = left_open(journal, server.url)
    age(journal, journal.keep_for)
    with sender(journal) as client:
        assert resume(journal, client).unresolved == [key]
    assert server.seen == []


def test_wrong_credentials_stop_a_queue(journal: Journal) -> None:
    """They are no answer: everything stays, and is sent when the credentials are right."""
    server = Scripted([reply(401), CREATED])
    for number in (1, 2):
        journal.put("pay", number, request=Request("POST", f"{server.url}/{number}", (), b"{}"))
    with sender(journal, retries=ONE) as client:
        first = resume(journal, client)
        assert (len(first.left), len(first.waiting), first.done) == (1, 1, [])
        assert len(resume(journal, client).done) == 2


def test_a_refusal_is_told_apart(journal: Journal, capsys: pytest.CaptureFixture[str]) -> None:
    """It is an answer, so nothing stays open; but somebody must look, and the queue goes on."""
    server = Scripted([reply(404), CREATED])
    for number in (1, 2):
        journal.put("pay", number, request=Request("POST", f"{server.url}/{number}", (), b"{}"))
    code, out, _ = oncekey(capsys, "resume", "--journal", str(journal.path))
    assert (code, out) == (1, "1 done, 1 refused\n")
    assert journal.pending() == []


def test_a_redirect_is_followed_within_the_origin_only(journal: Journal) -> None:
    """Neither the body nor the credentials are for strangers."""
    stranger = Scripted([CREATED])
    server = Scripted([reply(307, Location="/there"), CREATED, reply(307, Location=f"{stranger.url}/x")])
    for number in (1, 2):
        journal.put("pay", number, request=Request("POST", f"{server.url}/{number}", (), b"{}"))
    with sender(journal, headers={"X-Api-Key": "s3cret"}, retries=ONE) as client:
        report = resume(journal, client)
    assert (len(report.done), len(report.left)) == (1, 1)
    assert stranger.seen == []
    assert "another server" in journal.pending()[0].trouble


def oncekey(capsys: pytest.CaptureFixture[str], *words: str) -> tuple[int, str, str]:
    code = app.main(["client", *words])
    said = capsys.readouterr()
    return code, said.out, said.err


def test_the_commands(journal: Journal, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """List, rehearse, finish, list again: as a table and as JSON."""
    server = Scripted([reply(503), CREATED])
    key = left_open(journal, server.url)
    monkeypatch.setenv("ONCEKEY_JOURNAL", str(journal.path))
    monkeypatch.setenv("COLUMNS", "100")
    code, out, _ = oncekey(capsys, "pending")
    assert (code, "POST /pay" in out, key[:13] in out) == (0, True, True)
    code, out, _ = oncekey(capsys, "resume", "--dry-run", "--json")
    assert json.loads(out)["key"] == key
    assert server.seen == []
    code, out, _ = oncekey(capsys, "resume", "--json", "--header", "Authorization: Bearer t", "--try-for", "5")
    assert (code, json.loads(out)["done"]) == (0, 1)
    assert server.seen[-1].headers["authorization"] == "Bearer t"
    assert oncekey(capsys, "pending")[2] == "no open operations\n"


def test_what_stays_open_is_an_exit_code(journal: Journal, capsys: pytest.CaptureFixture[str]) -> None:
    """A job that runs it sees that somebody must look."""
    server = Scripted([reply(500)])
    key = left_open(journal, server.url)
    path = str(journal.path)
    code, out, _ = oncekey(capsys, "resume", "--journal", path, "--try-for", "0.2")
    assert (code, out) == (1, "1 left\n")
    assert oncekey(capsys, "forget", "--journal", path, key)[0] == 0
    assert oncekey(capsys, "forget", "--journal", path, key)[0] == 1


def test_credentials_go_to_one_origin(journal: Journal, capsys: pytest.CaptureFixture[str]) -> None:
    """A journal may hold requests to several servers; a header for one is not for another."""
    first, second = Scripted([CREATED]), Scripted([CREATED])
    left_open(journal, first.url)
    left_open(journal, second.url)
    words = ("resume", "--journal", str(journal.path), "--header", "Authorization: Bearer t")
    code, _, err = oncekey(capsys, *words)
    assert (code, "say with --origin" in err) == (2, True)
    assert oncekey(capsys, *words, "--origin", first.url)[0] == 0
    assert (len(first.seen), len(second.seen)) == (1, 0)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("pending",), "no journal is named"),
        (("pending", "--journal", "nowhere.db"), "there is no journal at nowhere.db"),
        (("resume", "--journal", "{}", "--header", "nonsense"), "is no header"),
        (("resume", "--journal", "{}", "--dialect", "strip"), "did you mean 'stripe'"),
        (("forget", "--journal", "{}"), "required"),
    ],
)
def test_bad_input_gets_a_sentence(
    words: tuple[str, ...],
    said: str,
    journal: Journal,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """What was wrong, and what to do."""
    monkeypatch.delenv("ONCEKEY_JOURNAL", raising=False)
    journal.begin("pay", 1)
    code, _, err = oncekey(capsys, *(word.format(journal.path) for word in words))
    assert code == 2
    assert said in err
