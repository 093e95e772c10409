"""The same for WSGI: what an application may do with start_response, write, its iterable and close(), in any order."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from hypothesis import strategies as st

from oncekey import NotExecuted, Policy
from oncekey.core.record import State
from tests.adapters.wsgi_kit import Answer, Guarded, Server, post
from tests.fuzz.asgi import KEPT, MAX_KEPT, NOTHING, RELEASED, STONE, UNKNOWN, told

POLICIES = {
    from_memory: Policy(max_kept=MAX_KEPT, recall_for=10.0 if from_memory else None) for from_memory in (True, False)
}

# ---- what is played ----------------------------------------------------------------------------------------------


class Start(NamedTuple):
    """start_response; with `again`, as an application calls it that has an error to report."""

    status: int
    declared: int | None = None
    events: bool = False
    again: bool = False


class Write(NamedTuple):
    """The callable that start_response gives."""

    data: bytes


class Yield(NamedTuple):
    """A piece of the body; bytes, or something that is none."""

    data: Any


class Script(NamedTuple):
    """An application: what it does in its call, then in its iteration, how that ends, and whether close() fails."""

    called: tuple[Start | Write, ...]
    pieces: tuple[Start | Write | Yield, ...] = ()
    end: str = "return"
    close_fails: bool = False


starts = st.builds(
    Start,
    st.sampled_from([200, 201, 204, 304, 404, 408, 429, 500, 102]),
    st.none() | st.integers(-1, 2 * MAX_KEPT),
    st.booleans(),
    st.booleans(),
)
writes = st.builds(Write, st.binary(max_size=10))
yields = st.builds(Yield, st.binary(max_size=10) | st.just("text"))
good_yields = st.builds(Yield, st.binary(max_size=10))
scripts = st.builds(
    Script,
    st.lists(starts | writes, max_size=3).map(tuple)
    | st.builds(Start, st.sampled_from([200, 404]), st.none()).map(lambda s: (s,)),
    st.lists(good_yields, max_size=3).map(tuple) | st.lists(starts | writes | yields, max_size=4).map(tuple),
    st.sampled_from(["return", "return", "raise", "not-executed"]),
    st.sampled_from([False, False, True]),
)

# ---- what must become of it --------------------------------------------------------------------------------------


@dataclass
class Automaton:
    """The answer, call by call. `outcome` is set when the answer cannot be kept, or is whole; `error`: it broke off."""

    start: Start | None = None
    chunks: list[bytes] = field(default_factory=list)
    flows: bool = False
    outcome: str = NOTHING
    error: bool = False

    def does(self, step: Start | Write | Yield) -> bool:
        """Take a step, or say that it fails."""
        if isinstance(step, Start):
            if self.flows or (self.start is not None and not step.again):
                return False
            self.start = step
            return True
        if isinstance(step, Write) and self.start is None:
            return False
        if not isinstance(step.data, bytes):
            return False
        if self.start is None:
            return not step.data
        self.chunks.append(step.data)
        size = sum(map(len, self.chunks))
        if not self.flows and (size > MAX_KEPT or (self.start.events and len(self.chunks) == 1)):
            if self.start.status < 200:
                return False
            self.flows, self.outcome = True, told(self.start.status, kept=False)
        return True

    def ends(self) -> None:
        """The iteration and close() have ended well."""
        if self.start is None or self.flows:
            return
        size = sum(map(len, self.chunks))
        if self.start.status >= 200 and (self.start.declared in {None, size} or self.start.status == 304):
            self.outcome = told(self.start.status, kept=True)
        else:
            self.error = True


def expected(script: Script) -> Automaton:
    """Play it."""
    machine = Automaton()
    for step in (*script.called, *script.pieces):
        if not machine.does(step):
            machine.error = True
            break
    declared = script.end == "not-executed" and not machine.error
    machine.error = machine.error or script.end != "return"
    if not machine.error and script.close_fails:
        machine.error = True
    if not machine.error:
        machine.ends()
    if machine.outcome == NOTHING:
        machine.outcome = RELEASED if declared else UNKNOWN
    return machine


# ---- what becomes of it ------------------------------------------------------------------------------------------


class Actor:
    """The application that plays a script, and counts how often it was run, and closed."""

    def __init__(self, script: Script) -> None:
        self.script = script
        self.runs = 0
        self.opened = 0
        self.closed = 0

    def __call__(self, environ: dict[str, Any], start_response: Any) -> Any:
        self.runs += 1
        self._start_response = start_response
        self._write: Any = None
        for step in self.script.called:
            self._do(step)
        self.opened += 1
        return Pieces(self)

    def _do(self, step: Start | Write | Yield) -> None:
        if isinstance(step, Write):
            if self._write is None:
                raise ZeroDivisionError
            self._write(step.data)
        elif isinstance(step, Start):
            headers = [("X-Part", "1"), ("x-part", "2")]
            headers += [("Content-Length", str(step.declared))] if step.declared is not None else []
            headers += [("Content-Type", "text/event-stream")] if step.events else []
            why = LookupError("something went wrong")
            told_why = (LookupError, why, None) if step.again else None
            self._write = self._start_response(f"{step.status} Status", headers, told_why)

    def pieces(self) -> Iterator[Any]:
        for step in self.script.pieces:
            if isinstance(step, Yield):
                yield step.data
            else:
                self._do(step)
        if self.script.end == "raise":
            raise ZeroDivisionError
        if self.script.end == "not-executed":
            raise NotExecuted


class Pieces:
    """What it returns."""

    def __init__(self, actor: Actor) -> None:
        self._actor = actor
        self._pieces = actor.pieces()

    def __iter__(self) -> Iterator[Any]:
        return self._pieces

    def close(self) -> None:
        self._actor.closed += 1
        if self._actor.script.close_fails:
            raise ArithmeticError


class Strict(Server):
    """A server that sends bytes alone."""

    def serve(self, app: Any, environ: dict[str, Any]) -> Answer:
        self.iterable = app(environ, self.start_response)
        try:
            for chunk in self.iterable:
                self.sent.append(bytes(memoryview(chunk)))
        finally:
            self.close()
        return self.answer


class Ended(NamedTuple):
    """What has become of it."""

    first: Server
    again: Server
    actor: Actor
    state: State | None
    error: BaseException | None


def play(script: Script, *, from_memory: bool = False) -> Ended:
    """One request, and the same again."""
    actor = Actor(script)
    guarded = Guarded(actor, policy=POLICIES[from_memory])
    first, again, error = Strict(), Strict(), None
    try:
        first.serve(guarded, post())
    except Exception as found:
        error = found
    state = guarded.state
    actor.script = Script((Start(201),), (Yield(b"again"),))
    again.serve(guarded, post())
    return Ended(first, again, actor, state, error)


__all__ = ["KEPT", "RELEASED", "STONE", "UNKNOWN", "Script", "Start", "Write", "Yield", "expected", "play", "scripts"]
