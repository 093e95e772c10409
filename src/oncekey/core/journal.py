"""What an operation without an outcome has done so far: calls to others, and results of steps.

It stands in the record where the outcome will stand, so whoever finds the record finds it: a later attempt skips the
steps that are there, and a reconciler knows whom to ask, under which key. It survives everything but completion; the
trail in it, who changed the record from outside and why, survives that too, and so does the trace (core.outcome, 0x14).

The first byte is that of an outcome, 0x13; behind it how many entries there are, then they, in the order in which they
began:

    call   0x01  state, attempt, step, key, target, within
    step   0x02  form, name, result
    audit  0x03  from, to, at, by, why
    asked  0x04  tries, since, said
    call   0x05  as 0x01, then provider, reference
    step   0x06  as 0x02, then the digest of its arguments
    trace  0x07  context

`state`, `form`, `from` and `to` are one byte each, instants eight, `attempt` and `tries` are lengths and the rest are
texts, as in core.pieces. The longer forms are written where the shorter ones would lose something. An entry that this
code does not know is refused, never skipped.
"""

from __future__ import annotations

from collections.abc import Callable
from enum import IntEnum
from typing import NamedTuple

from oncekey.core.pieces import SMALL, length, read_length, read_text, text
from oncekey.core.record import State
from oncekey.errors import JournalFull, RecordUnreadable

KIND = 0x13
_CALL, _STEP, _AUDIT, _ASKED, _LONG_CALL, _LONG_STEP, _TRACE = 1, 2, 3, 4, 5, 6, 7
# Each new entry writes the whole journal again: it is meant for references, not for documents.
LARGEST = 64 << 10
# The trail has room of its own: a handler's results must not keep an operator from signing.
LARGEST_TRAIL = 64 << 10
_INSTANT = 8


class CallState(IntEnum):
    """What is known of a call. BEGUN: it may have left, and nobody knows what became of it."""

    BEGUN = 1
    RETURNED = 2
    DECLINED = 3
    NOT_EXECUTED = 4

    @property
    def word(self) -> str:
        """As operators read it."""
        return self.name.lower()


class Form(IntEnum):
    """How a step's result became bytes: as they were, by JSON, or by a codec that only the handler knows."""

    BYTES = 1
    JSON = 2
    CODEC = 3


class Call(NamedTuple):
    """A call to somebody else, under a key that is the same in every attempt.

    `target` is where it went ("POST https://psp.example/charges"), `attempt` which attempt made it last, and `within`
    the step around it, if there was one: once that step's result is kept, the call is done with. `provider` is whose
    rules the key obeys (core.providers), `reference` what the handler noted of the answer, such as the provider's id.
    """

    step: str
    key: str
    target: str = ""
    state: CallState = CallState.BEGUN
    attempt: int = 1
    within: str = ""
    provider: str = ""
    reference: str = ""


class Step(NamedTuple):
    """A step that was done, and the bytes of its result. `given` is the digest of its arguments, if it had any."""

    name: str
    result: bytes
    form: Form = Form.JSON
    given: bytes = b""


class Audit(NamedTuple):
    """A change from outside: who moved the record, why, when (milliseconds), from which state to which."""

    by: str
    why: str
    at: int
    source: State
    target: State


class Asked(NamedTuple):
    """How often a reconciler has asked what became of the attempt, since when, and what it heard last."""

    tries: int
    since: int
    said: str = ""


class Trace(NamedTuple):
    """The request that made the latest attempt, as its trace names it; only where requests are traced (telemetry)."""

    context: bytes

    @property
    def trace_id(self) -> str:
        """What to look for where traces are kept."""
        return self.context[:16].hex()


Entry = Call | Step | Audit | Asked | Trace


