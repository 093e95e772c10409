"""One request with a key: the claim to make, the answer to each decision, the settlement of each end. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from oncekey.core.commands import Settlement, Stale
from oncekey.core.decision import Decision, Execute, Replay
from oncekey.core.fingerprint import Fingerprint
from oncekey.core.keys import key_ref
from oncekey.core.outcome import carried_by, pack, sign, tombstone, unpack
from oncekey.core.record import State
from oncekey.engine import journals
from oncekey.engine.attempt import Attempt
from oncekey.engine.current import TRACE
from oncekey.errors import Declined, LeaseLost, NotExecuted, OnceKeyError, OutcomeUnknown
from oncekey.http.answer import answer, declined, first_marks, refuse, replay
from oncekey.http.capture import (
    Ending,
    check_whole,
    kept_headers,
    settlement,
    settlement_without_answer,
    shaped_headers,
)
from oncekey.http.grammar import Verdict
from oncekey.http.messages import Headers, Reply

if TYPE_CHECKING:
    from oncekey.core.commands import Claim
    from oncekey.core.fingerprint import Parts
    from oncekey.core.record import Record
    from oncekey.http.gate import Gate

STREAMED = "it was a stream"
TOO_LONG = "it was longer than this service keeps"


class Answered(NamedTuple):
    """How to record an answer, the headers added to it on its way out, what of it is kept (packed), and when."""

    settlement: Settlement
    marks: Headers
    kept: bytes = b""
    at: float = 0.0


class Exchange:
    """One request. It is also what the flows ask whether a stored fingerprint is the same request (flows.Asked)."""

    __slots__ = ("caller", "claim", "gate", "key", "late", "parts")

    def __init__(self, gate: Gate, key: str, claim: Claim, parts: Parts, caller: str) -> None:
        self.gate = gate
        self.key = key
        self.claim = claim
        self.parts = parts
        self.caller = caller
        self.late = False

    def same_request(self, stored: bytes) -> bool:
        """Whether a stored fingerprint stands for this request."""
        # Nearly every retry is the same bytes, and then so is the whole fingerprint.
        if stored == self.claim.fingerprint:
            return True
        return self.gate.fingerprinter.matches_request(Fingerprint.decode(stored), self.parts)

    def answer(self, decision: Decision) -> Reply:
        """The reply to every decision but Execute."""
        if type(decision) is Replay:
            return self.replay(decision.record)
        return answer(self.gate.dialect, decision, key=self.key)

    def replay(self, record: Record) -> Reply:
        """The stored answer, with the dialect's marker."""
        packed = self.gate.sealer.open(record.id, record.outcome)
        request = TRACE.get()
        if request is not None and (first := carried_by(packed).trace):
            request.link(first)
        return replay(self.gate.dialect, unpack(packed), key=self.key, ref=key_ref(record.id))

    def refuse(self, error: OnceKeyError) -> Reply:
        """The reply to an error."""
        return refuse(self.gate.dialect, error, key=self.key, ref=key_ref(self.claim.id))

    def attempt(self, decision: Execute, started: float) -> Attempt:
        """The attempt that a granted claim is. RecordUnreadable: what earlier ones have left cannot be read."""
        policy, gate = self.gate.policy, self.gate
        journal = journals.begun(decision.id, decision.journal, gate.sealer)
        return Attempt(decision, started, policy.lease_for, policy.cap_for, self.claim.state, gate.guarantee, journal)

    def answered(self, attempt: Attempt, status: int, headers: Headers, body: bytes | None, lack: str = "") -> Answered:
        """How to record the handler's answer, by the dialect's outcome table; without a body it cannot be kept.

        RuntimeError: it is half an answer, or none.
        """
        gate, kept = self.gate, b""
        shape = gate.shape(tuple([name for name, _ in headers]))
        check_whole(status, headers, shape, len(body) if body is not None else None)
        verdict = gate.dialect.outcomes.verdict(status, headers)
        if verdict is not Verdict.KEPT:
            ending = settlement(gate.dialect, gate.policy, status, headers, **_left(attempt))
            verdict, done = ending.verdict, self._settlement(ending, attempt)
        else:
            if body is not None:
                kept = pack(status, shaped_headers(shape, headers, gate.drop_headers), body)
            done = self._completed(attempt, kept or tombstone(status, lack))
        marks = first_marks(gate.dialect, status, headers, verdict, key=self.key)
        return Answered(done, marks, kept, gate.recall.now() if gate.recall is not None else 0.0)

    def stored(self, answered: Answered) -> None:
        """The store holds this answer: from now on it may be given from memory too."""
        _, _, kept, at = answered
        if kept and (recall := self.gate.recall) is not None:
            recall.keep(self.caller, self.claim, self.parts, kept, at)

    def failed(self, attempt: Attempt, error: BaseException | None) -> Settlement:
        """How to record an end without an answer: an exception, a cancellation, or an answer cut short."""
        if isinstance(error, Declined):
            status, headers, body = declined(error)
            return self._completed(attempt, pack(status, kept_headers(headers, self.gate.drop_headers), body))
        return self._settlement(settlement_without_answer(self.gate.policy, error, **_left(attempt)), attempt)

    def _completed(self, attempt: Attempt, packed: bytes) -> Settlement:
        """An outcome as the store gets it, with what lasts of the journal: what was done to it from outside."""
        claim, gate = self.claim, self.gate
        if attempt.journal.entries:
            packed = sign(packed, attempt.journal.lasting)
        outcome = gate.sealer.seal(claim.id, packed)
        return Settlement(claim.id, claim.token, State.COMPLETED, outcome, gate.kept.keep_for, gate.kept.due_for)

    def _settlement(self, ending: Ending, attempt: Attempt) -> Settlement:
        """An end without an outcome, with the journal, which is newer than what stands in the store."""
        claim, outcome = self.claim, b""
        if attempt.journal.entries:
            outcome = journals.sealed(claim.id, attempt.journal, self.gate.sealer)
        return Settlement(claim.id, claim.token, ending.target, outcome, ending.keep_for, ending.due_for, ending.note)

    def failure(self, done: Settlement, error: BaseException | None = None) -> Reply:
        """What the client is told when the handler gave no answer."""
        if isinstance(error, Declined):
            status, headers, body = declined(error)
            marks = first_marks(self.gate.dialect, status, headers, Verdict.KEPT, key=self.key)
            return Reply(status, headers + marks, body)
        if done.target is State.FAILED_RETRYABLE:
            return self.refuse(NotExecuted())
        return self.refuse(OutcomeUnknown())

    def overruled(self, stale: Stale) -> Reply:
        """Our attempt lost its lease and somebody else has decided: their answer is the answer."""
        found = stale.found
        if found is not None and found.record.state is State.COMPLETED:
            try:
                return self.replay(found.record)
            except OnceKeyError as error:
                return self.refuse(error)
        return self.refuse(LeaseLost())


def _left(attempt: Attempt) -> dict[str, Any]:
    """What is known to have left the process, in the words of http.capture."""
    if not attempt.journal.entries:
        return {"begun": attempt.latched}
    made = [call.step for call in attempt.made]
    return {"begun": attempt.latched or bool(made), "made": made, "repeats": attempt.repeats}
