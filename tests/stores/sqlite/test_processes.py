"""Several processes on one file: one winner each, no lost claim, no `database is locked`."""

from __future__ import annotations

import json
import os
import signal
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from oncekey.core.commands import Won
from oncekey.core.record import Seen
from oncekey.stores.planned import PlannedStore
from oncekey.stores.sqlite import open_sync
from oncekey.stores.sqlite.listen import Hub
from tests.stores.sqlite.children import fork, in_child, new_process
from tests.stores.sqlite.items import claim, completed, id_of

CONTEND = """
import json, os, sys
from oncekey.core.commands import Claim, Won
from oncekey.stores.open import open_store
store = open_store("sqlite:///" + sys.argv[1], store_for=30)
sys.stdin.readline()
won = []
for turn in range(150):
    many = [Claim(b"key %d %d" % (turn, n), os.urandom(16), b"f", 30_000) for n in range(8)]
    won += [c.id.decode() for c, answer in zip(many, store.claim(many)) if isinstance(answer, Won)]
store.close()
print(json.dumps(won))
"""

CLAIM_FOR_EVER = """
import itertools, os, sys
from oncekey.core.commands import Claim
from oncekey.stores.open import open_store
store = open_store("sqlite:///" + sys.argv[1])
for n in itertools.count():
    store.claim([Claim(b"key %d" % n, os.urandom(16), b"f", 30_000)])
    print(n, flush=True)
"""

SETTLE_ON_DEMAND = """
import sys
from oncekey.core.commands import Settlement
from oncekey.core.record import State
from oncekey.stores.open import open_store
store = open_store("sqlite:///" + sys.argv[1])
id_, token = (bytes.fromhex(part) for part in sys.stdin.readline().split())
store.settle([Settlement(id_, token, State.COMPLETED, b"answer", 60_000)])
store.close()
"""


def test_eight_processes_make_one_winner_each(path: Path) -> None:
    """Eight processes start on a file that does not exist yet and claim the same keys: each key is won once."""
    children = [new_process(CONTEND, path) for _ in range(8)]
    for child in children:
        assert child.stdin is not None
        child.stdin.write("go\n")
        child.stdin.flush()
    won = [key for child in children for key in json.loads(child.communicate(timeout=100)[0])]
    assert {child.returncode for child in children} == {0}
    assert len(won) == len(set(won)) == 1200


def test_killed_process_loses_no_acknowledged_claim(path: Path, store: PlannedStore) -> None:
    """Whatever was acknowledged before a kill -9 stands, and the file needs no repair."""
    child = new_process(CLAIM_FOR_EVER, path)
    assert child.stdout is not None
    acknowledged = [next(child.stdout) for _ in range(200)]
    child.send_signal(signal.SIGKILL)
    acknowledged += list(child.stdout)
    child.communicate()
    found = store.claim([claim("x")._replace(id=b"key %d" % int(line)) for line in acknowledged])
    assert all(isinstance(answer, Seen) for answer in found)


def test_other_process_wakes_a_listener(path: Path, store: PlannedStore) -> None:
    """A record that another process settles is told to who waits for it here."""
    held, told = claim("a"), threading.Event()
    store.claim([held])
    listener = store.listen(lambda id_: told.set() if id_ == held.id else None)
    assert store.watch(held.id) is not None
    child = new_process(SETTLE_ON_DEMAND, path)
    child.communicate(f"{held.id.hex()} {held.token.hex()}\n", timeout=60)
    assert told.wait(30)
    listener.close()


def test_the_first_waiters_after_a_fork_are_all_told(path: Path) -> None:
    """Several threads meet a forked hub: it begins anew once, and none of their records is dropped."""
    hub, begun, start = Hub(str(path), 5.0), [], threading.Barrier(8)
    begin = hub._begin_anew
    listening = hub.listen(lambda id_: None)

    def slowly() -> None:
        begun.append(threading.get_ident())
        threading.Event().wait(0.05)
        begin()

    def watch(number: int) -> None:
        start.wait(5)
        hub.watch(bytes([number]) * 20, on=True)

    hub._begin_anew, hub._start, hub._pid = slowly, lambda: None, -1  # type: ignore[method-assign]
    hub._thread = None  # nobody looks
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(watch, range(8)))
    waited = len(hub._waited)
    listening.close()
    assert (len(begun), waited) == (1, 8)


def test_fork_closes_and_reopens(store: PlannedStore) -> None:
    """Parent and child both go on after a fork, and each sees what the other wrote."""
    store.claim([claim("before")])

    def child() -> str:
        found = store.claim([claim("before", "child"), claim("child")])
        store.close()
        return " ".join(type(answer).__name__ for answer in found)

    assert in_child(child) == "Seen Won"
    assert isinstance(store.claim([claim("child", "parent")])[0], Seen)


def test_child_survives_its_parents_close(store: PlannedStore, other: PlannedStore) -> None:
    """What a forked child commits after its parent closed the file is not lost with the parent's log."""
    store.claim([claim("before")])
    reading, writing = os.pipe()
    pid = fork()
    if pid == 0:
        store.claim([claim("while open")])
        os.read(reading, 1)
        os._exit(0 if store.claim([claim("after close")]) == [Won(30_000)] else 1)
    while other.get(id_of("while open")) is None:
        pass
    other.close()
    store.close()
    os.write(writing, b"x")
    assert os.waitpid(pid, 0)[1] == 0
    again = open_sync(store.url, store_for=5.0)
    assert again.get(id_of("after close")) is not None
    again.close()


def test_listener_works_in_a_forked_child(store: PlannedStore, path: Path) -> None:
    """A child has no thread of its parent's: it starts its own when somebody waits."""
    held, told = claim("a"), threading.Event()
    store.claim([held])
    listener = store.listen(lambda id_: told.set())

    def child() -> str:
        store.watch(held.id)
        settling = new_process(SETTLE_ON_DEMAND, path)
        settling.communicate(f"{held.id.hex()} {held.token.hex()}\n", timeout=60)
        return str(told.wait(30))

    assert in_child(child) == "True"
    listener.close()


def test_settled_here_is_told_here(store: PlannedStore) -> None:
    """A listener of the same store is told before settle returns, and a record nobody waits for is not told."""
    told: list[bytes] = []
    listener = store.listen(told.append)
    waited, alone = claim("waited"), claim("alone")
    store.claim([waited, alone])
    store.watch(waited.id)
    store.settle([completed(waited), completed(alone)])
    listener.close()
    assert told[0] == waited.id
    assert alone.id not in told
