"""A record's verbs inside of a transaction on somebody else's connection.

Each store that can do so has a `within.py`, whose plan yields Ask and is sent Got. A plan serves one attempt. It knows
at `complete` whether the transaction in which the key was claimed is still the one that is open.
"""

from __future__ import annotations

from collections.abc import Generator, Sequence
from typing import Any, NamedTuple, Protocol, TypeVar

from oncekey.core.commands import Claim, Claimed, Settlement, Swap, Written
from oncekey.core.record import Seen

T = TypeVar("T")


class Ask(NamedTuple):
    """A statement for the caller's connection, and perhaps one without values or answer to go right behind it."""

    sql: str
    values: Sequence[Any] = ()
    then: str = ""


class Got(Protocol):
    """What a statement gave."""

    @property
    def rows(self) -> list[tuple[Any, ...]]: ...
    @property
    def changed(self) -> int: ...


Steps = Generator[Ask, Got, T]


class InFlight(Exception):
    """Another transaction has the key at this moment, and nobody waits for it."""


class Within(Protocol):
    """The verbs.

    What is claimed is EXECUTING and AT_MOST_ONCE, so that whoever commits it without its outcome leaves an operation
    that turns unknown, and is never run again by itself. Behind it stands a savepoint, the `mark`.
    """

    mark: str

    def claim(self, claim: Claim) -> Steps[Claimed]: ...
    def look(self, id_: bytes) -> Steps[Seen | None]: ...
    def swap(self, swap: Swap) -> Steps[Written]: ...
    def complete(self, settlement: Settlement) -> Steps[bool]: ...

    def doubt(self, settlement: Settlement) -> Steps[bool]:
        """Keep that nobody knows, after a rollback to the mark. False as in `complete`."""
        ...

    def closing(self, settlement: Settlement) -> Ask | None:
        """`complete` as one statement that fails where it would have said False; None where there is none."""
        ...

    def missed(self, error: Exception) -> bool:
        """Whether that is why it failed."""
        ...
