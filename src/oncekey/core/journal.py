"""What an operation without an outcome has done so far: calls to others, and results of steps.

It stands in the record where the outcome will stand, so whoever finds the record finds it: a later attempt skips the
steps that are there, and a reconciler knows whom to ask, under which key. It survives everything but completion.

The first byte is that of an outcome, 0x13; behind it how many entries there are, then they, in the order in which they
began:

    call   0x01  state, attempt, step, key, target, within
    step   0x02  form, name, result

`state` and `form` are one byte each, `attempt` is a length and the rest are texts, as in core.pieces. An entry that
this code does not know is refused, never skipped.
"""

from __future__ import annotations

from enum import IntEnum
from typing import NamedTuple

from oncekey.core.pieces import SMALL, length, read_length, read_text, text
from oncekey.errors import JournalFull, RecordUnreadable

KIND = 0x13
_CALL, _STEP = 1, 2
# Each new entry writes the whole journal again: it is meant for references, not for documents.
LARGEST = 64 << 10


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
    the step around it, if there was one: once that step's result is kept, the call is done with.
    """

    step: str
    key: str
    target: str = ""
    state: CallState = CallState.BEGUN
    attempt: int = 1
    within: str = ""


class Step(NamedTuple):
    """A step that was done, and the bytes of its result."""

    name: str
    result: bytes
    form: Form = Form.JSON


class Journal(NamedTuple):
    """The entries, in the order in which they began. Step names are unique among calls, and among steps."""

    entries: tuple[Call | Step, ...] = ()

    @property
    def calls(self) -> tuple[Call, ...]:
        """The calls to others: what a reconciler asks about."""
        return tuple(entry for entry in self.entries if isinstance(entry, Call))

    @property
    def steps(self) -> tuple[Step, ...]:
        """The steps whose results are kept."""
        return tuple(entry for entry in self.entries if isinstance(entry, Step))

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
    packed = b"".join((SMALL[KIND], length(len(journal.entries)), *map(_packed, journal.entries)))
    if len(packed) > LARGEST:
        name, size = journal.entries[-1][0], len(packed)
        raise JournalFull(
            f"with {name!r} the journal of this operation would have {size} bytes, and at most {LARGEST} are kept: "
            f"keep large results elsewhere, and return a reference to them from the step"
        )
    return packed


def _packed(entry: Call | Step) -> bytes:
    if isinstance(entry, Step):
        return bytes((_STEP, entry.form)) + text(_bytes(entry.name)) + text(entry.result)
    words = (entry.step, entry.key, entry.target, entry.within)
    return bytes((_CALL, entry.state)) + length(entry.attempt) + b"".join(text(_bytes(word)) for word in words)


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
    entries: list[Call | Step] = []
    count, at = read_length(data, 1)
    for _ in range(count):
        kind = data[at]
        if kind not in (_CALL, _STEP):
            raise RecordUnreadable(f"the journal has an entry of kind {kind}: was it written by a newer version?")
        entry: Call | Step
        entry, at = _read_call(data, at + 1) if kind == _CALL else _read_step(data, at + 1)
        entries.append(entry)
    if at != len(data):
        raise ValueError(f"{len(data) - at} bytes stand behind its entries")
    return Journal(tuple(entries))


def _read_call(data: bytes, at: int) -> tuple[Call, int]:
    state = CallState(data[at])
    attempt, at = read_length(data, at + 1)
    words = []
    for _ in range(4):
        word, at = read_text(data, at)
        words.append(word.decode("utf-8", "surrogatepass"))
    step, key, target, within = words
    return Call(step, key, target, state, attempt, within), at


def _read_step(data: bytes, at: int) -> tuple[Step, int]:
    form = Form(data[at])
    name, at = read_text(data, at + 1)
    result, at = read_text(data, at)
    return Step(name.decode("utf-8", "surrogatepass"), result, form), at


__all__ = ["EMPTY", "Call", "CallState", "Form", "Journal", "Step", "pack_journal", "read_journal"]
