"""Tasks of Celery that run once, on real brokers, in real workers."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import aio_pika
import pytest
import redis
from celery import Celery
from celery.contrib.testing.worker import start_worker
from celery.exceptions import Reject
from kombu.entity import Queue

from oncekey.effects.brokers.consumers.celery import CeleryTasks
from oncekey.effects.brokers.consumers.celery_start import Guard, check, longest_wait_for
from oncekey.effects.inbox import AsyncInbox, Inbox, Later
from oncekey.errors import BadMessage, ConfigurationError, RedeliverLater, SchemaMissing
from tests.effects.brokers.celery_app import Depot
from tests.effects.brokers.running import PATIENCE, ROOT
from tests.effects.inbox.places import sqlite_place

BROKERS = ["rabbitmq", "redis"]
WORDS = ["--pool", "solo", "--without-gossip", "--without-mingle", "--without-heartbeat", "-l", "WARNING"]


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """Celery's loop looks at its end when a timer rings."""
    monkeypatch.setattr(Guard, "tidy_every", 0.05)


@pytest.fixture(params=BROKERS)
def broker(request: pytest.FixtureRequest) -> str:
    return str(request.getfixturevalue(f"{request.param}_server").url)


@pytest.fixture
def make(broker: str, tmp_path: Path) -> Callable[..., Depot]:
    """A depot on a queue of its own."""
    queue = f"q{uuid.uuid4().hex}"
    return lambda **chosen: Depot(broker, queue, sqlite_place(tmp_path / "depot.db"), **chosen)


def until(holds: Callable[[], Any]) -> None:
    """Wait for a condition."""
    deadline = time.monotonic() + PATIENCE
    while not holds():
        assert time.monotonic() < deadline, "it did not come true in time"
        time.sleep(0.02)


@contextmanager
def at_work(depot: Depot) -> Iterator[None]:
    """A worker in a thread of this process."""
    with start_worker(depot.app, perform_ping_check=False, loglevel="WARNING", shutdown_timeout=PATIENCE):
        yield


@contextmanager
def worker(depot: Depot, mode: str, *words: str) -> Iterator[subprocess.Popen[str]]:
    """A worker in a process of its own."""
    told = {"DEPOT_BROKER": depot.app.conf.broker_url, "DEPOT_QUEUE": depot.app.conf.task_default_queue}
    told |= {"DEPOT_FILE": str(depot.place.url), "DEPOT_MODE": mode}
    command = [sys.executable, "-m", "celery", "-A", "tests.effects.brokers.celery_app", "worker", *WORDS, *words]
    process = subprocess.Popen(
        command, cwd=ROOT, env=os.environ | told, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    )
    try:
        yield process
    finally:
        process.kill()
        process.communicate()


def ended(process: subprocess.Popen[str]) -> int:
    """Let a worker finish what it has begun, and acknowledge it."""
    process.terminate()
    return process.wait(PATIENCE)


def left(depot: Depot) -> int:
    """How many messages the broker still has."""
    name, url = depot.app.conf.task_default_queue, depot.app.conf.broker_url
    if url.startswith("redis"):
        with redis.Redis.from_url(url) as client:
            return int(client.llen(name)) + int(client.hlen("unacked"))

    async def count() -> int:
        async with await aio_pika.connect(url) as connection, await connection.channel() as channel:
            queue = await channel.declare_queue(name, passive=True)
            return queue.declaration_result.message_count or 0

    return asyncio.run(count())


def lapsed(depot: Depot) -> bool:
    """Whether what a dead worker held may be given to another one: RabbitMQ knows at once, Redis by the time."""
    if not depot.app.conf.broker_url.startswith("redis"):
        return True
    with redis.Redis.from_url(depot.app.conf.broker_url) as client:
        return bool(client.zcount("unacked_index", 0, time.time() - 1.1))


def test_each_message_has_one_effect(make: Callable[..., Depot]) -> None:
    """Tasks that are sent twice under one id run once, and nothing is left at the broker."""
    depot = make()
    for number in [*range(4), *range(4)]:
        depot.ship.apply_async((str(number),), task_id=f"order-{number}")
    with at_work(depot):
        until(lambda: len(depot.place.shipped()) == 4)
        until(lambda: not left(depot))
    assert depot.place.shipped() == ["0", "1", "2", "3"]
    assert len(depot.seen) == 4


def test_killed_between_commit_and_acknowledgement(make: Callable[..., Depot]) -> None:
    """The broker gives it to the next worker, and the inbox knows it: one effect."""
    depot = make()
    depot.ship.delay("1")
    with worker(depot, "ack") as killed:
        assert killed.wait(PATIENCE) == -signal.SIGKILL
    assert depot.place.shipped() == ["1"]
    until(lambda: lapsed(depot))
    with at_work(depot):
        until(lambda: not left(depot))
    assert (depot.place.shipped(), depot.seen) == (["1"], [])


