"""Starts the order service on throw-away servers, kills its processes at random, and counts: `make example`."""

from __future__ import annotations

import argparse
import os
import random
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psycopg

from examples.orders import customer, tables
from tests.infra import EngineMissing, PostgresServer, RabbitServer
from tests.infra.process import free_port

COMMANDS = {
    "shop": [sys.executable, "-m", "examples.orders.shop"],
    "relay": [sys.executable, "-m", "oncekey", "relay", "--lease-for", "2"],
    "warehouse": [sys.executable, "-m", "examples.orders.warehouse"],
}
COUNT = """SELECT (SELECT count(*) FROM orders), (SELECT count(*) FROM oncekey_outbox WHERE sent_at IS NOT NULL),
    (SELECT count(*) FROM shipments)"""


class Services:
    """The processes; whatever dies is started again."""

    def __init__(self) -> None:
        self.running = {name: self._started(name) for name in COMMANDS}

    def _started(self, name: str) -> subprocess.Popen[bytes]:
        return subprocess.Popen(COMMANDS[name], stdout=subprocess.DEVNULL)

    def kill(self, name: str) -> None:
        """Kill it like a crash does, and start it again."""
        process = self.running[name]
        print(f"kill -9 {process.pid:<8} the {name}", flush=True)
        process.kill()
        process.wait()
        self.running[name] = self._started(name)

    def stop(self) -> None:
        """Let them finish what they have begun."""
        for process in self.running.values():
            process.terminate()
        for process in self.running.values():
            process.wait(30)


def play(orders: int, kills: int) -> tuple[int, ...]:
    """Order, kill meanwhile, wait until everything is shipped, count."""
    services, numbers = Services(), list[int]()
    url, chance = f"http://127.0.0.1:{os.environ['PORT']}", random.Random()
    try:
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "orders.journal"
            ordering = threading.Thread(target=lambda: numbers.extend(customer.order(url, path, orders)))
            ordering.start()
            for _ in range(kills):
                time.sleep(chance.uniform(0.5, 1.5))
                services.kill(chance.choice(list(COMMANDS)))
            ordering.join()
        print(f"the customer was told: orders {', '.join(map(str, numbers))}", flush=True)
        return _shipped(orders)
    finally:
        services.stop()


def _shipped(orders: int) -> tuple[int, ...]:
    """What the tables say when all is shipped, or after a minute."""
    counts: tuple[int, ...] = ()
    with psycopg.connect(os.environ["DATABASE"], autocommit=True) as connection:
        for _ in range(600):
            counts = connection.execute(COUNT.encode()).fetchone() or ()
            if counts == (orders, orders, orders):
                break
            time.sleep(0.1)
    return counts


@contextmanager
def servers() -> Iterator[tuple[str, str]]:
    """Those of the environment, whose database must be empty; or throw-away ones."""
    if "DATABASE" in os.environ and "BROKER" in os.environ:
        yield os.environ["DATABASE"], os.environ["BROKER"]
        return
    print("starting PostgreSQL and RabbitMQ", flush=True)
    with PostgresServer() as postgres, RabbitServer() as rabbit:
        yield postgres.url, rabbit.url


def main(words: list[str]) -> int:
    """Start servers and services, play, and say what the tables say."""
    parser = argparse.ArgumentParser("examples.orders.run", description=__doc__)
    parser.add_argument("--orders", type=int, default=30)
    parser.add_argument("--kills", type=int, default=12)
    given = parser.parse_args(words)
    with servers() as (database, broker):
        os.environ |= {"DATABASE": database, "ONCEKEY_STORE": database, "PORT": str(free_port())}
        os.environ |= {"BROKER": broker, "ONCEKEY_BROKER": broker}
        tables.make(database, broker)
        counts = play(given.orders, given.kills)
    print("orders {}   messages {}   shipments {}".format(*counts))
    return 0 if counts == (given.orders,) * 3 else 1


if __name__ == "__main__":
    try:
        sys.exit(main(sys.argv[1:]))
    except EngineMissing as missing:
        sys.exit(str(missing))
