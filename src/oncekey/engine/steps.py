"""Results of steps, as they are kept in the journal: a later attempt is given them and runs nothing."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, NamedTuple

from oncekey.core.journal import Form, Step
from oncekey.engine import current
from oncekey.errors import ConfigurationError, LeaseLost, StepChanged

if TYPE_CHECKING:
    from oncekey.engine.notes import AsyncNotes, BorrowedNotes, ThreadNotes

# How a result becomes bytes, and how it is made of them again.
Codec = tuple[Callable[[Any], bytes], Callable[[bytes], Any]]


class Kept(NamedTuple):
    """The result of an earlier attempt."""

    value: Any


class Running:
    """One step of one attempt."""

    def __init__(
        self, notes: ThreadNotes | AsyncNotes | BorrowedNotes, name: str, args: tuple[Any, ...], codec: Codec | None
    ) -> None:
        if not (isinstance(name, str) and name):
            raise ConfigurationError(f"a step's name is a text, not {name!r}: write step('charge', charge)")
        self._notes = notes
        self._name = name
        self._given = _digest(name, args)
        self._codec = codec

    @property
    def kept(self) -> Kept | None:
        """What an earlier attempt has left of it; StepChanged if that was asked something else."""
        if self._name in self._notes.ran:
            raise ConfigurationError(
                f"the step {self._name!r} was run already in this attempt: give every step a name of its own, such as "
                f"{self._name + '-2'!r}"
            )
        step = self._notes.attempt.journal.step(self._name)
        if step is None:
            return None
        if step.given != self._given:
            raise StepChanged(
                f"the step {self._name!r} was done by an earlier attempt with other arguments, and its result is no "
                f"answer to these: take what a step is given from the request and from earlier steps, never from the "
                f"clock or from chance, and give a step that was changed another name"
            )
        self._notes.ran.add(self._name)
        return Kept(self._value(step))

    @contextmanager
    def running(self) -> Iterator[None]:
        """While the step's function runs. If it fails, the same attempt may run it again."""
        attempt = self._notes.attempt
        if attempt.lost is not None:
            raise LeaseLost(f"the step {self._name!r} was not run: {attempt.lost}")
        outer = current.STEP.get()
        self._notes.ran.add(self._name)
        current.STEP.set((attempt, self._name))
        try:
            yield
        except BaseException:
            self._notes.ran.discard(self._name)
            raise
        finally:
            current.STEP.set(outer)

    def result(self, value: Any) -> tuple[Step, Any]:
        """What to keep, and the value as any attempt is given it: read back from what is kept."""
        step = Step(self._name, *self._bytes(value), self._given)
        return step, self._value(step)

    def _bytes(self, value: Any) -> tuple[bytes, Form]:
        if self._codec is not None:
            return self._codec[0](value), Form.CODEC
        if isinstance(value, bytes):
            return value, Form.BYTES
        try:
            return json.dumps(value, allow_nan=False, separators=(",", ":")).encode(), Form.JSON
        except (TypeError, ValueError) as error:
            raise ConfigurationError(
                f"the step {self._name!r} returned a {type(value).__name__} that JSON cannot hold ({error}): return "
                f"numbers, texts, lists and dicts, or bytes, or give the step a codec=(to_bytes, from_bytes)"
            ) from error

    def _value(self, step: Step) -> Any:
        if step.form is Form.BYTES:
            return step.result
        if step.form is Form.JSON:
            return json.loads(step.result)
        if self._codec is None:
            raise StepChanged(f"the step {self._name!r} was kept by a codec: give it the same codec= again")
        return self._codec[1](step.result)


def _digest(name: str, args: tuple[Any, ...]) -> bytes:
    """What tells these arguments from others."""
    if not args:
        return b""
    try:
        plain = json.dumps(args, allow_nan=False, sort_keys=True, separators=(",", ":"), default=_hex)
    except (TypeError, ValueError) as error:
        raise ConfigurationError(
            f"the arguments of the step {name!r} cannot be compared with those of another attempt ({error}): give it "
            f"numbers, texts, lists, dicts and bytes, and put the rest into the function: "
            f"step({name!r}, lambda: charge(card))"
        ) from error
    return hashlib.sha256(plain.encode("utf-8", "surrogatepass")).digest()


def _hex(value: object) -> str:
    if isinstance(value, bytes):
        return f"bytes {value.hex()}"
    raise TypeError(f"a {type(value).__name__}")


__all__ = ["Codec", "Kept", "Running"]