class Journal(NamedTuple):
    """The entries, in the order in which they began. Step names are unique among calls, and among steps."""

    entries: tuple[Entry, ...] = ()

    @property
    def calls(self) -> tuple[Call, ...]:
        """The calls to others: what a reconciler asks about."""
        return tuple(entry for entry in self.entries if isinstance(entry, Call))

    @property
    def steps(self) -> tuple[Step, ...]:
        """The steps whose results are kept."""
        return tuple(entry for entry in self.entries if isinstance(entry, Step))

    @property
    def trail(self) -> tuple[Audit, ...]:
        """Who changed the record from outside, oldest first."""
        return tuple(entry for entry in self.entries if isinstance(entry, Audit))

    @property
    def trace(self) -> bytes:
        """The request that made the latest attempt, in the words of its trace; nothing where it was not traced."""
        return next((entry.context for entry in self.entries if isinstance(entry, Trace)), b"")

    @property
    def lasting(self) -> tuple[Audit | Trace, ...]:
        """What is kept when the operation is completed."""
        return tuple(entry for entry in self.entries if isinstance(entry, Audit | Trace))

    @property
    def asked(self) -> Asked | None:
        """What the reconciler knows; None if it has not asked yet."""
        return next((entry for entry in self.entries if isinstance(entry, Asked)), None)

    def call(self, step: str) -> Call | None:
        """The call of this name."""
        return next((call for call in self.calls if call.step == step), None)

    def step(self, name: str) -> Step | None:
        """The step of this name."""
        return next((step for step in self.steps if step.name == name), None)

    def having(self, entry: Call | Step) -> Journal:
        """With this entry: in the place of the one with its name, or at the end."""
        same = [(type(one), one[0]) == (type(entry), entry[0]) for one in self.entries]
        if not any(same):
            return Journal((*self.entries, entry))
        return Journal(tuple(entry if this else one for one, this in zip(self.entries, same, strict=True)))

    def signed(self, audit: Audit) -> Journal:
        """With one more line in the trail."""
        return Journal((*self.entries, audit))

    def traced(self, context: bytes) -> Journal:
        """With the request that makes the next attempt, in the place of the one before."""
        return Journal((*(entry for entry in self.entries if not isinstance(entry, Trace)), Trace(context)))

    def asking(self, asked: Asked | None) -> Journal:
        """With this in the place of what the reconciler knew; None: it begins anew."""
        others = tuple(entry for entry in self.entries if not isinstance(entry, Asked))
        return Journal((*others, asked) if asked is not None else others)

    @property
    def open_calls(self) -> tuple[Call, ...]:
        """The calls that may have had an effect which no kept step covers: a run from the start would repeat them."""
        kept = {step.name for step in self.steps}
        done = (CallState.BEGUN, CallState.RETURNED)
        return tuple(call for call in self.calls if call.state in done and call.within not in kept)


EMPTY = Journal()


def pack_journal(journal: Journal) -> bytes:
    """A journal as bytes, to be sealed like any outcome; an empty one is none at all. JournalFull: it is too large."""
    if not journal.entries:
        return b""
    parts = [_packed(entry) for entry in journal.entries]
    _check_size(journal, parts)
    return b"".join((SMALL[KIND], length(len(parts)), *parts))


def _check_size(journal: Journal, parts: list[bytes]) -> None:
    signed = sum(len(part) for part in parts if part[0] == _AUDIT)
    if signed > LARGEST_TRAIL:
        raise JournalFull(
            f"the trail of this operation would have {signed} bytes, and at most {LARGEST_TRAIL} are kept: give a "
            f"shorter reason, with a reference to the long one"
        )
    size = sum(map(len, parts)) - signed
    if size > LARGEST:
        name = next(str(entry[0]) for entry in reversed(journal.entries) if isinstance(entry, Call | Step))
        raise JournalFull(
            f"with {name!r} the journal of this operation would have {size} bytes, and at most {LARGEST} are kept: "
            f"keep large results elsewhere, and return a reference to them from the step"
        )


def _packed(entry: Entry) -> bytes:
    match entry:
        case Step():
            kind, more = (_LONG_STEP, text(entry.given)) if entry.given else (_STEP, b"")
            return bytes((kind, entry.form)) + text(_bytes(entry.name)) + text(entry.result) + more
        case Call():
            words: tuple[str, ...] = (entry.step, entry.key, entry.target, entry.within)
            kind = _CALL
            if entry.provider or entry.reference:
                kind, words = _LONG_CALL, (*words, entry.provider, entry.reference)
            return bytes((kind, entry.state)) + length(entry.attempt) + b"".join(text(_bytes(word)) for word in words)
        case Audit():
            head = bytes((_AUDIT, entry.source, entry.target)) + _instant(entry.at)
            return head + text(_bytes(entry.by)) + text(_bytes(entry.why))
        case Asked():
            return bytes((_ASKED,)) + length(entry.tries) + _instant(entry.since) + text(_bytes(entry.said))
        case Trace():
            return bytes((_TRACE,)) + text(entry.context)


