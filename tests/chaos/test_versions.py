from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
# One process of a version: for each line it does a verb with a key, and says what came of it.
PROCESS = """
import sys
from oncekey.core.commands import Claim, Settlement
from oncekey.core.record import IN_PROGRESS, State
from oncekey.errors import RecordUnreadable
from oncekey.stores.open import open_store
from tests.chaos import versions

versions.write(int(sys.argv[1]))

def did(store, verb, key):
    id_ = key.encode().ljust(20)
    if verb == "list":
        return " ".join(sorted(record.id.decode().strip() for record in store.scan(IN_PROGRESS).records))
    if verb == "claim":
        return type(store.claim([Claim(id_, id_[:16], b"f" * 33, 60_000)])[0]).__name__
    return type(store.settle([Settlement(id_, id_[:16], State.COMPLETED, b"kept", 60_000)])[0]).__name__

for line in sys.stdin:
    url, verb, key = line.split()
    store = open_store(url)
    store.migrate()
    try:
        print(did(store, verb, key), flush=True)
    except RecordUnreadable:
        print("unreadable", flush=True)
    store.close()
"""


@pytest.fixture(scope="module")
def processes() -> Iterator[list[subprocess.Popen[str]]]:
    """One of each version: that which reads all of them, then 1, 2 and 3."""
    with ExitStack() as stack:
        words = [[sys.executable, "-c", PROCESS, str(version)] for version in range(4)]
        pipe = subprocess.PIPE
        made = [stack.enter_context(subprocess.Popen(w, cwd=ROOT, stdin=pipe, stdout=pipe, text=True)) for w in words]
        yield made
        for process in made:
            process.communicate()


@pytest.fixture(params=["sqlite", "postgres", "redis"])
def address(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """Each store of the chaos runs."""
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path}/oncekey.db"
    url: str = request.getfixturevalue(f"{request.param}_url")
    return url


def test_each_version_reads_older_records_and_older_code_refuses_newer_ones(
    address: str, processes: list[subprocess.Popen[str]]
) -> None:
    """What the rolling restarts of a chaos run are: never absent, never run again, and no obstacle in a listing."""

    def said(version: int, verb: str, key: str = "-") -> str:
        process = processes[version]
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.write(f"{address} {verb} {key}\n")
        process.stdin.flush()
        return process.stdout.readline().strip()

    assert [said(version, "claim", f"v{version}") for version in (1, 2, 3)] == ["Won"] * 3
    assert [said(2, "claim", key) for key in ("v1", "v2", "v3")] == ["Seen", "Seen", "unreadable"]
    assert [said(version, "list") for version in (1, 2, 0)] == ["v1", "v1 v2", "v1 v2 v3"]
    assert said(2, "complete", "v2") == "Done"
    assert [said(version, "claim", "v2") for version in (1, 2, 3, 0)] == ["unreadable", "Seen", "Seen", "Seen"]
