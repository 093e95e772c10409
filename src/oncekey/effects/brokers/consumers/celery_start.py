"""How a worker of Celery begins: it compares the inbox with the broker, or does not begin."""

from __future__ import annotations

import functools
import os
from typing import TYPE_CHECKING, Any, ClassVar, Final

from celery import Celery, bootsteps

from oncekey.effects.brokers.consumers.life import TIDY_EVERY
from oncekey.effects.inbox.rules import reason_of
from oncekey.engine.events import log
from oncekey.errors import ConfigurationError, OnceKeyError

if TYPE_CHECKING:
    from oncekey.effects.brokers.consumers.celery import CeleryTasks

# After so long without an acknowledgement a message is given to another worker, unless visibility_timeout says so.
VISIBLE_AFTER: Final = {"redis": 3600.0, "sqs": 1800.0}
# RabbitMQ closes the channel of a worker that holds a message for longer (consumer_timeout).
HELD_MOST: Final = 1800.0
# A message that waits for its next attempt is held by a worker: half of that time at most.
SHARE: Final = 2


class Guard(bootsteps.StartStopStep):  # type: ignore[misc]  # Celery has no types
    """A step of the worker's start, after its pool and before it asks for messages."""

    requires = ("celery.worker.components:Timer", "celery.worker.components:Pool")
    tasks: ClassVar[CeleryTasks]
    tidy_every = TIDY_EVERY

    def __init__(self, parent: Any, **options: Any) -> None:
        super().__init__(parent, **options)
        self._timer: Any = None
        self._tidying = False

    def start(self, parent: Any) -> None:
        """Look, and refuse to begin; from then on tidy now and then."""
        try:
            check(self.tasks)
        except OnceKeyError as error:
            log.critical("the worker does not begin: %s", error)
            raise SystemExit(os.EX_CONFIG) from error
        self._timer = parent.timer.call_repeatedly(self.tidy_every, self._tidy, (parent,))

    def stop(self, parent: Any) -> None:
        if self._timer is not None:
            self._timer.cancel()

    def _tidy(self, parent: Any) -> None:
        """In the pool, where tasks have their connections; as one of those that it may have at a time."""
        from oncekey.effects.brokers.consumers.celery import run_requeued  # noqa: PLC0415 - it makes us

        if self._tidying:
            return
        self._tidying = True
        told = {"callback": self._tidied, "error_callback": self._tidied}
        send = functools.partial(parent.pool.apply_async, run_requeued, (list(self.tasks.handlers),), **told)
        if parent.semaphore is not None and parent.pool.uses_semaphore:
            parent.semaphore.acquire(send)
        else:
            send()

    def _tidied(self, result: Any) -> None:
        self._tidying = False


def check(tasks: CeleryTasks) -> None:
    """Refuse what would lose messages, or run them twice. A database that is away is waited for by the tasks."""
    _check_options(tasks)
    _check_window(tasks)
    try:
        tasks.inbox.check()
    except OnceKeyError:
        raise
    except Exception as error:  # noqa: BLE001 - as above
        log.warning("the inbox cannot be looked at now: %s", reason_of(error))


def _check_options(tasks: CeleryTasks) -> None:
    """What task_annotations, or a base class, has made of the tasks."""
    for name in tasks.handlers:
        task = tasks.app.tasks[name]
        wrong = [option for option in ("acks_late", "reject_on_worker_lost") if not getattr(task, option)]
        wrong += ["acks_on_timeout"] if getattr(task, "acks_on_timeout", False) else []
        wrong += ["max_retries"] if task.max_retries is not None else []
        wrong += ["autoretry_for"] if getattr(task, "autoretry_for", ()) else []
        if wrong:
            raise ConfigurationError(
                f"{name} must keep its own {', '.join(wrong)}, or messages are lost: take it out of task_annotations, "
                f"or of the app's task class"
            )


def _check_window(tasks: CeleryTasks) -> None:
    app, choices = tasks.app, tasks.inbox.choices
    visible = visible_after(app)
    said = choices.window.redelivery_for
    if visible is not None:
        broker = "the broker (visibility_timeout)"
        choices.window.check(visible, broker)
        if said is not None and said < visible:
            raise ConfigurationError(
                f"redelivery_for={said:g} is shorter than visibility_timeout={visible:g}, after which a message of a "
                f"worker that died comes again: write redelivery_for={visible:g} or more"
            )
        _compare_limits(tasks, visible)
    choices.compare(_kept_for(app), "the broker of Celery")


def _compare_limits(tasks: CeleryTasks, visible: float) -> None:
    for name in tasks.handlers:
        limit = tasks.app.tasks[name].time_limit or tasks.app.conf.task_time_limit
        if limit is not None and limit > visible:
            log.warning(
                "%s may take %g s, and after visibility_timeout=%g it is given to another worker, which puts it back "
                "until the first one is done: set visibility_timeout above the time limit",
                *(name, limit, visible),
            )


def _kept_for(app: Celery) -> float | None:
    """For how long the queues of this worker keep messages; None: for ever."""
    longest = 0.0
    for queue in app.amqp.queues.consume_from.values():
        arguments = queue.queue_arguments or {}
        seconds = queue.message_ttl or arguments.get("x-message-ttl", 0) / 1000
        if not seconds or _driver(app) != "amqp":
            return None
        longest = max(longest, seconds)
    # A message does not grow old while a worker holds it.
    return longest + HELD_MOST if longest else None


def visible_after(app: Celery) -> float | None:
    """After how long without an acknowledgement the broker gives a message to another worker; None: it does not."""
    usual = VISIBLE_AFTER.get(_driver(app))
    return None if usual is None else float(app.conf.broker_transport_options.get("visibility_timeout", usual))


def longest_wait_for(app: Celery) -> float:
    """How long a message may wait in a worker for its next attempt."""
    return (visible_after(app) or HELD_MOST) / SHARE


def _driver(app: Celery) -> str:
    with app.connection_for_read() as connection:
        return str(connection.get_transport_cls().driver_type)
