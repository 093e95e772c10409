"""What a resolver is asked, and what it may answer: it landed, it did not happen, or still unclear.

"It is not there" is no evidence while the attempt can still arrive. So "it did not happen" is made from a proof that it
no longer can, and a proof is had in two ways only: the attempt was cancelled at its receiver, or so much time has
passed that its receiver would refuse it. Cancel first, then read.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from oncekey.core.journal import Call, Journal, Step
from oncekey.core.keys import derived_key, key_ref
from oncekey.core.outcome import Answer, Tombstone, Value
from oncekey.errors import ConfigurationError, OnceKeyError
from oncekey.operations.answers import answer

LONGEST = 400
_OURS = object()


class Landed(NamedTuple):
    """The effect is there; every retry gets this answer. `seen` is the evidence, kept in the trail."""

    answer: Answer | Tombstone | Value
    seen: str


@dataclass(frozen=True, slots=True, eq=False)
class Stopped:
    """The proof that the attempt can no longer have its effect. Only an Inquiry gives one, for itself alone."""

    inquiry: Inquiry
    how: str
    _made_by: object = field(repr=False, default=None)

    def __post_init__(self) -> None:
        """Refuse one that was made by hand."""
        if self._made_by is not _OURS:
            raise TypeError("a proof is not made by hand: it comes from cancelled() or expired() of the inquiry")

    def not_done(self, seen: str) -> NotDone:
        """It did not happen: after the proof was had, nothing was found. `seen` says what was read, and where."""
        return NotDone(self, _evidence(seen))


@dataclass(frozen=True, slots=True)
class NotDone:
    """It did not happen and cannot happen any more, so that a retry may run. Made by `Stopped.not_done`."""

    stopped: Stopped
    seen: str

    def __post_init__(self) -> None:
        """Refuse one without its proof."""
        if not isinstance(self.stopped, Stopped):
            raise TypeError("'it did not happen' needs its proof: cancel first, then read, then proof.not_done(...)")


class Unclear(NamedTuple):
    """Nobody can tell yet. It is asked again, in `again_in` seconds or when its turn comes."""

    why: str
    again_in: float | None = None


Finding = Landed | NotDone | Unclear


class TooEarly(OnceKeyError):
    """An attempt may still land: ask again in `wait` seconds."""

    def __init__(self, why: str, wait: float) -> None:
        super().__init__(why)
        self.wait = wait


@dataclass(frozen=True, slots=True, eq=False)
class Inquiry:
    """One operation whose outcome is unknown: what a resolver knows of it, and how it answers.

    `endpoint`, `scope` and `key` are what the client asked for: method and path, a digest of the caller, the client's
    key. `place` has the parts of the path that the resolver's pattern names. `journal` is what the attempts have called
    and done; `try_` counts the inquiries from 1; `unclear_for` is how many seconds ago the first of them was.
    """

    id: bytes
    endpoint: str
    scope: str
    key: str
    note: str
    journal: Journal
    attempts: int
    try_: int
    unclear_for: float
    place: Mapping[str, str] = field(default_factory=dict)

    @property
    def ref(self) -> str:
        """The operation's short name, as in logs and in problems that clients are told."""
        return key_ref(self.id)

    @property
    def calls(self) -> tuple[Call, ...]:
        """Whom the attempts have called, where, and under which key."""
        return self.journal.calls

    @property
    def steps(self) -> tuple[Step, ...]:
        """The steps that were done, with their results."""
        return self.journal.steps

    def derived_key(self, step: str, length: int = 36) -> str:
        """The key that the handler gave to somebody else in this step: the same as `Operation.derived_key`."""
        return derived_key(self.id, step, length)

    def cancelled(self, reference: str) -> Stopped:
        """The receiver has cancelled the attempt, or will refuse it from now on; `reference` is its word for that.

        Read only after this, and answer with `not_done` of what this gives, or with `landed`.
        """
        return Stopped(self, f"cancelled: {_evidence(reference)}", _OURS)

    def expired(self, after_for: float, why: str) -> Stopped:
        """Its receiver refuses the attempt because it is older than `after_for` seconds; `why` says how you know.

        The time counts from the first inquiry, when nobody held the lease any more; while it has not passed, the
        inquiry ends here and is repeated then. A process that was paused can still send what it had prepared: use this
        only where the receiver itself goes by the time at which the request was made.
        """
        left = after_for - self.unclear_for
        if left > 0:
            raise TooEarly(f"the attempt may still land for {left:.0f} s", left)
        return Stopped(self, f"expired after {after_for:g} s: {_evidence(why)}", _OURS)

    def landed(self, status: int, body: Any = None, *, seen: str, headers: Iterable[tuple[str, str]] = ()) -> Landed:
        """The effect is there, and this is the answer that its handler would have given. `body`: bytes, or JSON."""
        data = body if isinstance(body, bytes) else b"" if body is None else _json(body)
        pairs = [(name.encode("ascii"), value.encode("latin-1")) for name, value in headers]
        names = {name.lower() for name, _ in pairs}
        if not isinstance(body, bytes | None) and b"content-type" not in names:
            pairs.append((b"content-type", b"application/json"))
        if b"content-length" not in names:
            pairs.append((b"content-length", b"%d" % len(data)))
        return Landed(answer(status, pairs, data), _evidence(seen))

    def landed_without_answer(self, status: int, *, seen: str) -> Landed:
        """The effect is there, and its answer cannot be made again: retries are told that it is done."""
        return Landed(Tombstone(status, "it was found out afterwards"), _evidence(seen))

    def unclear(self, why: str, again_in: float | None = None) -> Unclear:
        """Nobody can tell yet; ask again, in so many seconds if you know when."""
        return Unclear(_evidence(why), again_in)


def _json(body: Any) -> bytes:
    return json.dumps(body, separators=(",", ":"), ensure_ascii=False).encode()


def _evidence(text: str) -> str:
    if not isinstance(text, str) or not text.strip():
        raise ConfigurationError(f"{text!r} is no evidence: write in words what was seen, and under which reference")
    return text[:LONGEST]
