"""A call to somebody else: its intent is stored with the latch before it leaves, and what became of it is noted.

What is noted decides what an end without an answer means: see Attempt.made and http.capture.
"""

from __future__ import annotations

from types import TracebackType
from typing import TYPE_CHECKING, Self

from oncekey.core.journal import Call, CallState
from oncekey.core.record import State
from oncekey.engine import current
from oncekey.errors import ConfigurationError, Declined, LeaseLost, NotExecuted

if TYPE_CHECKING:
    from oncekey.core.journal import Journal
    from oncekey.core.providers import Provider
    from oncekey.engine.notes import AsyncNotes, BorrowedNotes, ThreadNotes
    from oncekey.engine.operation import Operation

FINISHED = (CallState.RETURNED, CallState.DECLINED)


class External:
    """One call to somebody else: made in a `with` block, under `key`, which is the same in every attempt.

    An exception inside leaves it open whether the call had an effect, unless it is `NotExecuted` or `Declined`.
    """

    def __init__(
        self, notes: ThreadNotes | AsyncNotes | BorrowedNotes, step: str, key: str, provider: Provider, target: str
    ) -> None:
        self._notes = notes
        self._attempt = notes.attempt
        self._earlier: Call | None = None
        self._outer: External | None = None
        self._said: CallState | None = None
        self._sent: tuple[str, bytes | None] | None = None
        self.step = step
        self.key = key
        self.provider = provider
        self.target = target
        # Set it to what the answer says (the provider's id), and it is kept for whoever has to find out more.
        self.reference = ""

    @property
    def headers(self) -> dict[str, str]:
        """The provider's header with the key in it; none for a provider that wants the key in the body."""
        return {self.provider.header: self.key} if self.provider.header is not None else {}

    def not_executed(self) -> None:
        """Say that the call did not leave, or did nothing, where an exception of another kind has to go on."""
        self._said = CallState.NOT_EXECUTED

    def unclear(self) -> None:
        """Say that the answer leaves it open what the call did, where no exception is raised."""
        self._said = CallState.BEGUN

    def belongs_to(self, operation: Operation) -> bool:
        """Whether this is a call of the operation's present attempt."""
        return operation._attempt is self._attempt  # noqa: SLF001 - the two are one thing in two files

    def sends(self, target: str, body: bytes | None) -> None:
        """A hook sends this under the call's key. Another request under it would be taken for a repetition."""
        if self._sent not in (None, (target, body)):
            raise ConfigurationError(
                f"a second request within the call {self.step!r}, to {target!r}, would carry the key of the first one: "
                f"give it an external() of its own"
            )
        self._sent = target, body

    def opens(self) -> Journal:
        """The journal with this call in it, to be written before it leaves."""
        attempt, earlier = self._attempt, self._attempt.journal.call(self.step)
        if attempt.lost is not None:
            raise LeaseLost(f"the call {self.step!r} was not made: {attempt.lost}")
        if self.step in self._notes.calling or (earlier is not None and self._is_done(earlier)):
            raise ConfigurationError(
                f"the call {self.step!r} was made already in this attempt, and a second one under its key would be "
                f"taken for the same: give every call a name of its own, such as {self.step + '-2'!r}"
            )
        self._earlier = earlier
        within = current.step_of(attempt)
        call = Call(self.step, self.key, self.target, CallState.BEGUN, attempt.number, within, self.provider.name)
        self._notes.calling.add(self.step)
        return attempt.journal.having(call)

    def _is_done(self, earlier: Call) -> bool:
        return earlier.attempt == self._attempt.number and earlier.state in FINISHED

    def takes_back(self) -> None:
        """The intent could not be stored, so the call is not made."""
        self._notes.calling.discard(self.step)
        self._note(CallState.NOT_EXECUTED)

    def _leaves(self) -> None:
        """The intent is stored: the call may be made."""
        self._attempt.state = State.EXECUTING
        self._outer = current.CALL.get()
        current.CALL.set(self)

    def _ends(self, error: BaseException | None) -> bool:
        """Note what is known now; whether that is worth a write of its own."""
        current.CALL.set(self._outer)
        self._notes.calling.discard(self.step)
        if isinstance(error, NotExecuted):
            state = CallState.NOT_EXECUTED
        elif isinstance(error, Declined):
            state = CallState.DECLINED
        else:
            state = self._said or (CallState.RETURNED if error is None else CallState.BEGUN)
        self._note(state)
        # Within a step the result is written next, and takes this along.
        return error is None and bool(self.reference) and not current.step_of(self._attempt)

    def _note(self, state: CallState) -> None:
        call = self._attempt.journal.call(self.step)
        if call is None:
            return
        if state is CallState.NOT_EXECUTED and self._earlier is not None:
            call = self._earlier  # this time it did not leave: what is open since an earlier time stays open
        else:
            call = call._replace(state=state, reference=str(self.reference))
        self._attempt.journal = self._attempt.journal.having(call)


class ThreadExternal(External):
    """As threads use it: `with operation.external("charge") as call`."""

    _notes: ThreadNotes | BorrowedNotes

    def __enter__(self) -> Self:
        self._notes.open(self)
        self._leaves()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None) -> None:
        if self._ends(error):
            self._notes.write()


class AsyncExternal(External):
    """As asyncio uses it: `async with operation.external("charge") as call`."""

    _notes: AsyncNotes

    async def __aenter__(self) -> Self:
        await self._notes.open(self)
        self._leaves()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None
    ) -> None:
        if self._ends(error):
            await self._notes.write()


__all__ = ["AsyncExternal", "External", "ThreadExternal"]