def test_poison_is_parked_and_run_again(make: Callable[..., Depot]) -> None:
    """After its attempts it is kept with what it was called with, and an operator can have it run again."""
    depot = make()
    depot.failing = {"bad": ValueError("no such address")}
    sent = depot.ship.delay("bad")
    depot.ship.delay("1")
    with at_work(depot):
        until(lambda: depot.inbox.count().parked == 1)
        until(lambda: not left(depot))
        (found,) = depot.inbox.parked().parked
        assert (found.message_id, found.attempts, found.reason) == (sent.id, 2, "ValueError: no such address")
        assert found.body == b'[["bad"], {}]'
        depot.failing.clear()
        depot.inbox.requeue(found.id)
        until(lambda: depot.place.shipped() == ["1", "bad"])
    assert depot.inbox.count().parked == 0


def test_a_message_that_kills_its_process_is_parked(rabbitmq_server: Any, tmp_path: Path) -> None:
    """Celery's pool gives it back each time, until its attempts are used up; others are run, and tidying goes on."""
    depot = Depot(rabbitmq_server.url, f"q{uuid.uuid4().hex}", sqlite_place(tmp_path / "depot.db"))
    depot.ship.delay("killer", then="die")
    depot.ship.delay("closed", then="closed")
    with worker(depot, "tidy", "--pool", "prefork", "--concurrency", "1") as working:
        until(lambda: depot.inbox.count().parked == 2)
        depot.ship.delay("1")
        until(lambda: depot.place.shipped() == ["1"])
        reasons = {one.reason: one.id for one in depot.inbox.parked().parked}
        depot.place.change("CREATE TABLE opened (number TEXT)")
        depot.inbox.requeue(reasons.pop("OperationalError: no such table: opened"))
        until(lambda: depot.place.shipped() == ["1", "closed"])
        assert ended(working) == 0
    assert list(reasons) == ["it began and did not end: its process may have died"]
    assert left(depot) == 0


def test_a_task_that_takes_too_long_comes_again(rabbitmq_server: Any, tmp_path: Path) -> None:
    """A process that is killed for its time limit has lost nothing: it counts as an attempt, and is parked in time."""
    depot = Depot(rabbitmq_server.url, f"q{uuid.uuid4().hex}", sqlite_place(tmp_path / "depot.db"))
    depot.ship.delay("slow", then="sleep")
    with worker(depot, "", "--pool", "prefork", "--concurrency", "1", "--time-limit", "0.3") as working:
        until(lambda: depot.inbox.count().parked == 1)
        assert ended(working) == 0
    assert (depot.place.shipped(), left(depot)) == ([], 0)


def test_a_worker_that_would_lose_messages_does_not_begin(redis_server: Any, tmp_path: Path) -> None:
    """It says in one line why, and which number to write, and ends with a code of its own."""
    depot = Depot(redis_server.url, f"q{uuid.uuid4().hex}", sqlite_place(tmp_path / "depot.db"))
    with worker(depot, "short") as refused:
        said, _ = refused.communicate(timeout=PATIENCE)
    assert refused.returncode == os.EX_CONFIG
    assert "the worker does not begin: redelivery_for=60 is shorter than visibility_timeout=3600" in said
    assert "Traceback" not in said


@pytest.mark.parametrize(
    ("chosen", "options", "says"),
    [
        ({"redelivery_for": 60}, {"visibility_timeout": 90}, "write redelivery_for=90 or more"),
        ({"redelivery_for": None, "keep_for": 60}, {}, "which is longer than keep_for=60"),
        ({"redelivery_for": None}, {}, "keeps messages for ever, .*write redelivery_for="),
    ],
    ids=str,
)
def test_the_window_is_compared(chosen: Any, options: Any, says: str, tmp_path: Path) -> None:
    """With the visibility timeout, and with what the queues say of their messages."""
    depot = Depot("redis://nowhere", "q", sqlite_place(tmp_path / "depot.db"), **chosen)
    depot.app.conf.broker_transport_options = options
    with pytest.raises(ConfigurationError, match=says):
        check(depot.tasks)


def test_queues_that_say_how_long_they_keep_messages_are_believed(tmp_path: Path) -> None:
    """Then nobody need say redelivery_for=."""
    depot = Depot("amqp://nowhere", "q", sqlite_place(tmp_path / "depot.db"), redelivery_for=None, keep_for=7200)
    depot.app.conf.task_queues = [Queue("q", message_ttl=3600)]
    check(depot.tasks)
    depot.app.amqp.queues = depot.app.amqp.Queues([Queue("q", queue_arguments={"x-message-ttl": 7_200_000})])
    with pytest.raises(ConfigurationError, match="keeps messages for 9000 s"):
        check(depot.tasks)