def _instant(at: int) -> bytes:
    return at.to_bytes(_INSTANT, "big")


def _bytes(word: str) -> bytes:
    # A lone surrogate would be refused: it must not fail the write that says that a call begins.
    return word.encode("utf-8", "surrogatepass")


def read_journal(data: bytes) -> Journal:
    """The journal that stands in the place of an outcome, unsealed; no bytes are an empty one."""
    if not data:
        return EMPTY
    if data[0] != KIND:
        raise RecordUnreadable(f"there is no journal where one should be, but an outcome of kind {data[0]:#04x}")
    try:
        return read_entries(data)
    except (IndexError, ValueError) as damaged:
        raise RecordUnreadable(f"the journal is damaged: {damaged}") from damaged


def read_entries(data: bytes) -> Journal:
    """Read the bytes of a journal; ValueError or IndexError if they are damaged."""
    entries: list[Entry] = []
    count, at = read_length(data, 1)
    for _ in range(count):
        read = READERS.get(data[at])
        if read is None:
            raise RecordUnreadable(f"the journal has an entry of kind {data[at]}: was it written by a newer version?")
        entry, at = read(data, at + 1)
        entries.append(entry)
    if at != len(data):
        raise ValueError(f"{len(data) - at} bytes stand behind its entries")
    return Journal(tuple(entries))


def _read_call(data: bytes, at: int, texts: int = 4) -> tuple[Call, int]:
    state = CallState(data[at])
    attempt, at = read_length(data, at + 1)
    words = []
    for _ in range(texts):
        word, at = read_text(data, at)
        words.append(word.decode("utf-8", "surrogatepass"))
    step, key, target, within, *more = words
    return Call(step, key, target, state, attempt, within, *more), at


def _read_long_call(data: bytes, at: int) -> tuple[Call, int]:
    return _read_call(data, at, 6)


def _read_step(data: bytes, at: int) -> tuple[Step, int]:
    form = Form(data[at])
    name, at = read_text(data, at + 1)
    result, at = read_text(data, at)
    return Step(name.decode("utf-8", "surrogatepass"), result, form), at


def _read_long_step(data: bytes, at: int) -> tuple[Step, int]:
    step, at = _read_step(data, at)
    given, at = read_text(data, at)
    return step._replace(given=given), at


def _read_audit(data: bytes, at: int) -> tuple[Audit, int]:
    source, target = State(data[at]), State(data[at + 1])
    when, at = _read_instant(data, at + 2)
    by, at = read_text(data, at)
    why, at = read_text(data, at)
    return Audit(by.decode("utf-8", "surrogatepass"), why.decode("utf-8", "surrogatepass"), when, source, target), at


def _read_asked(data: bytes, at: int) -> tuple[Asked, int]:
    tries, at = read_length(data, at)
    since, at = _read_instant(data, at)
    said, at = read_text(data, at)
    return Asked(tries, since, said.decode("utf-8", "surrogatepass")), at


def _read_trace(data: bytes, at: int) -> tuple[Trace, int]:
    context, at = read_text(data, at)
    return Trace(context), at


def _read_instant(data: bytes, at: int) -> tuple[int, int]:
    end = at + _INSTANT
    if end > len(data):
        raise ValueError("it ends too early")
    return int.from_bytes(data[at:end], "big"), end


READERS: dict[int, Callable[[bytes, int], tuple[Entry, int]]] = {
    _CALL: _read_call,
    _STEP: _read_step,
    _AUDIT: _read_audit,
    _ASKED: _read_asked,
    _LONG_CALL: _read_long_call,
    _LONG_STEP: _read_long_step,
    _TRACE: _read_trace,
}

__all__ = [
    "EMPTY",
    "Asked",
    "Audit",
    "Call",
    "CallState",
    "Entry",
    "Form",
    "Journal",
    "Step",
    "Trace",
    "pack_journal",
    "read_journal",
]
