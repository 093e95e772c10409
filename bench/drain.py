"""How fast several processes find out about a heap of unknown outcomes, and that none of them is asked about twice.

    python -m bench.drain sqlite:///drain.db --records 10000 --processes 3

The resolver is the receiver's ledger: one line in a file for each call, appended by whoever makes it. The store must be
empty and is left as it ends.
"""

from __future__ import annotations

import argparse
import json
import os
import secrets
import subprocess
import sys
import tempfile
import time
from contextlib import closing
from pathlib import Path
from typing import NamedTuple

from oncekey import SHARED, OnceKey
from oncekey.core.record import Label, Record, State
from oncekey.reconcile import Finding, Inquiry, Pace
from oncekey.stores.open import open_store

BATCH = 500
ENDPOINT = "POST /payments"
WAIT_FOR = 3600.0


class Drained(NamedTuple):
    """What came of it: seconds, calls of the resolver, ids that were asked about twice, and what is still unknown."""

    seconds: float
    calls: int
    doubles: int
    left: int
    by_process: list[int]


def fill(url: str, records: int) -> None:
    """Put so many unknown outcomes into the store, all of them due."""
    with closing(open_store(url, store_for=60)) as store:
        store.migrate()
        now = store.scan((State.UNKNOWN,), limit=1).now
        for start in range(0, records, BATCH):
            store.put([_unknown(number, now) for number in range(start, min(start + BATCH, records))])


def _unknown(number: int, now: int) -> Record:
    return Record(
        id=secrets.token_bytes(20),
        state=State.UNKNOWN,
        version=2,
        token=secrets.token_bytes(16),
        fingerprint=bytes(33),
        claimed_at=now,
        due_at=now - 1,
        label=Label("0" * 12, ENDPOINT, f"key-{number}"),
        note="the lease ended while it was executing",
    )


def work(url: str, ledger: str) -> int:
    """One process: ask about everything that is due, until nothing is."""
    once = OnceKey(url, scope=SHARED)
    handle = os.open(ledger, os.O_WRONLY | os.O_APPEND | os.O_CREAT)

    @once.resolver(ENDPOINT)
    def resolve(inquiry: Inquiry) -> Finding:
        os.write(handle, f"{inquiry.id.hex()}\n".encode())
        return inquiry.landed(201, {"key": inquiry.key}, seen="the ledger")

    worker = once.reconciler(Pace(answer_for=600, sweep_for=None))
    asked = 0
    while (found := worker.run_once().asked) > 0:
        asked += found
    os.close(handle)
    once.close()
    return asked


def drain(url: str, processes: int, folder: Path) -> Drained:
    """Let so many processes work on the store until nothing is due, and count in the ledger."""
    ledger = folder / "ledger"
    ledger.touch()
    command = [sys.executable, "-m", "bench.drain", url, "--work", str(ledger)]
    began = time.monotonic()
    children = [subprocess.Popen(command, stdout=subprocess.PIPE, text=True) for _ in range(processes)]
    said = [child.communicate(timeout=WAIT_FOR)[0] for child in children]
    seconds = time.monotonic() - began
    calls = ledger.read_text().split()
    with closing(open_store(url, store_for=60)) as store:
        left = int(store.stats().get("unknown", 0))
    return Drained(seconds, len(calls), len(calls) - len(set(calls)), left, [int(one or -1) for one in said])


def main() -> None:
    """Read the command line."""
    read = argparse.ArgumentParser(description="drain a heap of unknown outcomes with several processes")
    read.add_argument("url", help="an empty store")
    read.add_argument("--records", type=int, default=2_000)
    read.add_argument("--processes", type=int, default=3)
    read.add_argument("--work", metavar="LEDGER", help=argparse.SUPPRESS)
    given = read.parse_args()
    if given.work:
        print(work(given.url, given.work))
        return
    fill(given.url, given.records)
    with tempfile.TemporaryDirectory() as folder:
        found = drain(given.url, given.processes, Path(folder))
    print(json.dumps(found._asdict() | {"records": given.records, "a_second": round(given.records / found.seconds)}))
    sys.exit(0 if (found.calls, found.doubles, found.left) == (given.records, 0, 0) else 1)


if __name__ == "__main__":
    main()
