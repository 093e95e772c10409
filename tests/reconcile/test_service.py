"""`oncekey reconcile` as real processes: they share a queue, end on SIGTERM, and say in a sentence what is wrong."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import pytest

from oncekey.cli.app import main
from oncekey.core.record import State
from oncekey.stores.contract import Store
from oncekey.stores.open import open_store
from tests.cli.running import ONCEKEY, environment
from tests.infra import RedisServer
from tests.reconcile.kit import many_unknown, unknown

HERE = Path(__file__).parent


def surroundings(url: str, folder: Path) -> dict[str, str]:
    """The environment of the service."""
    return environment(BANK_STORE=url, BANK_FILE=str(folder / "asked"), PYTHONPATH=str(HERE))


@contextmanager
def serving(url: str, folder: Path, app: str = "bank:once") -> Iterator[subprocess.Popen[str]]:
    """The service, until the block ends."""
    words = [ONCEKEY, "reconcile", "--app", app, "--json"]
    with subprocess.Popen(
        words,
        env=surroundings(url, folder),
        cwd=HERE,
        text=True,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    ) as child:
        try:
            yield child
        finally:
            child.kill()


def asked(folder: Path) -> Counter[str]:
    """How often each was asked about."""
    return Counter((folder / "asked").read_text().split())


def left(store: Store) -> int:
    """How many are still unknown."""
    return len(store.scan((State.UNKNOWN,), limit=10_000).records)


def test_processes_share_the_queue(redis_server: RedisServer, redis_url: str, tmp_path: Path) -> None:
    """Three processes settle two thousand unknown outcomes, and ask about each of them once."""
    with closing(open_store(redis_url)) as store:
        ids = {id_.hex() for id_ in many_unknown(store, 2000)}
        words = [ONCEKEY, "reconcile", "--app", "bank:once", "--once", "--json"]
        around = surroundings(redis_url, tmp_path)
        children = [subprocess.Popen(words, env=around, cwd=HERE, text=True, stdout=subprocess.PIPE) for _ in range(3)]
        reports = [json.loads(child.communicate(timeout=60)[0]) for child in children]
        assert [child.returncode for child in children] == [0, 0, 0]
        assert left(store) == 0
    assert asked(tmp_path) == dict.fromkeys(ids, 1)
    assert sum(report["landed"] for report in reports) == 2000


@pytest.mark.parametrize("app", ["bank:once", "bank:awaiting"])
def test_a_service_ends_on_sigterm(tmp_path: Path, app: str) -> None:
    """It settles what comes, prints a line for each round in which something happened, and ends well when told to."""
    url = f"sqlite:///{tmp_path}/once.db"
    with closing(open_store(url)) as store:
        unknown(store)
        with serving(url, tmp_path, app) as child:
            assert child.stdout is not None
            assert json.loads(child.stdout.readline())["landed"] == 1
            unknown(store)
            assert json.loads(child.stdout.readline())["landed"] == 1
            child.send_signal(signal.SIGTERM)
            out, err = child.communicate(timeout=20)
            assert (child.returncode, out, err) == (0, "", "")
        assert left(store) == 0


@pytest.mark.parametrize(
    ("app", "hint"),
    [
        ("bank", "module:name"),
        ("nowhere:once", "there is no module nowhere here"),
        ("bank:twice", "has no attribute 'twice'"),
        ("bank:look", "is a function"),
        ("bank:empty", "has no resolver"),
    ],
)
def test_what_is_no_application_is_a_sentence(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], app: str, hint: str
) -> None:
    """A wrong --app ends with code 2 and says what to write."""
    monkeypatch.chdir(HERE)
    monkeypatch.setattr(sys, "path", list(sys.path))
    monkeypatch.setenv("BANK_STORE", "memory://")
    code = main(["reconcile", "--app", app, "--once"])
    said = capsys.readouterr()
    assert (code, said.out) == (2, "")
    assert hint in said.err