def test_what_takes_longer_than_it_is_hidden_is_warned_of(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """And no attempt waits in a worker until its message is given to another one."""
    depot = Depot("redis://nowhere", "q", sqlite_place(tmp_path / "depot.db"))
    depot.app.conf.task_time_limit = 5
    check(depot.tasks)
    assert "depot.ship may take 5 s, and after visibility_timeout=1" in caplog.text
    assert longest_wait_for(depot.app) == 0.5
    assert longest_wait_for(Celery(broker="amqp://nowhere")) == 900


def test_settings_from_elsewhere_are_noticed(tmp_path: Path) -> None:
    """An annotation that makes Celery acknowledge early is refused, and so is an inbox without tables."""
    depot = Depot("amqp://nowhere", "q", sqlite_place(tmp_path / "depot.db"))
    depot.app.conf.task_annotations = {"*": {"acks_late": False, "max_retries": 3}}
    with pytest.raises(ConfigurationError, match=r"keep its own acks_late, max_retries.*task_annotations"):
        check(depot.tasks)
    app = Celery(broker="amqp://nowhere")
    with pytest.raises(SchemaMissing, match="migrate"):
        check(CeleryTasks(app, Inbox(sqlite_place(tmp_path / "empty.db").connect, redelivery_for=60)))


def test_an_id_of_the_order_makes_two_tasks_one(tmp_path: Path) -> None:
    """`id=` sees what the task is called with; where it fails, the message is parked and not run."""
    depot = Depot("memory://", "q", sqlite_place(tmp_path / "depot.db"))

    @depot.tasks.once("orders", id=lambda number, **rest: number, name="orders.ship")
    def ship(connection: Any, number: str, *, fast: bool = False) -> None:
        depot.place.ship(connection, number)

    assert ship.apply(("A",)).state == "SUCCESS"
    # Its result would be that of a task that did nothing.
    assert ship.apply(("A",), {"fast": True}).state == "IGNORED"
    ship.apply(("B",))
    assert depot.place.shipped() == ["A", "B"]
    parked = ship.apply(({},))
    assert isinstance(parked.result, BadMessage)
    assert depot.inbox.count().parked == 1
    assert depot.inbox.handled("orders", "A")


def test_what_fails_is_sent_again_or_given_back(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where Celery would give a message up because its retry cannot be sent, the broker gets it back."""
    depot = Depot("memory://", "q", sqlite_place(tmp_path / "depot.db"))
    asked: dict[str, Any] = {}

    def refuse(**words: Any) -> Any:
        asked.update(words)
        raise Reject("no route", requeue=False)

    monkeypatch.setattr(depot.ship, "retry", refuse)
    again = depot.tasks._again(depot.ship, Later(5000.0, "closed"))
    assert isinstance(again, Reject)
    assert again.requeue
    assert (asked["countdown"], type(asked["exc"])) == (900.0, RedeliverLater)


def test_an_inbox_that_cannot_be_used_costs_no_message(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever it raises, the task waits for it."""
    depot = Depot("memory://", "q", sqlite_place(tmp_path / "depot.db"), redelivery_for=None)
    retried: list[Any] = []

    def retry(**words: Any) -> Any:
        retried.append(words["countdown"])
        return ConnectionError("to be sent again")

    monkeypatch.setattr(depot.ship, "retry", retry)
    assert isinstance(depot.ship.apply(("1",)).result, ConnectionError)
    assert retried == [30.0]


def test_what_cannot_work_is_refused_when_it_is_made(tmp_path: Path) -> None:
    """Options that would lose messages, handlers without a connection, other colours, and calls without a message."""
    depot = Depot("memory://", "q", sqlite_place(tmp_path / "depot.db"))
    for option in ({"acks_late": False}, {"bind": True}, {"autoretry_for": (ValueError,)}, {"max_retries": 3}):
        with pytest.raises(ConfigurationError, match=f"has no {next(iter(option))}="):
            depot.tasks.once(**option)
    with pytest.raises(ConfigurationError, match="takes no connection"):
        depot.tasks.once("none")(lambda *, number: None)
    with pytest.raises(ConfigurationError, match="give it an Inbox"):
        CeleryTasks(depot.app, AsyncInbox(lambda: None, keep_for=None))  # type: ignore[arg-type,return-value]
    with pytest.raises(ConfigurationError, match=r"by _ship\.delay"):
        depot.ship("1")
    with pytest.raises(TypeError, match="unexpected keyword argument 'weight'"):
        depot.ship.delay("1", weight=1)
    assert depot.place.shipped() == []
