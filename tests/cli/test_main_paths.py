from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from oncekey.stores.open import open_store
from tests.cli.running import ONCEKEY, environment, oncekey
from tests.infra.process import free_port
from tests.operations.filled import BODY, CALLER, ENDPOINT, Made, complete, fill


@pytest.fixture
def sqlite_url(tmp_path: Path) -> str:
    """A file that is not there yet."""
    return f"sqlite:///{tmp_path}/store.db"


@pytest.fixture(params=["sqlite_url", "postgres_url", "redis_url"])
def store_url(request: pytest.FixtureRequest) -> str:
    """An empty store of each kind, without its tables."""
    url: str = request.getfixturevalue(request.param)
    return url


@pytest.fixture
def made(store_url: str) -> dict[str, Made]:
    """One operation of each kind in that store."""
    store = open_store(store_url)
    store.migrate()
    try:
        return fill(store)
    finally:
        store.close()


def scripted(script: str, *words: str) -> subprocess.CompletedProcess[str]:
    """Run a command in a process of its own in which a script has prepared something."""
    script += "\nimport sys\nfrom oncekey.cli import app\nsys.exit(app.main())\n"
    return subprocess.run(
        [sys.executable, "-c", script, *words],
        capture_output=True,
        text=True,
        timeout=60,
        env=environment(),
        check=False,
    )


def test_migration_happens_once(store_url: str) -> None:
    """A rehearsal changes nothing and says so by its code; a migration leaves nothing to do for the next."""
    rehearsed = oncekey("migrate", "--dry-run", "--store", store_url)
    assert oncekey("migrate", "--dry-run", "--store", store_url)[:2] == rehearsed[:2]
    first = oncekey("migrate", "--store", store_url)
    assert first.code == 0, first.err
    assert (first.out == "nothing to do\n") == (rehearsed.code == 0)
    for words in (["migrate"], ["migrate", "--dry-run"]):
        assert oncekey(*words, "--store", store_url)[:2] == (0, "nothing to do\n")


def test_operations_are_listed_and_shown(store_url: str, made: dict[str, Made]) -> None:
    """A listing gives the ids, and an id, its beginning or its key leads to the same operation with its answer."""
    listed = oncekey("ls", "--json", "--state", "all", "--keys", ONCEKEY_STORE=store_url)
    ids = {key: one.id.hex() for key, one in made.items()}
    # Redis deletes what has expired by itself, and keeps no key of what has finished.
    assert {fields["id"] for fields in listed.objects} | {ids["old"]} == set(ids.values())
    assert {fields["key"] for fields in listed.objects} >= {"running", "lapsed", "unknown"}
    by_key = ["--key", "completed", "--caller", CALLER, "--endpoint", ENDPOINT]
    for words in ([ids["completed"]], [ids["completed"][:8], "--finished"], by_key):
        [shown] = oncekey("show", *words, "--body", "--json", ONCEKEY_STORE=store_url).objects
        assert (shown["id"], shown["outcome"]["status"]) == (ids["completed"], 201)
        assert shown["outcome"]["body"].encode() == BODY


def test_purge_sweeps_and_deletes(store_url: str, made: dict[str, Made]) -> None:
    """Lapsed leases become unknown, expired answers go, and the second time nothing is left to do."""
    first = oncekey("purge", "--json", "--store", store_url)
    assert first.code == 0, first.err
    assert first.objects[0]["swept"] == {"unknown": 1, "failed_retryable": 0, "moved_on": 0}
    assert (first.objects[0]["finished"], first.objects[0]["stopped"]) == (True, False)
    counted = oncekey("stats", "--json", "--store", store_url).objects[0]
    assert (counted["in_progress"], counted["unknown"]) == (1, 2)
    assert oncekey("purge", "--store", store_url).out == (
        "swept: 0 to unknown, 0 to failed_retryable\ndeleted: 0 expired\n"
    )


def test_doctor_examines_a_prepared_store(store_url: str, made: dict[str, Made]) -> None:
    """A store that can be reached has findings, no password, and the code that they deserve."""
    ran = oncekey("doctor", "--json", "--store", store_url)
    [health] = ran.objects
    assert health["reachable"]
    assert ran.code == (3 if health["refused"] else 0), ran.out
    assert {finding["level"] for finding in health["findings"]} <= {"ok", "warning", "refusal"}
    assert oncekey("doctor", "--strict", "--store", store_url).code == (
        3 if health["refused"] else 1 if health["warned"] else 0
    )


