"""Celery: tasks that run once for each message. The worker is Celery's own, and it acknowledges after our commit.

A task's name and id are those of its message, so what is delivered again is known again. What fails is sent again under
the same id, and only then acknowledged; an id that comes twice because of it is one effect all the same.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from typing import Any, Final

from celery import Celery, current_app
from celery.exceptions import Ignore, Reject
from kombu.utils import json

from oncekey.effects.brokers.consumers.celery_start import Guard, longest_wait_for
from oncekey.effects.brokers.consumers.life import tidy
from oncekey.effects.brokers.consumers.reading import texts
from oncekey.effects.inbox import GivenUp, Handler, Inbox, Later, Message, Verdict
from oncekey.effects.inbox.rules import reason_of
from oncekey.effects.link import drive
from oncekey.engine.events import log
from oncekey.errors import BadMessage, ConfigurationError, RedeliverLater

# What a task must be like, so that a message is gone from the broker only after our commit: acknowledged late, given
# back when its process is lost or killed for taking too long, tried as often as the inbox says. One that is
# parked has failed for good: it is acknowledged, and its trace is in the inbox already.
FIXED: Final[dict[str, Any]] = {
    "acks_late": True,
    "reject_on_worker_lost": True,
    "acks_on_failure_or_timeout": False,
    "acks_on_failure": True,
    "acks_on_timeout": False,
    "max_retries": None,
    "throws": (BadMessage,),
}
# What a user may not ask for, and what to do instead.
REFUSED: Final[dict[str, str]] = dict.fromkeys(FIXED, "leave it out") | {
    "autoretry_for": "the inbox tries again, as its patience= says: leave it out",
    "bind": "the first argument is the connection",
    "base": "leave it out",
}
# The inbox itself could not be used: the message waits for it.
AWAY_FOR: Final = 30.0


class CeleryTasks:
    """Makes functions tasks of `app` that run once for each message, remembered in `inbox`.

    tasks = CeleryTasks(app, inbox)

    @tasks.once()
    def ship(connection, number): ...

    ship.delay("A-1")
    """

    def __init__(self, app: Celery, inbox: Inbox) -> None:
        if inbox.awaited:
            raise ConfigurationError("Celery runs tasks in processes and threads: give it an Inbox, not an AsyncInbox")
        self.app = app
        self.inbox = inbox
        self.handlers: dict[str, Handler] = {}
        # A worker that starts looks at us first; steps are told apart by their names.
        number = len(app.steps["worker"])
        app.steps["worker"].add(type("OnceKeyGuard", (Guard,), {"name": f"oncekey-{number}", "tasks": self}))

    def once(
        self,
        source: str = "",
        *,
        id: Callable[..., object] | None = None,  # noqa: A002 - what it is, in the reader's word
        **options: Any,
    ) -> Callable[[Callable[..., Any]], Any]:
        """Make a function a task. It is given the connection, and then what the task is called with.

        Messages are known by the task's id; `id`, given what the task is called with, finds a better one. `source`
        is the task's name, unless it says otherwise. The options are those of `app.task`.
        """
        for name in REFUSED.keys() & options.keys():
            raise ConfigurationError(f"a task that runs once has no {name}=: {REFUSED[name]}")

        def decorate(work: Callable[..., Any]) -> Any:
            name = options.get("name") or self.app.gen_task_name(work.__name__, work.__module__)
            handler = self._handler(work, source or name, id)

            def run(*args: Any, **kwargs: Any) -> Any:
                return self._run(task, handler, args, kwargs)

            functools.update_wrapper(run, work)
            run.__signature__ = _without_connection(work)  # type: ignore[attr-defined]
            task = self.app.task(**(options | FIXED | {"name": name, "shared": False, "oncekey_handler": handler}))(run)
            self.handlers[name] = handler
            return task

        return decorate

    def _handler(self, work: Callable[..., Any], source: str, id_: Callable[..., object] | None) -> Handler:
        def called(message: Message, connection: Any) -> Any:
            args, kwargs = _asked(message)
            return work(connection, *args, **kwargs)

        functools.update_wrapper(called, work)
        del called.__wrapped__  # type: ignore[attr-defined]  # it is not called like `work`
        return self.inbox.once(source, id=_named_by(id_))(called)

    def _run(self, task: Any, handler: Handler, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        if task.request.called_directly:
            raise ConfigurationError(
                f"{task.name} is a task, and a call has no message that could be known again: send it, by "
                f"{task.__name__}.delay(...), or run it here by {task.__name__}.apply((...))"
            )
        try:
            verdict = handler.deliver(message_of(task.request, handler.rules.source, args, kwargs))
        except Exception as error:  # noqa: BLE001 - whatever it is, the message must not be lost
            log.exception("the inbox of %s cannot be used", task.name)
            verdict = Later(AWAY_FOR, reason_of(error), error)
        return self._end(task, verdict)

    def _end(self, task: Any, verdict: Verdict) -> Any:
        """Tell Celery in its own words: return, or raise what lets it acknowledge, reject or send again."""
        if isinstance(verdict, GivenUp):
            raise Reject(verdict.reason, requeue=False)
        if isinstance(verdict, Later):
            raise self._again(task, verdict)
        if verdict.how == "parked":
            raise BadMessage(f"it was parked, and `requeue` runs it again: {verdict.reason}")
        if verdict.how == "duplicate":
            raise Ignore  # the result of the first one stands
        return verdict.value

    def _again(self, task: Any, verdict: Later) -> Exception:
        after = min(verdict.after, longest_wait_for(self.app))
        error = verdict.error or RedeliverLater(verdict.reason, after)
        try:
            return task.retry(exc=error, countdown=after, throw=False)  # type: ignore[no-any-return]
        except Reject as reject:
            # Celery would give the message up, because it could not send it again: the broker still has it.
            return Reject(reject.reason, requeue=True)  # type: ignore[no-any-return]


def message_of(request: Any, source: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Message:
    """The message behind a task, in our words. Its body is what a parked one is run from."""
    about = request.delivery_info or {}
    headers = texts((request.headers or {}).items()) | {"task": request.task}
    try:
        body = json.dumps([args, kwargs]).encode()  # type: ignore[no-untyped-call]
    except (TypeError, ValueError):
        body = repr([args, kwargs]).encode()
    return Message(source, body, request.id, headers, redelivered=bool(about.get("redelivered")), raw=(args, kwargs))


def run_requeued(names: list[str]) -> None:
    """In a process of the pool: run what an operator has requeued, and forget what is past the window."""
    for name in names:
        try:
            handler: Handler = current_app.tasks[name].oncekey_handler
            drive(tidy(handler, lambda function, *values: function(*values)))
        except Exception as error:  # noqa: BLE001 - the database is away: another time
            log.warning("the inbox could not be tidied: %s", reason_of(error))


def _asked(message: Message) -> tuple[list[Any], dict[str, Any]]:
    """What the task is called with; of one that is run again, as it was kept."""
    if message.raw is not None:
        args, kwargs = message.raw
        return args, kwargs
    try:
        args, kwargs = json.loads(message.body)  # type: ignore[no-untyped-call]
    except ValueError as error:
        raise BadMessage("only the looks of what this task was called with were kept: send it again") from error
    return args, kwargs


def _named_by(id_: Callable[..., object] | None) -> Callable[[Message], object]:
    """How a message is named: by what it asks for, or by the task's id."""

    def name(message: Message) -> object:
        if id_ is None:
            return message.id
        args, kwargs = _asked(message)
        try:
            return id_(*args, **kwargs)
        except Exception as error:
            raise BadMessage(f"id= failed on what the task was called with: {reason_of(error)}") from error

    return name


def _without_connection(work: Callable[..., Any]) -> inspect.Signature:
    """What a task is called with: Celery checks it when a task is sent."""
    found = inspect.signature(work)
    given = list(found.parameters.values())
    if not given or given[0].kind not in {given[0].POSITIONAL_ONLY, given[0].POSITIONAL_OR_KEYWORD}:
        raise ConfigurationError(f"{work.__qualname__} takes no connection: write def {work.__name__}(connection, ...)")
    return found.replace(parameters=given[1:])
