"""An application of Celery as a user would write it; a worker in a process of its own is told by its environment."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path
from typing import Any

from celery import Celery

from oncekey.effects.brokers.consumers.celery import CeleryTasks
from oncekey.effects.brokers.consumers.celery_start import Guard
from oncekey.effects.inbox import Inbox, Patience
from tests.effects.inbox.places import Place, sqlite_place

PATIENCE = Patience(attempts=2, first_for=0.05)


def die() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


class Depot:
    """The application, its place, and what its one task is to do besides shipping."""

    def __init__(self, broker: str, queue: str, place: Place, **chosen: Any) -> None:
        self.place = place
        settled: dict[str, Any] = {"redelivery_for": 7200, "patience": PATIENCE}
        self.inbox = Inbox(place.connect, **settled | chosen)
        self.inbox.migrate()
        self.app = Celery("depot", broker=broker, set_as_current=False)
        self.app.conf.update(
            task_default_queue=queue,
            broker_connection_retry_on_startup=True,
            worker_hijack_root_logger=False,
            broker_transport_options={"visibility_timeout": 1} if broker.startswith("redis") else {},
            worker_cancel_long_running_tasks_on_connection_loss=True,
        )
        self.tasks = CeleryTasks(self.app, self.inbox)
        self.failing: dict[str, Exception] = {}
        self.seen: list[str] = []
        self.ship = self.tasks.once("depot", name="depot.ship", ignore_result=True)(self._ship)

    def _ship(self, connection: Any, number: str, then: str = "") -> str:
        self.place.ship(connection, number)
        self.seen.append(number)
        if number in self.failing:
            raise self.failing[number]
        if then == "die":
            die()
        if then == "sleep":
            time.sleep(30)
        if then == "closed":
            connection.execute("SELECT 1 FROM opened")
        return number


def acknowledged_late() -> None:
    """Let the process die where a message would be acknowledged: the commit is before that."""
    from celery.worker.request import Request

    Request.acknowledge = lambda self: die()


def worked(broker: str, queue: str, file: str, mode: str) -> Celery:
    """The application of a worker's own process."""
    depot = Depot(broker, queue, sqlite_place(Path(file)), **{"redelivery_for": 60} if mode == "short" else {})
    if mode == "short":
        depot.app.conf.broker_transport_options = {}
    if mode == "ack":
        acknowledged_late()
    if mode == "tidy":
        Guard.tidy_every = 0.1
    return depot.app


if "DEPOT_BROKER" in os.environ:
    app = worked(*(os.environ[f"DEPOT_{name}"] for name in ("BROKER", "QUEUE", "FILE", "MODE")))
