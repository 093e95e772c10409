from __future__ import annotations

import os
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest

from oncekey.cli import app
from oncekey.core.record import State
from oncekey.stores.open import open_store
from tests.cli.running import OURS, Ran
from tests.operations.every_store import DAY, RING, answered, body_of, ended, taken

Run = Callable[..., Ran]
SIGNED = ("--reason", "moving house", "--by", "ann")


@pytest.fixture
def urls(tmp_path: Path) -> tuple[str, str]:
    """A store with records of two callers, and an empty one."""
    first, second = (f"sqlite:///{tmp_path}/{name}.db" for name in ("one", "two"))
    with closing(open_store(first)) as store:
        for number in range(3):
            answered(store, "alice", str(number))
        answered(store, "bob", "b")
        ended(store, taken(store, "bob", "u"), State.UNKNOWN, due_for=DAY)
    with closing(open_store(second)) as store:
        store.migrate()
    return first, second


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Run:
    """Run a command in this process."""
    for name in OURS:
        monkeypatch.delenv(name, raising=False)

    def run(*words: str) -> Ran:
        code = app.main(words)
        said = capsys.readouterr()
        return Ran(code, said.out, said.err)

    return run


def test_a_store_is_copied_and_proved(run: Run, urls: tuple[str, str]) -> None:
    """Rehearsed, copied, compared; a second run finds nothing to do; JSON has both digests."""
    words = ("copy", "--store", urls[0], "--to", urls[1], *SIGNED)
    rehearsed = run(*words, "--dry-run")
    assert (rehearsed.code, "would be: 5 copied" in rehearsed.out) == (1, True)
    ran = run(*words)
    assert ran.code == 0, ran.err
    assert "done: 5 copied" in ran.out
    assert "the source has 4 completed, 1 unknown" in ran.out
    assert "identical: 5 records" in ran.out
    [said] = run(*words, "--json").objects
    assert (said["copied"], said["identical"], said["settled"], said["passes"]) == (0, True, True, 1)
    assert said["digests"]["source"] == said["digests"]["target"]
    assert run(*words, "--dry-run").code == 0


def test_a_living_lease_keeps_a_copy_from_being_final(run: Run, urls: tuple[str, str]) -> None:
    """Everything arrives, and the code says that the old store is still at work."""
    with closing(open_store(urls[0])) as store:
        taken(store, "alice", "running")
    ran = run("copy", "--store", urls[0], "--to", urls[1], *SIGNED)
    assert ran.code == 1
    assert "1 are in progress" in ran.out


def test_a_file_takes_records_along(run: Run, urls: tuple[str, str], tmp_path: Path) -> None:
    """Exported, imported, compared; a damaged file is a sentence and changes nothing."""
    path = str(tmp_path / "records")
    ran = run("export", path, "--store", urls[0])
    assert (ran.code, "done: 5 records" in ran.out) == (0, True)
    assert (run("export", path, "--store", urls[0]).code) == 2
    whole = Path(path).read_bytes()
    Path(path).write_bytes(whole[:-10])
    broken = run("import", path, "--store", urls[1], *SIGNED)
    assert (broken.code, "cut short" in broken.err, broken.out) == (2, True, "")
    Path(path).write_bytes(whole)
    assert run("import", path, "--store", urls[1], *SIGNED).code == 0
    assert run("copy", "--store", urls[0], "--to", urls[1], *SIGNED, "--dry-run").code == 0


def test_wrong_ends_are_sentences(run: Run, urls: tuple[str, str], tmp_path: Path) -> None:
    """The same store twice, a target that is gone with the command, one without a schema, and no reason."""
    same = run("copy", "--store", urls[0], "--to", urls[0], *SIGNED)
    assert (same.code, "name the store that the records shall go to" in same.err) == (2, True)
    gone = run("copy", "--store", urls[0], "--to", "memory://", *SIGNED)
    assert (gone.code, "a store that lasts" in gone.err) == (2, True)
    absent = run("copy", "--store", urls[0], "--to", f"sqlite:///{tmp_path}/typo.db", *SIGNED)
    assert (absent.code, "typo.db: correct --to, or" in absent.err) == (3, True)
    assert f"oncekey migrate --store sqlite:///{tmp_path}/typo.db" in absent.err
    assert run("copy", "--store", urls[0], "--to", urls[1]).code == 2
    assert run("import", str(tmp_path / "absent"), "--store", urls[1], *SIGNED).code == 2


def test_the_targets_password_is_not_printed(run: Run, urls: tuple[str, str]) -> None:
    """What the driver says of an unreachable target comes without its password."""
    ran = run("copy", "--store", urls[0], "--to", "redis://app:hunter2@127.0.0.1:1/0", *SIGNED, "--store-for", "1")
    assert ran.code == 4
    assert "hunter2" not in ran.err


def test_answers_of_a_caller_are_erased(run: Run, urls: tuple[str, str], monkeypatch: pytest.MonkeyPatch) -> None:
    """By the caller's text, read from standard input, or by its digest; what is left is said with code 1."""
    words = ("erase", "--store", urls[0], *SIGNED)
    assert run(*words, "--scope", "alice", "--dry-run").out == "would be: 3 answers erased\n"
    read, write = os.pipe()
    os.write(write, b"alice\n")
    os.close(write)
    with os.fdopen(read) as given:
        monkeypatch.setattr("sys.stdin", given)
        assert run(*words, "--scope", "-").out == "done: 3 answers erased\n"
    [digest] = {one["scope"] for one in run("ls", "--store", urls[0], "--json").objects}
    ran = run(*words, "--digest", digest)
    assert ran.code == 1
    assert "1 answer erased" in ran.out
    assert "left: 1 not finished" in ran.out
    said = run("show", "--store", urls[0], "--key", "b", "--caller", "bob", "--endpoint", "POST /orders", "--json")
    assert said.objects[0]["outcome"]["reason"] == "it was erased on request"
    assert said.objects[0]["trail"][0]["by"] == "ann"


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ((), "--scope or --digest"),
        (("--scope", "a", "--digest", "b"), "only one of them"),
        (("--scope", ""), "the scope is empty"),
        (("--digest", "abc"), "no digest of a scope"),
    ],
)
def test_erase_needs_exactly_one_name(run: Run, urls: tuple[str, str], words: tuple[str, ...], said: str) -> None:
    """Nobody, or two at once, or a typo: a sentence and code 2."""
    ran = run("erase", "--store", urls[0], *SIGNED, *words)
    assert (ran.code, said in ran.err) == (2, True), ran.err


def test_an_encrypted_answer_is_erased_with_its_ring(
    run: Run, urls: tuple[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without ONCEKEY_SEAL_KEYS it is left and said; with them it goes."""
    with closing(open_store(urls[1])) as store:
        claim = answered(store, "alice", "k", RING)
    words = ("erase", "--store", urls[1], *SIGNED, "--scope", "alice")
    ran = run(*words)
    assert (ran.code, "ONCEKEY_SEAL_KEYS" in ran.out) == (1, True)
    monkeypatch.setenv("ONCEKEY_SEAL_KEYS", "k1:" + "A" * 43 + "=")
    assert run(*words).code == 0
    with closing(open_store(urls[1])) as store:
        assert "erased" in str(body_of(store, claim, RING))
