"""The order service under `kill -9`: `python -m tests.examples.storm --orders 1000 --kills 200`.

A customer orders, and whatever dies is started again. Each process is killed at named steps, in turn, and the last word
is with the tables: as many orders as were wanted, as many messages, as many shipments, one for each.
"""

from __future__ import annotations

import argparse
import contextlib
import multiprocessing
import os
import random
import signal
import sqlite3
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from multiprocessing.connection import wait
from pathlib import Path
from typing import Any, NamedTuple

import psycopg

from examples.orders import tables
from tests.examples.roles import begin
from tests.examples.steps import STEPS
from tests.infra import PostgresServer, RabbitServer
from tests.infra.process import free_port

ROLES = ("customer", "shop", "relay", "warehouse")
# A step is died at when it is reached for the first time, or a few times later.
LATEST = {"customer": 3, "shop": 4, "relay": 2, "warehouse": 4}
CHUNKS = 50
PATIENCE = 600.0
SPAWN = multiprocessing.get_context("forkserver")

COUNTS = """SELECT (SELECT count(*) FROM orders), (SELECT count(DISTINCT item) FROM orders),
    (SELECT count(*) FROM oncekey_outbox WHERE sent_at IS NOT NULL),
    (SELECT count(*) FROM oncekey_outbox WHERE sent_at IS NULL),
    (SELECT count(*) FROM shipments), (SELECT count(DISTINCT order_number) FROM shipments)"""


class Tally(NamedTuple):
    """What the tables say."""

    orders: int
    wanted: int
    messages: int
    unsent: int
    shipments: int
    shipped: int

    def whole(self, count: int) -> bool:
        """Whether there is one of each for each thing that was wanted."""
        return self == (count, count, count, 0, count, count)

    def over(self, count: int) -> bool:
        """Whether nothing more is to be waited for: it is whole, or there is too much of something."""
        return self.whole(count) or max(self.orders, self.messages, self.shipments) > count


class Service:
    """One of the processes: killed as planned, and started again each time."""

    def __init__(self, role: str, plan: list[str], chance: random.Random, words: tuple[Any, ...]) -> None:
        self.role = role
        self.plan = plan
        self.killed: list[str] = []
        self._chance = chance
        self._words = words
        self._fuse: tuple[str, int] | tuple[None, int] = (None, 0)
        self._count = 0
        self.process: Any = None

    def start(self, count: int = 0) -> None:
        """Start it, with the next of its kills ahead; a customer goes on until there are so many orders."""
        self._count = count
        if self._fuse[0] is None and self.plan:
            self._fuse = self.plan.pop(), self._chance.randint(1, LATEST[self.role])
        self.process = SPAWN.Process(target=begin, args=(self.role, *self._fuse, *self._words, count), daemon=True)
        self.process.start()

    def ended(self) -> bool:
        """Whether it came to its own end; one that was killed runs again."""
        if self.process.exitcode is None:
            return False
        if self.process.exitcode != -signal.SIGKILL or self._fuse[0] is None:
            assert self.process.exitcode == 0, f"{self.role} ended with {self.process.exitcode}"
            return True
        self.killed.append(self._fuse[0])
        self._fuse = (None, 0)
        self.start(self._count)
        return False

    def end(self) -> None:
        """Let it go, however it is."""
        self.process.kill()
        self.process.join()


def planned(kills: int, role: str, chance: random.Random) -> list[str]:
    """This role's share of the kills: every step in turn, in no order."""
    mine = [str(STEPS[number % len(STEPS)]) for number in range(kills) if STEPS[number % len(STEPS)].role == role]
    chance.shuffle(mine)
    return mine


def storm(orders: int, kills: int, seed: int, journal: Path) -> tuple[Tally, Counter[str]]:
    """Run it to its end."""
    tables.make(os.environ["DATABASE"], os.environ["BROKER"])
    SPAWN.set_forkserver_preload(["tests.examples.roles"])
    chance, words = random.Random(seed), (free_port(), str(journal))
    customer, *others = services = [Service(role, planned(kills, role, chance), chance, words) for role in ROLES]
    try:
        for one in others:
            one.start()
        tally = _orders(customer, others, orders)
    finally:
        for one in services:
            one.end()
    return tally, Counter(name for one in services for name in one.killed)


def _orders(customer: Service, others: list[Service], orders: int) -> Tally:
    """Order some, wait until they are shipped, order more: so the kills are spread over all of them."""
    deadline = time.monotonic() + PATIENCE
    with psycopg.connect(os.environ["DATABASE"], autocommit=True) as connection:
        for count in [*range(0, orders, max(5, orders // CHUNKS)), orders][1:]:
            customer.start(count)
            done = False
            while not (done and _tally(connection).over(count)):
                assert time.monotonic() < deadline, f"{_tally(connection)} after {PATIENCE:g} s"
                wait([one.process.sentinel for one in (*others, customer)][: 3 if done else 4], 0.02)
                for one in others:
                    assert not one.ended(), f"{one.role} has ended by itself"
                done = done or customer.ended()
        return _tally(connection)


def _tally(connection: psycopg.Connection[Any]) -> Tally:
    return Tally(*connection.execute(COUNTS.encode()).fetchone() or ())


@contextlib.contextmanager
def servers(database: str, broker: str) -> Iterator[None]:
    """Those that were named, or throw-away ones of our own."""
    with contextlib.ExitStack() as stack:
        os.environ["DATABASE"] = database or stack.enter_context(PostgresServer()).url
        os.environ["BROKER"] = broker or stack.enter_context(RabbitServer()).url
        yield


def say(line: str) -> None:
    """Tell whoever looks on."""
    sys.stdout.write(f"{line}\n")


def main(words: list[str]) -> int:
    """Run it, say what came of it, and whether that is as it must be."""
    parser = argparse.ArgumentParser("tests.examples.storm", description=__doc__)
    parser.add_argument("--orders", type=int, default=1000)
    parser.add_argument("--kills", type=int, default=200)
    parser.add_argument("--seed", type=int, default=17)
    parser.add_argument("--database", default="", help="its tables are made in here; without it, a server is started")
    parser.add_argument("--broker", default="")
    given = parser.parse_args(words)
    began = time.monotonic()
    with servers(given.database, given.broker), tempfile.TemporaryDirectory(prefix="oncekey-storm-") as folder:
        tally, killed = storm(given.orders, given.kills, given.seed, Path(folder) / "journal")
        answered = _answered(Path(folder) / "journal")
    for name, times in sorted(killed.items()):
        say(f"{times:5} kills  {name}")
    say(f"{killed.total()} kills in {time.monotonic() - began:.0f} s, {len(killed)} steps")
    say(f"{tally.orders} orders, {tally.messages} messages, {tally.shipments} shipments, {answered} answers")
    whole = tally.whole(given.orders) and answered == given.orders
    say("one of each" if whole else f"WRONG: {tally}")
    return 0 if whole and killed.total() == given.kills else 1


def _answered(path: Path) -> int:
    """How many intents of the customer have their answer, the numbers of orders all different."""
    with contextlib.closing(sqlite3.connect(path)) as journal:
        rows = journal.execute("SELECT answer FROM intents WHERE state = 'done' AND status = 201").fetchall()
    return len({row[0] for row in rows})


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
