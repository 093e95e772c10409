from __future__ import annotations

import argparse
import inspect
import io
import json
import logging
import sys
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from types import ModuleType

import pytest

from oncekey.cli import app, commands, options
from oncekey.core.journal import Call, CallState, Journal, Step, pack_journal
from oncekey.core.outcome import pack
from oncekey.core.record import State
from oncekey.demo import serve
from oncekey.engine.sealing import Sealer
from oncekey.operations.words import brief, visible
from oncekey.stores.open import open_store
from tests.cli.running import OURS, Ran
from tests.operations.filled import CALLER, DAY, ENDPOINT, Made, claim, complete, fill, settle

Run = Callable[..., Ran]


@pytest.fixture
def url(tmp_path: Path) -> str:
    """A store with one operation of each kind."""
    return f"sqlite:///{tmp_path}/store.db"


@pytest.fixture
def made(url: str) -> dict[str, Made]:
    """What stands in the store."""
    store = open_store(url)
    try:
        return fill(store)
    finally:
        store.close()


@pytest.fixture
def run(url: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Iterator[Run]:
    """Run a command on that store."""
    for name in OURS:
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("ONCEKEY_STORE", url)
    monkeypatch.setenv("COLUMNS", "80")
    handlers = list(logging.getLogger("oncekey").handlers)

    def run(*words: str) -> Ran:
        code = app.main(words)
        said = capsys.readouterr()
        return Ran(code, said.out, said.err)

    yield run
    logging.getLogger("oncekey").handlers[:] = handlers


def test_listing_fits_eighty_columns(run: Run, made: dict[str, Made]) -> None:
    """No line of a table is longer than the terminal, and nothing of a reference or a state is cut."""
    for words in (
        ["ls"],
        ["ls", "--state", "all", "--keys"],
        ["stats"],
        ["doctor"],
        ["show", made["unknown"].id.hex()],
    ):
        ran = run(*words)
        assert ran.code == 0, ran.err
        assert max(len(line) for line in ran.out.splitlines()) <= 80
    listed = run("ls").out
    assert made["failed"].id.hex()[:12] in listed
    assert "failed_retryable" in listed


def test_keys_are_shown_on_request_only(run: Run, made: dict[str, Made], url: str) -> None:
    """Neither table nor JSON has a client's key unless --keys asks for it."""
    store = open_store(url)
    secret = claim(store, "Sesame-1234")
    store.close()
    for command in (["ls"], ["show", secret.id.hex()]):
        for more in ([], ["--json"]):
            assert "Sesame" not in run(*command, *more).out
            assert "Sesame-1234" in run(*command, *more, "--keys").out


def test_text_of_strangers_cannot_steer_the_terminal(run: Run, made: dict[str, Made]) -> None:
    """Escape sequences are shown as their escapes, and markup as it was written."""
    shown = run("show", made["unknown"].id.hex()).out
    assert "\x1b" not in shown
    assert "[red]no answer\\x1b[2J" in shown


def test_an_unfinished_operation_shows_what_it_has_done(run: Run, url: str) -> None:
    """Whom it called, where, under which key, what is known of that, and which steps are done."""
    call = Call("psp.charge", "k" * 36, "POST https://psp.example/charges", CallState.BEGUN, 2)
    told = Call("mail", "m" * 36, state=CallState.RETURNED, provider="postmark", reference="m-7\x1b[2J")
    packed = pack_journal(Journal((Step("reserve", b"{}"), call, told)))
    with closing(open_store(url)) as store:
        made = claim(store, "halfway")
        settle(store, made, State.UNKNOWN, outcome=Sealer().seal(made.id, packed))
    shown = " ".join(run("show", made.id.hex()).out.split())
    assert "reserve: done, 2 bytes kept" in shown
    assert f"psp.charge: begun in attempt 2 to POST https://psp.example/charges under key {'k' * 36}" in shown
    assert f"mail: returned in attempt 1 to postmark under key {'m' * 36}, answered with m-7\\x1b[2J" in shown
    [fields] = run("show", made.id.hex(), "--json").objects
    assert fields["outcome"]["kind"] == "journal"
    assert fields["outcome"]["calls"][0] == call._asdict() | {"state": "begun"}
    assert fields["outcome"]["steps"] == [{"name": "reserve", "size": 2}]


ANSWER = '{"status": 201, "json": {"id": 7}}'


def test_a_person_settles_an_unknown_outcome(run: Run, made: dict[str, Made], tmp_path: Path) -> None:
    """Rehearsed, done, shown with who and why; a second person is told that it is finished already."""
    file = tmp_path / "answer.json"
    file.write_text(ANSWER)
    ref = made["unknown"].id.hex()
    words = ("resolve", ref, "--completed", str(file), "--reason", "seen at the bank", "--by", "ann")
    rehearsed = run(*words, "--dry-run", "--json").objects
    assert [(one["from"], one["to"], one["written"]) for one in rehearsed] == [("unknown", "completed", False)]
    assert run("show", ref, "--json").objects[0]["state"] == "unknown"
    assert run(*words).out == f"done: ok_{ref[:12]} unknown to completed\n"
    [fields] = run("show", ref, "--json", "--body").objects
    assert (fields["state"], fields["outcome"]["body"]) == ("completed", '{"id":7}')
    [line] = fields["trail"]
    assert (line["by"], line["why"], line["from"], line["to"]) == ("ann", "seen at the bank", "unknown", "completed")
    shown = " ".join(run("show", ref).out.split())
    assert "unknown to completed by ann: seen at the bank" in shown
    again = run("resolve", ref, "--retryable", "--reason", "no, it is not", "--by", "ben")
    assert (again.code, "--force" in again.err) == (2, True)
    assert run("resolve", ref, "--retryable", "--reason", "no", "--by", "ben", "--force").code == 0
    assert [one["by"] for one in run("show", ref, "--json").objects[0]["trail"]] == ["ann", "ben"]


def test_dead_letters_are_listed_and_asked_about_again(run: Run, url: str) -> None:
    """What nobody asks about is a list of its own; `retry` empties it, one by one or all at once."""
    with closing(open_store(url)) as store:
        dead = [settle(store, claim(store, f"dead-{n}"), State.UNKNOWN, note="gave up") for n in range(3)]
        settle(store, claim(store, "asked about"), State.UNKNOWN, due_for=DAY)
    assert "dead letter" in run("dead-letters").out
    listed = run("dead-letters", "--json").objects
    assert {one["id"] for one in listed} == {one.id.hex() for one in dead}
    assert all(one["dead_letter"] for one in listed)
    assert "asked about again" in run("retry", dead[0].id.hex(), "--reason", "the bank is back").out
    assert len(run("dead-letters", "--json").objects) == 2
    assert len(run("retry", "--all", "--reason", "the bank is back", "--json").objects) == 2
    assert run("dead-letters").err == "no such operations\n"


def test_body_is_shown_on_request(run: Run, url: str) -> None:
    """A body is text with its control characters visible, or in JSON the exact bytes."""
    store = open_store(url)
    body = b"one\ntwo\x1b[2J \xff"
    made = complete(store, "k", outcome=pack(200, [], body))
    store.close()
    assert "one" not in run("show", made.id.hex()).out
    assert "\none\ntwo\\x1b[2J \\xff\n" in run("show", made.id.hex(), "--body").out
    [fields] = run("show", made.id.hex(), "--body", "--json").objects
    assert fields["outcome"]["body_encoding"] == "base64"
    assert fields["outcome"]["size"] == len(body)


def test_sealed_answer_needs_its_key(run: Run, url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """With the application's ring an answer is read; without it the operation is shown and says what is missing."""
    store = open_store(url)
    made = claim(store, "k")
    sealed = Sealer.from_text("k1:" + "A" * 43 + "=").seal(made.id, pack(200, [], b"hello"))
    settle(store, made, State.COMPLETED, outcome=sealed)
    store.close()
    assert "sealed with the key 'k1'" in " ".join(run("show", made.id.hex(), "--body").out.split())
    monkeypatch.setenv("ONCEKEY_SEAL_KEYS", "k1:" + "A" * 43 + "=")
    assert "\nhello\n" in run("show", made.id.hex(), "--body").out


def test_listing_can_be_continued(run: Run, made: dict[str, Made]) -> None:
    """The hint for the next page is on standard error, in both forms, and leads to the rest."""
    first = run("ls", "--limit", "3", "--json")
    after = json.loads(first.err)["after"]
    assert f"--after {after}" in run("ls", "--limit", "3").err
    rest = run("ls", "--limit", "3", "--json", "--after", after)
    assert (len(first.objects), len(rest.objects), rest.err) == (3, 1, "")


def test_due_lists_what_is_late(run: Run, made: dict[str, Made]) -> None:
    """Only lapsed leases and overdue questions are listed with --due."""
    late = run("ls", "--due", "--json", "--keys").objects
    assert {fields["key"] for fields in late} == {"lapsed", "unknown"}
    assert all(fields["left_for"] < 0 for fields in late)


def test_empty_listing_is_a_sentence(run: Run, url: str) -> None:
    """Nothing to list is success, with a remark for people and silence for machines."""
    open_store(url).stats()
    assert run("ls") == (0, "", "no such operations\n")
    assert run("ls", "--json") == (0, "", "")


def test_caller_may_come_from_standard_input(run: Run, made: dict[str, Made], monkeypatch: pytest.MonkeyPatch) -> None:
    """A credential need not stand on the command line, where every user of the machine can read it."""
    monkeypatch.setattr(sys, "stdin", io.StringIO(f"{CALLER}\n"))
    [fields] = run("show", "--key", "running", "--caller", "-", "--endpoint", ENDPOINT, "--json").objects
    assert fields["id"] == made["running"].id.hex()


@pytest.mark.parametrize(
    ("words", "hint"),
    [
        (["show", "abcdef"], "add --finished"),
        (["show", "0" * 40], "it may have expired"),
        (["show", "--key", "running", "--caller", CALLER], "--endpoint must be given"),
        (["show", "--key", "running", "--caller", "Bearer bob", "--endpoint", ENDPOINT], "what the scope returns"),
    ],
)
def test_what_is_not_found_says_where_to_look(run: Run, made: dict[str, Made], words: list[str], hint: str) -> None:
    """Not found is code 1 and a sentence with the next step."""
    ran = run(*words)
    assert (ran.code, ran.out) == (1, "")
    assert hint in ran.err


@pytest.mark.parametrize(
    ("words", "hint"),
    [
        ([], "COMMAND"),
        (["lss"], "invalid choice"),
        (["ls", "--limit", "0"], "1 or more"),
        (["ls", "--state", "done"], "invalid choice"),
        (["ls", "--store-for", "nan"], "above 0"),
        (["ls", "--store", "postgress://x"], "did you mean postgres"),
        (["ls", "--store", ""], ""),
        (["ls", "--store", "memory://"], "into which no other can look"),
        (["console", "--store", "memory://"], "into which no other can look"),
        (["demo", "--port", "65536"], "not a port"),
        (["show"], "an ID, or --key"),
        (["retry", "--reason", "x"], "or --all"),
        (["retry", "--all", "abcdef", "--reason", "x"], "only one of them"),
        (["retry", "--all"], "--reason"),
        (["resolve", "abcdef", "--retryable"], "--reason"),
        (["resolve", "abcdef", "--reason", "x"], "--completed"),
        (
            ["resolve", "abcdef", "--reason", "x", "--completed", "nowhere.json"],
            "nowhere.json cannot be read: No such file or directory\n",
        ),
        (["resolve", "--key", "k", "--caller", "-", "--reason", "x", "--completed", "-"], "standard input"),
        (["show", "abcdef", "--key", "k"], "and not both"),
        (["show", "--key", "k"], "--caller"),
        (["show", "xyz"], "at least the first 6"),
        (["show", "--key", "k", "--caller", "c", "--endpoint", "orders"], "write 'POST /orders'"),
    ],
)
def test_wrong_use_is_a_sentence(run: Run, made: dict[str, Made], words: list[str], hint: str) -> None:
    """A command that makes no sense ends with code 2 and one sentence, or one JSON object where JSON was asked for."""
    if words == ["ls", "--store", ""]:
        assert run(*words).code == 0  # an empty option counts as none
        return
    plain, machine = run(*words), run(*words, "--json")
    assert (plain.code, machine.code) == (2, 2)
    assert hint in plain.err
    assert "Traceback" not in plain.err
    assert json.loads(machine.err)["error"]["code"] == 2


def test_no_store_at_all_is_a_sentence(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without an address the sentence says how to give one."""
    monkeypatch.delenv("ONCEKEY_STORE")
    ran = run("ls")
    assert ran.code == 2
    assert "--store sqlite:///oncekey.db" in ran.err


def test_options_for_all_commands_may_stand_anywhere(run: Run, made: dict[str, Made], tmp_path: Path) -> None:
    """In front of the command or behind it, the option counts, and the address beats the environment."""
    other = f"sqlite:///{tmp_path}/other.db"
    assert run("migrate", "--store", other).code == 0
    for words in (["--store", other, "--json", "stats"], ["stats", "--json", "--store", other]):
        assert "in_progress" not in run(*words).objects[0]
    assert "in_progress" in run("--json", "stats").objects[0]


def test_defect_is_one_line(run: Run, made: dict[str, Made], monkeypatch: pytest.MonkeyPatch) -> None:
    """What nobody foresaw is one line with code 70 that says how to report it; the trace is for who asks."""

    def broken(*_: object) -> None:
        raise KeyError("what")

    monkeypatch.setitem(commands.COMMANDS, "ls", broken)
    ran = run("ls")
    assert (ran.code, len(ran.err.splitlines())) == (70, 1)
    assert "ONCEKEY_DEBUG=1" in ran.err
    monkeypatch.setenv("ONCEKEY_DEBUG", "1")
    assert "Traceback" in run("ls").err


def test_warnings_count_when_they_shall(run: Run) -> None:
    """A warning ends doctor with success, and with --strict it does not."""
    codes = [run("doctor", "--store", "memory://", *more).code for more in ([], ["--strict"])]
    assert codes == [0, 1]


def test_file_that_is_not_there_is_not_made(run: Run, tmp_path: Path) -> None:
    """A typo in a file's name is said, and no empty store appears."""
    for words in (["ls"], ["doctor"], ["migrate", "--dry-run"]):
        ran = run(*words, "--store", f"sqlite:///{tmp_path}/typo.db")
        assert (ran.code, "typo.db" in ran.err) == (3, True)
    assert list(tmp_path.iterdir()) == []


def helps(parser: argparse.ArgumentParser) -> Iterator[str]:
    """What --help prints, for the command itself and all below it."""
    yield parser.format_help()
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            for below in action.choices.values():
                yield from helps(below)


def test_every_help_fits_eighty_columns(monkeypatch: pytest.MonkeyPatch) -> None:
    """No line of any --help is broken by an ordinary terminal."""
    monkeypatch.setenv("COLUMNS", "80")
    pages = list(helps(options.parser()))
    assert len(pages) > len(commands.COMMANDS)
    assert [line for page in pages for line in page.splitlines() if len(line) > 80] == []


def demo_that(act: Callable[..., None]) -> ModuleType:
    """A demo package whose server does this."""
    package, serve = ModuleType("oncekey.demo"), ModuleType("oncekey.demo.serve")
    serve.__dict__["run"] = act
    package.__dict__["serve"] = serve
    return package


def test_demo_gets_its_options_and_never_the_environments_store(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    """The demo makes its own tables, so only a store that is named for it is used."""
    calls: list[dict[str, object]] = []
    monkeypatch.setitem(sys.modules, "oncekey.demo", demo_that(lambda **options: calls.append(options)))
    assert run("demo").code == 0
    assert run("demo", "--host", "::1", "--port", "9", "--workers", "3", "--store", "memory://").code == 0
    assert calls == [
        {"host": "127.0.0.1", "port": 8000, "store": None, "workers": None},
        {"host": "::1", "port": 9, "store": "memory://", "workers": 3},
    ]


def test_demo_takes_what_the_parser_gives() -> None:
    """The demo's server has the parameters that are passed to it, with the defaults that --help and the page name."""
    parameters = inspect.signature(serve.run).parameters
    assert {name: one.default for name, one in parameters.items()} | {"host": "127.0.0.1", "port": 8000} == {
        "host": serve.HOST,
        "port": serve.PORT,
        "store": None,
        "workers": None,
    }
    assert serve.WORKERS == 2


def test_demo_without_its_extra_names_the_command(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where uvicorn is missing the sentence says how to install it; a port in use is a sentence as well."""

    def missing(name: str) -> None:
        raise ModuleNotFoundError("No module named 'uvicorn'", name="uvicorn")

    package = ModuleType("oncekey.demo")
    package.__dict__["__getattr__"] = missing
    monkeypatch.setitem(sys.modules, "oncekey.demo", package)
    ran = run("demo")
    assert (ran.code, "pip install 'oncekey[demo]'" in ran.err) == (2, True)

    def in_use(**_: object) -> None:
        raise OSError(98, "Address already in use")

    monkeypatch.setitem(sys.modules, "oncekey.demo", demo_that(in_use))
    ran = run("demo")
    assert (ran.code, "already in use" in ran.err) == (1, True)


@pytest.mark.parametrize(
    ("length", "text"),
    [(0, "0ms"), (999, "999ms"), (1000, "1s"), (-119_999, "119s"), (120_000, "2m"), (7_200_000, "2h"), (2 * DAY, "2d")],
)
def test_durations_have_one_unit(length: int, text: str) -> None:
    """A duration is rounded down to one unit, whichever way it points."""
    assert brief(length) == text


def test_visible_text_keeps_letters_and_nothing_else() -> None:
    """Letters of every script stay; what steers terminals, hides or turns text around is written as its escape."""
    assert visible("héé 日本 🙂") == "héé 日本 🙂"
    assert visible("a\r\x9b\u202e\u200b\ud800\n") == "a\\r\\x9b\\u202e\\u200b\\ud800\\n"
    assert visible("a\n\tb", lines=True) == "a\n\tb"
