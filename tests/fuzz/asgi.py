"""Message sequences for ASGI, and an automaton that says what must become of each: hazard 80.

The automaton is written from the specification and from docs/concepts, and knows nothing of the adapter's code. It is
told what the client uploads and what the application sends; it says whether the application runs, which of its messages
are refused, what the client gets, what is recorded, and what a retry gets.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from hypothesis import strategies as st

from oncekey import NotExecuted, Policy
from oncekey.core.record import State
from tests.adapters.asgi_kit import BODY, START, Guarded, Wire, http

# Small, so that answers and uploads come to lie on both sides of them.
MAX_KEPT, MAX_BODY = 16, 24
# A retry is answered from the process's memory, or from the store.
POLICIES = {
    from_memory: Policy(max_kept=MAX_KEPT, max_body=MAX_BODY, recall_for=10.0 if from_memory else None)
    for from_memory in (True, False)
}

# ---- what is played ----------------------------------------------------------------------------------------------


class Start(NamedTuple):
    """http.response.start. `declared` is a content-length; None: there is none."""

    status: int
    declared: int | None = None
    events: bool = False


class Body(NamedTuple):
    """http.response.body."""

    data: bytes
    more: bool


class Other(NamedTuple):
    """A message that was not offered."""

    type: str


Step = Start | Body | Other


class Script(NamedTuple):
    """An application. A stubborn one goes on when a message of its was refused. `end` is what it does last."""

    steps: tuple[Step, ...]
    end: str = "return"
    stubborn: bool = False


class Upload(NamedTuple):
    """What the client sends: parts, whether it stays for the last one, and the length that it declares."""

    parts: tuple[bytes, ...]
    whole: bool = True
    declared: int | None = None


starts = st.builds(
    Start,
    st.sampled_from([200, 201, 204, 303, 304, 404, 408, 425, 429, 500, 503, 103, 1000]),
    st.none() | st.integers(-1, 2 * MAX_KEPT),
    st.booleans(),
)
bodies = st.builds(Body, st.binary(max_size=MAX_KEPT), st.booleans())
others = st.sampled_from([Other("http.response.trailers"), Other("http.response.pathsend"), Other("websocket.send")])
# Half of the scripts begin well, or hardly any would come to an end.
wanted = st.builds(Start, st.sampled_from([200, 201, 204, 404, 429, 500]), st.none(), st.booleans())
wholes = st.tuples(wanted, st.lists(st.builds(Body, st.binary(max_size=12), st.just(True)), max_size=2), bodies).map(
    lambda found: (found[0], *found[1], found[2]._replace(more=False))
)
scripts = st.builds(
    lambda first, rest, end, stubborn: Script((*first, *rest), end, stubborn),
    st.just(()) | wholes,
    st.lists(starts | bodies | others, max_size=4),
    st.sampled_from(["return", "return", "raise", "not-executed"]),
    st.booleans(),
)
uploads = st.sampled_from([Upload((b'{"a":1}',)), Upload((b'{"a"', b":1}")), Upload((b"",))]) | st.builds(
    Upload,
    st.lists(st.binary(max_size=MAX_BODY), min_size=1, max_size=3).map(tuple),
    st.booleans(),
    st.none() | st.integers(0, 2 * MAX_BODY),
)

# ---- what must become of it --------------------------------------------------------------------------------------

KEPT, STONE, RELEASED, UNKNOWN, NOTHING = "kept", "not kept", "released", "unknown", "nothing"
RELEASING = frozenset({408, 425, 429})


@dataclass
class Expected:
    """What the automaton says. `status` and `body` are the application's own answer, if the client gets that."""

    runs: bool = True
    refused: int = 0
    outcome: str = NOTHING
    status: int = 0
    body: bytes = b""
    complete: bool = False
    broken: bool = False  # the application ends with an error, and the server hears of it


def arrives(upload: Upload) -> bool | None:
    """Whether the upload is whole, and within its limits; None: the client has left and hears nothing."""
    if upload.declared is not None and upload.declared > MAX_BODY:
        return False
    size = 0
    for number, part in enumerate(upload.parts):
        size += len(part)
        if size > MAX_BODY:
            return False
        if number == len(upload.parts) - 1 and upload.whole:
            return upload.declared is None or size >= upload.declared
    return None


@dataclass
class Automaton:
    """The answer's half, message by message."""

    start: Start | None = None
    chunks: list[bytes] = field(default_factory=list)
    ended: bool = False
    flows: bool = False
    outcome: str = NOTHING

    def allows(self, step: Step) -> bool:
        """Take a message, or refuse it."""
        if isinstance(step, Other):
            return False
        if isinstance(step, Start):
            if self.start is not None or self.ended:
                return False
            self.start = step
            return True
        if self.start is None or self.ended:
            return False
        return self._body(self.start, step)

    def _body(self, start: Start, step: Body) -> bool:
        self.chunks.append(step.data)
        self.ended = not step.more
        size = sum(map(len, self.chunks))
        if self.flows:
            return True
        final = 200 <= start.status < 1000
        if step.more:
            if size > MAX_KEPT or (start.events and len(self.chunks) == 1):
                if not final:
                    self.chunks.clear()
                    return False
                self.flows, self.outcome = True, told(start.status, kept=False)
            return True
        if not final or (size <= MAX_KEPT and start.declared not in {None, size} and start.status != 304):
            return False
        self.outcome = told(start.status, kept=size <= MAX_KEPT)
        return True


