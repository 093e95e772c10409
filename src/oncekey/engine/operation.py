"""What a handler may know and say about the operation it runs."""

from __future__ import annotations

import asyncio
import inspect
import threading
from collections.abc import Awaitable, Callable, Coroutine
from typing import TYPE_CHECKING, Any, TypeVar, overload

from oncekey.core.commands import Renewal
from oncekey.core.keys import derived_key, key_ref
from oncekey.core.policy import ms
from oncekey.core.providers import Provider, provider_of
from oncekey.core.record import State
from oncekey.engine.external import FINISHED, AsyncExternal, ThreadExternal
from oncekey.engine.notes import AsyncNotes, BorrowedNotes, ThreadNotes
from oncekey.engine.steps import Codec, Running
from oncekey.errors import ConfigurationError

if TYPE_CHECKING:
    from oncekey.engine.aio import AsyncEngine
    from oncekey.engine.attempt import Attempt
    from oncekey.engine.sealing import Sealer
    from oncekey.engine.threaded import Engine

T = TypeVar("T")

_MAKING = threading.Lock()


class Operation:
    """The operation at hand: in ASGI `scope["oncekey"]`, in WSGI `environ["oncekey.operation"]`."""

    def __init__(self, engine: Engine | AsyncEngine, attempt: Attempt, key: str, sealer: Sealer | None = None) -> None:
        self._engine = engine
        self._attempt = attempt
        self._sealer = sealer
        self.key = key

    @property
    def attempt(self) -> int:
        """Which attempt this is, counted from 1."""
        return self._attempt.number

    @property
    def id(self) -> str:
        """Its whole name. Put it into what you ask of others, in their metadata: by it their webhooks are matched."""
        return self._attempt.id.hex()

    @property
    def ref(self) -> str:
        """A short name for logs, from which the key cannot be read."""
        return key_ref(self._attempt.id)

    @property
    def lost(self) -> str | None:
        """Why the lease was lost, or None while it is ours. Do not begin an effect once it is lost."""
        return self._attempt.lost

    def derived_key(self, step: str, length: int = 36) -> str:
        """A key for a call to somebody else: the same in every attempt, another for every step, unguessable length.

        Send it as the provider's own idempotency key, so that the provider deduplicates what we cannot.
        """
        return derived_key(self._attempt.id, step, length)

    @property
    def _notes(self) -> ThreadNotes | AsyncNotes | BorrowedNotes:
        raise NotImplementedError

    def _begin(self) -> Renewal | None:
        attempt = self._attempt
        attempt.latched = attempt.latched or attempt.state is State.EXECUTING
        if attempt.latched:
            return None
        return Renewal(attempt.id, attempt.token, ms(attempt.lease_for), ms(attempt.cap_for), begin=True)

    def _begun(self) -> None:
        self._attempt.state = State.EXECUTING
        self._attempt.latched = True

    def _call(self, step: str, provider: str | Provider | None, key: str | None) -> tuple[str, Provider]:
        """The key of a call, and whose rules it obeys. What an earlier attempt has sent is sent again."""
        if not (isinstance(step, str) and step):
            raise ConfigurationError(f"a call's name is a text, not {step!r}: write external('psp.charge')")
        whom, earlier = provider_of(provider), self._attempt.journal.call(step)
        if earlier is None:
            return key or self.derived_key(step, whom.length), whom
        if key is not None and key != earlier.key and self._attempt.repeats:
            raise ConfigurationError(
                f"the call {step!r} carries another key than in an earlier attempt, so its receiver cannot deduplicate "
                f"it: leave the key to OnceKey, or send the same one in every attempt"
            )
        return key or earlier.key, whom

    def _unnamed(self, target: str, body: bytes | None) -> str:
        """A name for a call that has none: where it goes, and how many calls of this attempt went there before.

        The same request again, after an end that left it open, is the same call under the same key.
        """
        taken, number = self._notes.unnamed, 1
        name = target
        while name in taken and not self._is_repeated(name, body):
            number += 1
            name = f"{target} #{number}"
        taken[name] = body
        return name

    def _is_repeated(self, name: str, body: bytes | None) -> bool:
        call = self._attempt.journal.call(name)
        if (
            call is None
            or call.attempt != self._attempt.number
            or call.state in FINISHED
            or name in self._notes.calling
        ):
            return False
        if body is None or self._notes.unnamed[name] is None:
            raise ConfigurationError(
                f"whether this is the call {name!r} once more or another one cannot be told, because its body is a "
                f"stream: name it, with the header OnceKey-Step or by operation.external('...')"
            )
        return self._notes.unnamed[name] == body


