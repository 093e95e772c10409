from __future__ import annotations

import stat
from pathlib import Path
from typing import Any

import pytest

from oncekey.core.record import State
from oncekey.errors import ConfigurationError
from oncekey.operations import File, Walk, copy, export
from oncekey.operations.copying import canonical
from oncekey.stores.memory import MemoryStore
from oncekey.testing.clock import ManualClock
from tests.operations.every_store import DAY, KINDS, answered, ended, opened, record_of, taken
from tests.operations.test_copying import ANN, filled


@pytest.fixture
def file(store: MemoryStore, tmp_path: Path) -> Path:
    """A file with three answers."""
    for number in range(3):
        answered(store, "alice", str(number))
    path = tmp_path / "records"
    export(Walk(store), path)
    return path


def imported(path: Path, target: MemoryStore) -> Any:
    """Bring a file in, as the command does."""
    File(path).check()
    return copy(File(path), target, ANN, rest=lambda seconds: None)


@pytest.mark.parametrize("kind", KINDS)
def test_a_file_brings_every_state_back(kind: str, request: pytest.FixtureRequest, tmp_path: Path) -> None:
    """Written from any store, read into another: as if it had been copied; only its owner may read the file."""
    path = tmp_path / "records"
    with opened(kind, request) as source:
        records = filled(source)
        ended(source, taken(source, "x", "x"), State.FAILED_RETRYABLE)
        done = export(Walk(source), path)
    assert (done.contents.records, done.running) == (len(records) + 1, 2)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert File(path).check() == done.contents
    target = MemoryStore()
    report = imported(path, target)
    assert (report.copied, report.identical, report.settled) == (len(records) + 1, True, False)
    for record in records:
        if record.lease_until is None:
            assert canonical(record_of(target, record.id)) == canonical(record)
    assert not list(tmp_path.glob("*.part"))


def test_a_file_that_was_tampered_with_changes_nothing(file: Path, clock: ManualClock) -> None:
    """Wherever it is cut or changed, it is refused in a sentence before anything is written."""
    whole = file.read_bytes()
    for size in (0, 5, 16, 17, 20, 100, len(whole) // 2, len(whole) - 1):
        file.write_bytes(whole[:size])
        check_refused(file, clock)
    for at in range(0, len(whole), 7):
        file.write_bytes(whole[:at] + bytes((whole[at] ^ 0x41,)) + whole[at + 1 :])
        check_refused(file, clock)
    file.write_bytes(whole + b"\0")
    check_refused(file, clock)
    file.write_bytes(whole)
    assert imported(file, MemoryStore(clock)).settled


def check_refused(path: Path, clock: ManualClock) -> None:
    """It is refused, and nothing of it is in the store."""
    target = MemoryStore(clock)
    with pytest.raises(ConfigurationError, match="cannot be imported"):
        imported(path, target)
    assert target.stats() == {}


@pytest.mark.parametrize(
    ("head", "said"),
    [
        (b"oncekey records 2\n", "format version '2', and this code reads 1"),
        (b"oncekey records\n", "no file of records"),
        (b"\x80\x04K\x01.", "no file of records"),
        (b"x" * 100_000, "no file of records"),
        (b"oncekey records 1\n" + b"\xff" * 100, "claims to have 4294967295 bytes"),
        (b"oncekey records 1\n" + b"\0\0\0\1Z", "frame of kind 0x5a"),
        (b"oncekey records 1\n" + b"\0\0\0\0", "claims to have 0 bytes"),
    ],
)
def test_another_file_is_named_as_such(tmp_path: Path, head: bytes, said: str) -> None:
    """A newer version, a foreign file and nonsense each get their own sentence."""
    path = tmp_path / "records"
    path.write_bytes(head)
    with pytest.raises(ConfigurationError, match=said):
        File(path).check()


def test_an_export_replaces_nothing_and_leaves_nothing_half(store: MemoryStore, tmp_path: Path) -> None:
    """A file that is there, another export at work, an unwritable place and a stop: a sentence, and no file."""
    answered(store, "alice", "k")
    path = tmp_path / "records"
    for there in (path, tmp_path / "records.part"):
        there.write_bytes(b"mine")
        with pytest.raises(ConfigurationError, match="there is a file"):
            export(Walk(store), path)
        assert there.read_bytes() == b"mine"
        there.unlink()
    with pytest.raises(ConfigurationError, match="cannot be written"):
        export(Walk(store), tmp_path / "absent" / "records")
    with pytest.raises(ConfigurationError, match="cannot be read"):
        File(path).check()
    assert export(Walk(store), path, stop=lambda: True).stopped
    assert list(tmp_path.iterdir()) == []


def test_what_ran_at_the_export_is_run_by_nobody_after_the_import(store: MemoryStore, tmp_path: Path) -> None:
    """A key that was held when the file was written stays shut, however long the file has lain."""
    claim = taken(store, "alice", "k", State.CLAIMED)
    path = tmp_path / "records"
    assert export(Walk(store), path).running == 1
    late = MemoryStore(ManualClock(store.clock() + 2 * DAY))
    report = imported(path, late)
    assert (report.last.running, report.settled) == (1, False)
    assert record_of(late, claim.id).state is State.EXECUTING
    assert record_of(late, claim.id).token == claim.token
