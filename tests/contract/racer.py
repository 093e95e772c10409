"""One process of a race: many duplicates of one request at once, and a ledger that counts what was really done."""

from __future__ import annotations

import os
import secrets
import threading
import time
from collections import Counter
from collections.abc import Callable
from threading import Barrier
from typing import NamedTuple

from oncekey.core.commands import Claim, Done
from oncekey.core.decision import Decision, Execute, Replay
from oncekey.core.flows import Terms, enter
from oncekey.core.record import State
from oncekey.stores.contract import Store
from oncekey.stores.open import open_store
from oncekey.testing.bench import HOUR, Exactly, a_settlement, drive

TERMS = Terms(keep_for=HOUR, reconcile_after_for=HOUR)
FIRST, SECOND = b"the first answer", b"the second answer"
PATIENCE = 60.0


class Race(NamedTuple):
    """What one process is told to do. With `past` it keeps asking until that answer has expired."""

    url: str
    id: bytes
    ledger: str
    duplicates: int
    past: bytes = b""


class Tale(NamedTuple):
    """What one process saw: how many of each decision, and the answers that were replayed."""

    decisions: Counter[str]
    answers: set[bytes]


STARTING: list[Barrier] = []


def get_ready(barrier: Barrier) -> None:
    """Called once in each process."""
    STARTING.append(barrier)


def run(race: Race) -> Tale:
    """Join the race in this process, when all others are there."""
    store = open_store(race.url, store_for=PATIENCE)
    try:
        store.get(race.id)  # the connection is made before the start
        STARTING[0].wait(PATIENCE)
        return attack(store, race)
    finally:
        store.close()


def attack(store: Store, race: Race) -> Tale:
    """All duplicates at once, one thread each."""
    barrier = threading.Barrier(race.duplicates)
    found: list[Decision | BaseException] = []

    def one() -> None:
        try:
            barrier.wait(PATIENCE)
            found.append(ask(store, race))
        except BaseException as trouble:
            found.append(trouble)

    threads = [threading.Thread(target=one) for _ in range(race.duplicates)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for trouble in found:
        if isinstance(trouble, BaseException):
            raise trouble
    answers = {one.record.outcome for one in found if isinstance(one, Replay)}
    return Tale(Counter(type(one).__name__ for one in found), answers)


def ask(store: Store, race: Race) -> Decision:
    """One duplicate, as a server would treat it: whoever may execute does the effect and completes."""
    claim = Claim(race.id, secrets.token_bytes(16), b"the same request", HOUR)
    deadline = time.monotonic() + PATIENCE
    decision = drive(store, enter(claim, Exactly(claim.fingerprint), TERMS))
    while isinstance(decision, Replay) and decision.record.outcome == race.past and time.monotonic() < deadline:
        decision = drive(store, enter(claim, Exactly(claim.fingerprint), TERMS))
    if isinstance(decision, Execute):
        append(race.ledger, claim.token)
        written = store.settle([a_settlement(claim, State.COMPLETED, outcome=SECOND if race.past else FIRST)])[0]
        assert isinstance(written, Done)
    return decision


def append(ledger: str, token: bytes) -> None:
    """The effect: a line in a file that no store knows of."""
    handle = os.open(ledger, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    try:
        os.write(handle, token.hex().encode() + b"\n")
    finally:
        os.close(handle)


Runner = Callable[[Race], list[Tale]]
