"""Shadow mode: what would have become of a request, found out beside it, while it is served as if we were not there.

Records of shadows are kept apart: under ids that no operation has, with a label that says what they are, without
bodies, and never unknown, because nobody could find out what became of them. What would be unknown is completed with a
mark.
"""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any, Unpack

from oncekey.core.commands import Settlement
from oncekey.core.decision import Decision, Execute, Replay
from oncekey.core.keys import SHADOW, shadow_scope_of
from oncekey.core.outcome import Tombstone, tombstone, unpack
from oncekey.core.record import State
from oncekey.engine import events
from oncekey.engine.common import name_of
from oncekey.engine.events import Events, log
from oncekey.errors import Declined, OnceKeyError
from oncekey.http.answer import PROBLEM
from oncekey.http.capture import completed
from oncekey.http.gate import SCOPES, Choices, Gate
from oncekey.http.messages import Headers, Reply, Request

if TYPE_CHECKING:
    from oncekey.engine.attempt import Attempt
    from oncekey.http.exchange import Exchange

# How many requests one process watches at a time: a store that hangs must not fill the memory with what waits for it.
MOST = 1000
DONE, DOUBTFUL = "shadow", "shadow, and its outcome would be unknown"
TOO_LARGE = "the body is over the limit"
NOT_READ = "the application did not read the body to its end"
TOO_MANY = f"{MOST} requests were being watched"

_SHADOWS = {
    events.CREATED: events.SHADOW_CREATED,
    events.RETRIED: events.SHADOW_RETRIED,
    events.REPLAYED: events.SHADOW_REPLAYED,
    events.IN_PROGRESS: events.SHADOW_IN_PROGRESS,
    events.KEY_MISUSE: events.SHADOW_KEY_MISUSE,
    events.UNKNOWN: events.SHADOW_UNKNOWN,
    events.REFUSED: events.SHADOW_REFUSED,
}


class ShadowGate(Gate):
    """Reads requests as a Gate does, for claims that no Gate finds."""

    def __init__(self, **choices: Unpack[Choices]) -> None:
        super().__init__(**choices)
        self._scopes = functools.lru_cache(SCOPES)(shadow_scope_of)
        # Never executing: a shadow whose process died is no unknown outcome.
        self.state = State.CLAIMED

    def exchange(self, request: Request, key: str, caller: str, endpoint: str) -> Exchange:
        """The exchange of a caller whose name is known."""
        made = super().exchange(request, key, caller, endpoint)
        label = made.claim.label
        made.claim = made.claim._replace(label=label._replace(endpoint=SHADOW + label.endpoint))
        return made


class Ended:
    """How the application ended: with an answer, or without one."""

    def __init__(self, status: int = 0, headers: Headers | None = None, error: BaseException | None = None) -> None:
        self.status = status
        self.headers = headers or []
        self.error = error


