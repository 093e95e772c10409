"""What the start-up check says."""

from __future__ import annotations

from pathlib import Path

import pytest

from oncekey.stores.contract import Finding
from oncekey.stores.planned import PlannedStore
from oncekey.stores.sqlite import doctor
from oncekey.stores.sqlite.steps import Place
from tests.stores.sqlite.items import claim


def test_a_healthy_file_has_nothing_to_fix(store: PlannedStore) -> None:
    """WAL, FULL, the schema and the library are each looked at, and fine."""
    store.claim([claim("a")])
    findings = store.check()
    said = " ".join(finding.what for finding in findings)
    assert [finding for finding in findings if finding.level == "refusal"] == []
    assert all(word in said for word in ("journal mode WAL", "synchronous FULL", "schema 2", "SQLite 3", "free"))


@pytest.mark.parametrize(
    ("finding", "level"),
    [
        (doctor.sqlite((3, 36, 0)), "refusal"),
        (doctor.schema(2, 1), "refusal"),
        (doctor.schema(1, 2), "refusal"),
        (doctor.schema(0, 1), "ok"),
        (doctor.durability(1), "refusal"),
        (doctor.journal("delete"), "warning"),
        (doctor.file_system(Place("/x", 1 << 40, "nfs4")), "warning"),
        (doctor.disk(Place("/x", 1 << 20, "ext4")), "warning"),
    ],
)
def test_what_is_wrong_is_said_with_its_fix(finding: Finding, level: str) -> None:
    """Old libraries, wrong schemas, lost durability, network disks and full ones are named, with what to do."""
    assert finding.level == level
    assert bool(finding.fix) == (level != "ok")


def test_the_file_system_is_recognised(store: PlannedStore) -> None:
    """On Linux the type of the mount that holds the file is known."""
    if not Path("/proc/self/mountinfo").exists():
        pytest.skip("this system does not list its mounts")
    assert any(finding.what.startswith("file system ") and "not known" not in finding.what for finding in store.check())


def test_stats_name_what_is_there(store: PlannedStore) -> None:
    """Counts go by state word, with the size of the file and the settings."""
    store.claim([claim("a"), claim("b")])
    stats = store.stats()
    assert stats["in_progress"] == 2
    assert stats["journal_mode"] == "wal"
    assert int(stats["file_bytes"]) > 0
