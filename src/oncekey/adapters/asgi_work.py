"""Running the application on a claimed key: in a task of its own, settled whatever its end."""

from __future__ import annotations

import asyncio
import sys
from typing import TYPE_CHECKING, Any

from oncekey.adapters.asgi_answer import Answering
from oncekey.core.keys import key_ref
from oncekey.core.record import State
from oncekey.engine import current
from oncekey.engine.common import release
from oncekey.engine.events import log
from oncekey.engine.operation import AsyncOperation
from oncekey.errors import SIGNALS

if TYPE_CHECKING:
    from collections.abc import Coroutine

    from oncekey.adapters.asgi import OnceKeyMiddleware, Scope, Send
    from oncekey.adapters.asgi_upload import Upload
    from oncekey.engine.attempt import Attempt
    from oncekey.http.exchange import Exchange

# Ways by which bytes would reach the client past us (pathsend, trailers, push...): a guarded request is offered none.
BYPASS = "http.response."
# Ends that the handler did not choose, or that end the process: there is nobody to answer.
STOPPED = (asyncio.CancelledError, GeneratorExit, SystemExit, KeyboardInterrupt)


class Work:
    """One run of the application."""

    def __init__(
        self, installed: OnceKeyMiddleware, exchange: Exchange, attempt: Attempt, upload: Upload, send: Send
    ) -> None:
        self._installed = installed
        self._exchange = exchange
        self._attempt = attempt
        self._upload = upload
        self._begun = False
        self._job: asyncio.Task[None] | None = None
        self._answer = Answering(installed.engine, exchange, attempt, upload, send)

    async def run(self, scope: Scope) -> None:
        """Run it and wait. Being cancelled here cancels nothing there: the client has left, the work has not."""
        own = dict(scope)
        exchange = self._exchange
        own["oncekey"] = AsyncOperation(self._installed.engine, self._attempt, exchange.key, exchange.gate.sealer)
        if scope.get("extensions"):
            own["extensions"] = {name: how for name, how in scope["extensions"].items() if not name.startswith(BYPASS)}
        loop = asyncio.get_running_loop()
        self._ended = loop.create_future()
        self._job = task = _spawn(loop, self._task(own))
        if not task.done():
            self._installed.running.add(task)
            if not self._begun:
                task.add_done_callback(self._unbegun)
        await self._ended

    def _unbegun(self, task: asyncio.Task[None]) -> None:
        """Cancelled before its first step: nothing was done, and here that is known."""
        self._installed.running.discard(task)
        self._installed.engine.keeper.drop(self._attempt)
        self._installed.engine.keeper.owe(release(self._exchange.claim))
        self._ended.cancel()

    async def _task(self, scope: Scope) -> None:
        """Do the work, and tell whoever waits for it. That is one turn of the loop; shielding the task is three."""
        self._begun, ended = True, self._ended
        if self._job is not None:  # it did not start at once
            self._job.remove_done_callback(self._unbegun)
        try:
            await self._work(scope)
        except Exception as error:  # noqa: BLE001 - raised again where it is waited for
            if not ended.done():
                ended.set_exception(error)
        except BaseException:
            ended.cancel()
            raise
        else:
            if not ended.done():
                ended.set_result(None)
        finally:
            if self._job is not None:  # it was not over at once
                self._installed.running.discard(self._job)

    async def _work(self, scope: Scope) -> None:
        current.OPERATION.set(scope["oncekey"])
        try:
            await self._installed.app(scope, self._upload.guarded, self._answer.send)
        except BaseException as error:
            if not self._answer.settled:
                await self._unanswered(error)
            if not isinstance(error, SIGNALS):
                raise
        else:
            if not self._answer.settled:
                log.error("operation %s ended without an answer", key_ref(self._attempt.id))
                await self._unanswered(None)
        finally:
            self._upload.end()

    async def _unanswered(self, error: BaseException | None) -> None:
        """The application ended without a whole answer: record what that means, and tell the client."""
        self._answer.end()
        done = self._exchange.failed(self._attempt, error)
        if done.target is State.UNKNOWN:
            log.error("the outcome of operation %s is unknown: %s", key_ref(self._attempt.id), done.note)
        overruled = await self._answer.settle(done)
        if not isinstance(error, STOPPED):
            await self._answer.reply(overruled or self._exchange.failure(done, error))


def _spawn(loop: asyncio.AbstractEventLoop, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
    """A task for the work; where Python can, it starts at once and may be over without ever being scheduled."""
    if sys.version_info >= (3, 12):
        return asyncio.Task(work, loop=loop, eager_start=True)
    return loop.create_task(work)