class Watch:
    """One request that is watched: what is known of it, and who is told. Either colour drives it."""

    def __init__(self, gate: Gate, said: Events, request: Request) -> None:
        self.gate = gate
        self.request = request
        self._said = said
        self._chunks: list[bytes] = []
        self._size = 0
        self._complete = False
        # A key in a header is looked at before the body; a key in the body cannot be.
        self.key = gate.key(request) if gate.dialect.header is not None else ""
        self.active = isinstance(self.key, str)
        if isinstance(self.key, Reply):
            self.refused(self.key)

    @property
    def bodiless(self) -> bool:
        """Whether the headers say that there is no body to wait for."""
        return self.request.header(b"content-length").strip() == b"0"

    def take(self, chunk: bytes) -> None:
        """A piece of the body has passed."""
        if self.active:
            self._size += len(chunk)
            if self._size > self.gate.policy.max_body:
                self.skip(TOO_LARGE)
            else:
                self._chunks.append(bytes(chunk))

    def whole(self) -> bool:
        """It was the last one. True, once: there is something to find out."""
        if not self.active or self._complete:
            return False
        self._complete = True
        self.request.body = b"".join(self._chunks)
        self._chunks = []
        return True

    @property
    def taken(self) -> int:
        """How much of the body has passed."""
        return self._size

    def over(self) -> None:
        """The application has ended."""
        if self.active and not self._complete:
            self.skip(NOT_READ)

    def exchange(self) -> Exchange | None:
        """What to ask of the store; nothing where the request would have been refused before, or passed."""
        found = self.key or self.gate.key(self.request)
        made = self.gate.prepare(self.request, found) if isinstance(found, str) else found
        if isinstance(made, Reply):
            self.refused(made)
            return None
        return made

    # ---- what is told ----------------------------------------------------------------------------------------------

    def refused(self, reply: Reply) -> None:
        """It would have been refused before the store was asked."""
        problem = next((value for name, value in reply.headers if name == PROBLEM), b"")
        self._said.say(events.SHADOW_KEY_REFUSED, detail=problem.decode("latin-1") or str(reply.status))

    def skip(self, why: str) -> None:
        """Nothing can be found out about it."""
        self.active = False
        self._chunks = []
        self._said.say(events.SHADOW_SKIPPED, detail=why)

    def decided(self, exchange: Exchange, decision: Decision) -> None:
        """What it would have got."""
        label = exchange.claim.label
        endpoint = label.endpoint.removeprefix(SHADOW)
        self._said.say(shadow_of(exchange, decision), exchange.claim.id, scope=label.scope, endpoint=endpoint)
        # The work may last, and nobody looks at the body any more.
        self.request.body = b""
        exchange.parts = exchange.parts._replace(body=b"")

    def failed(self, error: Exception) -> None:
        """It could not be found out."""
        tell_failed(self._said, error)


def watching(gate: Gate, said: Events, request: Request, path: str) -> Watch | None:
    """The watch over a request; nothing where there is nothing to find out about it."""
    try:
        watch = Watch(gate, said, request) if gate.covers(request.method, path) else None
    except Exception as error:  # noqa: BLE001 - whatever the user's own functions raise, the request is served
        tell_failed(said, error)
        return None
    return watch if watch is not None and watch.active else None


def tell_failed(said: Events, error: Exception) -> None:
    """Say that something could not be found out."""
    if isinstance(error, OnceKeyError):
        log.warning("shadow mode could not look up a request, which is served all the same: %s", error)
    else:
        log.error("shadow mode failed on a request, which is served all the same", exc_info=error)
    said.say(events.SHADOW_ERROR, detail=str(error))


def shadow_of(exchange: Exchange, decision: Decision) -> str:
    """The event that a decision is."""
    if isinstance(decision, Replay):
        record = decision.record
        kept = unpack(exchange.gate.sealer.open(record.id, record.outcome))
        if isinstance(kept, Tombstone) and kept.reason == DOUBTFUL:
            return events.SHADOW_UNKNOWN
    return _SHADOWS[name_of(decision)]


def attempt_of(exchange: Exchange, decision: Execute, started: float) -> Attempt:
    """The attempt whose lease is renewed while the application works."""
    attempt = exchange.attempt(decision, started)
    # Nobody sets the latch for a shadow: without one of its own a handler counts as begun, as it does when guarded.
    attempt.latched = not exchange.gate.policy.latch
    return attempt


def settlement_of(exchange: Exchange, attempt: Attempt, ended: Ended) -> Settlement:
    """How the shadow is recorded: by the dialect's outcome table, without the answer."""
    error = ended.error
    if isinstance(error, Declined):
        ended = Ended(error.status)
    if ended.status:
        made = exchange.answered(attempt, ended.status, ended.headers, None, DONE).settlement
    else:
        made = exchange.failed(attempt, error)
    if made.target is not State.UNKNOWN:
        return made
    kept = completed(exchange.gate.policy)
    mark: dict[str, Any] = {"target": State.COMPLETED, "keep_for": kept.keep_for, "due_for": kept.due_for}
    sealed = exchange.gate.sealer.seal(exchange.claim.id, tombstone(ended.status, DOUBTFUL))
    return made._replace(outcome=sealed, **mark)
