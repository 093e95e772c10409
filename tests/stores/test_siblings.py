from __future__ import annotations

import multiprocessing
from multiprocessing.connection import Connection

import pytest

from oncekey import ConfigurationError
from oncekey.stores.memory import MemoryStore
from oncekey.stores.open import open_store


def _worker(url: str, end: Connection) -> None:
    end.send([finding.level for finding in open_store(url).check()])
    end.recv()  # stay until the other has looked, too


@pytest.mark.parametrize(("url", "second"), [("memory://", "refusal"), ("memory://?workers=separate", "warning")])
def test_memory_refuses_a_second_worker_unless_told(url: str, second: str) -> None:
    """Two workers of one server would each run the same key; the second one does not start."""
    spawn, seen, ends = multiprocessing.get_context("spawn"), [], []
    for _ in range(2):
        ours, theirs = spawn.Pipe()
        worker = spawn.Process(target=_worker, args=(url, theirs))
        worker.start()
        seen += ours.recv()
        ends.append((worker, ours))
    for worker, ours in ends:
        ours.send("go")
        worker.join(20)
    assert seen == ["warning", second]


def test_outside_of_a_server_memory_only_warns() -> None:
    """A single process may use it, and is told what it means."""
    assert [finding.level for finding in MemoryStore().check()] == ["warning"]


def test_a_wrong_memory_address_is_refused() -> None:
    """Options that are not known are not ignored."""
    with pytest.raises(ConfigurationError, match="memory://"):
        open_store("memory://?workers=4")