class ThreadOperation(Operation):
    """As threads use it."""

    _engine: Engine
    _written: ThreadNotes | BorrowedNotes | None = None

    @property
    def _notes(self) -> ThreadNotes | BorrowedNotes:
        with _MAKING:
            if self._written is None:
                self._written = ThreadNotes(self._engine, self._attempt, self._sealer)
        return self._written

    def begin(self) -> None:
        """Set the latch before the effect leaves (policy latch=True). LeaseLost: do nothing and end."""
        renewal = self._begin()
        if renewal is not None:
            self._engine.mark(self._attempt, renewal)
            self._begun()

    def external(
        self, step: str, *, provider: str | Provider | None = None, target: str = "", key: str | None = None
    ) -> ThreadExternal:
        """A call to somebody else: `with operation.external("psp.charge") as call`, then send `call.key` along.

        The latch is set and the intent is stored before the block is entered; `target` says for readers where it goes.
        LeaseLost, or trouble with the store: the block is not entered, and nothing may be sent. A `key` of your own
        must be the same in every attempt.
        """
        own, whom = self._call(step, provider, key)
        return ThreadExternal(self._notes, step, own, whom, target)

    def step(self, name: str, fn: Callable[..., T], *args: Any, codec: Codec | None = None) -> T:
        """Run a function and keep its result in the record, so that a later attempt gets it without running it.

        The result is bytes or what JSON can hold, and is given as it comes back from that; for anything else give a
        `codec`, two functions to bytes and from them. The arguments must be the same in every attempt. If the process
        dies between the function's end and the record, the next attempt runs it again.
        """
        running = Running(self._notes, name, args, codec)
        kept = running.kept
        if kept is not None:
            return kept.value  # type: ignore[no-any-return]
        with running.running():
            step, value = running.result(fn(*args))
            self._notes.keep(step)
        return value  # type: ignore[no-any-return]


class AsyncOperation(Operation):
    """As asyncio uses it."""

    _engine: AsyncEngine
    _written: AsyncNotes | None = None

    def __init__(self, engine: AsyncEngine, attempt: Attempt, key: str, sealer: Sealer | None = None) -> None:
        super().__init__(engine, attempt, key, sealer)
        self._loop = asyncio.get_running_loop()

    @property
    def _notes(self) -> AsyncNotes:
        with _MAKING:
            if self._written is None:
                self._written = AsyncNotes(self._engine, self._attempt, self._sealer)
        return self._written

    async def begin(self) -> None:
        """Set the latch before the effect leaves (policy latch=True). LeaseLost: do nothing and end."""
        renewal = self._begin()
        if renewal is not None:
            await self._engine.mark(self._attempt, renewal)
            self._begun()

    def external(
        self, step: str, *, provider: str | Provider | None = None, target: str = "", key: str | None = None
    ) -> AsyncExternal:
        """A call to somebody else: `async with operation.external("psp.charge") as call`, then send `call.key` along.

        As ThreadOperation.external.
        """
        own, whom = self._call(step, provider, key)
        return AsyncExternal(self._notes, step, own, whom, target)

    @overload
    async def step(
        self, name: str, fn: Callable[..., Coroutine[Any, Any, T]], *args: Any, codec: Codec | None = None
    ) -> T: ...
    @overload
    async def step(self, name: str, fn: Callable[..., Awaitable[T]], *args: Any, codec: Codec | None = None) -> T: ...
    @overload
    async def step(self, name: str, fn: Callable[..., T], *args: Any, codec: Codec | None = None) -> T: ...
    async def step(self, name: str, fn: Callable[..., Any], *args: Any, codec: Codec | None = None) -> Any:
        """Run a function, async or not, and keep its result in the record. As ThreadOperation.step."""
        running = Running(self._notes, name, args, codec)
        kept = running.kept
        if kept is not None:
            return kept.value
        with running.running():
            done = fn(*args)
            step, value = running.result(await done if inspect.isawaitable(done) else done)
            await self._notes.keep(step)
        return value

    def from_thread(self) -> ThreadOperation:
        """The same operation for a plain function that the framework runs in a worker thread."""
        return _Borrowed(self, BorrowedNotes(self._notes, self._loop))


class _Borrowed(ThreadOperation):
    """An asyncio operation in a worker thread."""

    _written: BorrowedNotes

    def __init__(self, lender: AsyncOperation, notes: BorrowedNotes) -> None:
        super().__init__(lender._engine, lender._attempt, lender.key)  # noqa: SLF001 - the same operation
        self._written = notes
        self._lender = lender

    def begin(self) -> None:
        self._written.run(self._lender.begin())