def told(status: int, *, kept: bool) -> str:
    """What the IETF dialect makes of an answer with this status."""
    if status in RELEASING:
        return RELEASED
    if status >= 500:
        return UNKNOWN
    return KEPT if kept else STONE


def expected(upload: Upload, script: Script) -> Expected:
    """Play both."""
    if not arrives(upload):
        return Expected(runs=False)
    found, machine = Expected(), Automaton()
    for step in script.steps:
        if not machine.allows(step):
            found.refused += 1
            if not script.stubborn:
                break
    found.broken = script.end == "raise" or (found.refused > 0 and not script.stubborn)
    found.outcome = machine.outcome
    if machine.outcome == NOTHING:
        declared = script.end == "not-executed" and not found.broken
        found.outcome = RELEASED if declared else UNKNOWN
    else:
        assert machine.start is not None
        found.status, found.body = machine.start.status, b"".join(machine.chunks)
        found.complete = machine.ended
    return found


# ---- what becomes of it ------------------------------------------------------------------------------------------


class Played(Wire):
    """A server that holds the middleware to the rules of ASGI, and may lose its client at one of the sends."""

    def __init__(self, upload: Upload, lost_at: int | None = None) -> None:
        last = len(upload.parts) - 1
        messages = [
            {"type": "http.request", "body": part, "more_body": number < last or not upload.whole}
            for number, part in enumerate(upload.parts)
        ]
        super().__init__(messages if upload.whole else [*messages, {"type": "http.disconnect"}])
        self.lost_at = lost_at

    async def send(self, message: Any) -> None:
        if self.sent:
            assert message["type"] == BODY, f"{message['type']} behind {self.sent[-1]['type']}"
            assert self.sent[-1].get("more_body", True) or self.sent[-1]["type"] == START, "a body after its end"
        else:
            assert message["type"] == START, "a body before its start"
        self.sent.append(message)
        if self.lost_at is not None and len(self.sent) > self.lost_at:
            raise OSError("the client has left")


class Actor:
    """The application that plays a script, and counts."""

    def __init__(self, script: Script) -> None:
        self.script = script
        self.bodies: list[bytes] = []
        self.refused = 0

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        self.bodies.append((await receive())["body"])
        for step in self.script.steps:
            try:
                await send(message(step))
            except RuntimeError:
                self.refused += 1
                if not self.script.stubborn:
                    raise
        if self.script.end == "raise":
            raise ZeroDivisionError
        if self.script.end == "not-executed":
            raise NotExecuted


def message(step: Step) -> dict[str, Any]:
    """The step as ASGI says it."""
    if isinstance(step, Other):
        return {"type": step.type}
    if isinstance(step, Body):
        return {"type": BODY, "body": step.data, "more_body": step.more}
    headers = [(b"x-part", b"1"), (b"X-Part", b"2")]
    if step.declared is not None:
        headers.append((b"content-length", b"%d" % step.declared))
    if step.events:
        headers.append((b"content-type", b"text/event-stream"))
    return {"type": START, "status": step.status, "headers": headers}


class Ended(NamedTuple):
    """What has become of it: the wire of the first request and of its retry, the application, and the record."""

    first: Played
    again: Played
    actor: Actor
    state: State | None
    error: BaseException | None


def play(upload: Upload, script: Script, lost_at: int | None = None, *, from_memory: bool = False) -> Ended:
    """One request, and the same again from a client that sends all of it."""
    return asyncio.run(_play(upload, script, lost_at, POLICIES[from_memory]))


async def _play(upload: Upload, script: Script, lost_at: int | None, policy: Policy) -> Ended:
    actor = Actor(script)
    guarded = Guarded(actor, policy=policy)
    first, again = Played(upload, lost_at), Played(Upload((b"".join(upload.parts)[:MAX_BODY],)))
    error = None
    try:
        await guarded(_scope(upload.declared), first.receive, first.send)
    except (RuntimeError, ZeroDivisionError, OSError) as found:
        error = found
    state = guarded.state
    actor.script = Script((Start(201), Body(b"again", more=False)))
    await guarded(_scope(None), again.receive, again.send)
    return Ended(first, again, actor, state, error)


def _scope(declared: int | None) -> dict[str, Any]:
    scope = http()
    if declared is not None:
        scope["headers"].append((b"content-length", b"%d" % declared))
    return scope