def test_tables_are_not_made_by_looking(postgres_url: str) -> None:
    """On a server without tables every command but migrate refuses, and names the command to run."""
    for command in ("ls", "stats", "purge", "doctor"):
        ran = oncekey(command, "--store", postgres_url)
        assert ran.code == 3, (command, ran)
        assert "oncekey migrate" in ran.out + ran.err
        assert "Traceback" not in ran.err


@pytest.mark.parametrize("kind", ["postgresql://app:hunter22@127.0.0.1:{}/app", "redis://:hunter22@127.0.0.1:{}/0"])
@pytest.mark.parametrize("command", ["ls", "stats", "purge", "migrate", "doctor"])
def test_unreachable_store_is_a_sentence(kind: str, command: str) -> None:
    """Where nobody listens every command ends with code 4 and a sentence without the password."""
    ran = oncekey(command, "--store", kind.format(free_port()), "--store-for", "2")
    assert ran.code == 4, ran
    assert "hunter22" not in ran.out + ran.err
    assert "Traceback" not in ran.err
    assert len(ran.err.splitlines()) == (0 if command == "doctor" else 1)


@pytest.mark.parametrize("words", [["ls", "--json"], ["ls"], ["doctor"]])
def test_broken_pipe_is_quiet(sqlite_url: str, words: list[str]) -> None:
    """A reader who has seen enough ends the command without a word."""
    store = open_store(sqlite_url)
    fill(store)
    store.close()
    reader, writer = os.pipe()
    os.close(reader)
    ran = subprocess.run(
        [ONCEKEY, *words, "--store", sqlite_url],
        stdout=writer,
        stderr=subprocess.PIPE,
        timeout=60,
        env=environment(),
        check=False,
    )
    os.close(writer)
    assert (ran.returncode, ran.stderr) == (141, b"")


def test_stop_signal_ends_a_purge_between_batches(sqlite_url: str) -> None:
    """SIGTERM lets the batch at hand end, and what was deleted until then is reported."""
    store = open_store(sqlite_url)
    for number in range(5):
        complete(store, f"k{number}", keep_for=1)
    store.close()
    script = (
        "import os, signal\n"
        "from oncekey import operations\n"
        "whole = operations.purge\n"
        "def purge(store, **options):\n"
        "    kill = lambda deleted: deleted == 2 and os.kill(os.getpid(), signal.SIGTERM)\n"
        "    return whole(store, **options | {'batch': 2, 'progress': kill})\n"
        "operations.purge = purge\n"
    )
    ran = scripted(script, "purge", "--json", "--store", sqlite_url)
    assert ran.returncode == 130, ran.stderr
    told = json.loads(ran.stdout)
    assert (told["deleted"], told["finished"], told["stopped"]) == (2, False, True)


def test_interrupt_at_any_other_time_is_a_word(sqlite_url: str) -> None:
    """Ctrl-C while a command waits ends it with one word and code 130."""
    oncekey("migrate", "--store", sqlite_url)
    script = (
        "import signal, sys\n"
        "class Waiting:\n"
        "    def readline(self): signal.raise_signal(signal.SIGINT)\n"
        "sys.stdin = Waiting()\n"
    )
    ran = scripted(script, "show", "--key", "k", "--caller", "-", "--store", sqlite_url)
    assert (ran.returncode, ran.stdout, ran.stderr) == (130, "", "oncekey: interrupted\n")


def test_warnings_of_ours_are_remarks(sqlite_url: str) -> None:
    """What a store logs while it works is said once, in the form that was asked for; drivers' noise is not."""
    oncekey("migrate", "--store", sqlite_url)
    script = (
        "import logging\n"
        "from oncekey import operations\n"
        "def stats(store):\n"
        "    logging.getLogger('oncekey.stores').warning('one record is left out')\n"
        "    logging.getLogger('driver.pool').warning('noise')\n"
        "    return {}\n"
        "operations.stats = stats\n"
    )
    assert scripted(script, "stats", "--store", sqlite_url).stderr == "oncekey: warning: one record is left out\n"
    machine = scripted(script, "stats", "--json", "--store", sqlite_url).stderr
    assert json.loads(machine) == {"warning": {"message": "one record is left out"}}


def test_json_needs_no_rich(sqlite_url: str) -> None:
    """Without rich, tables are answered with the command that installs it, and JSON works."""
    oncekey("migrate", "--store", sqlite_url)
    script = "import sys\nsys.modules['rich'] = None\n"
    plain = scripted(script, "stats", "--store", sqlite_url)
    assert (plain.returncode, "pip install 'oncekey[cli]', or add --json" in plain.stderr) == (2, True)
    assert "no store was named" in scripted(script, "stats").stderr  # what is wrong with either comes first
    assert scripted(script, "stats", "--json", "--store", sqlite_url).returncode == 0
