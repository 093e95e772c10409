"""The operation at hand, for code that is not handed it: the hooks of HTTP clients.

It is carried whether or not there is a hook yet: one that is made while a handler runs must not miss that handler's
call. That is one context variable for each operation that is run, and none for any other request.
"""

from __future__ import annotations

from contextvars import ContextVar
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from oncekey.engine.attempt import Attempt
    from oncekey.engine.external import External
    from oncekey.engine.operation import AsyncOperation, ThreadOperation

OPERATION: ContextVar[ThreadOperation | AsyncOperation | None] = ContextVar("oncekey_operation", default=None)


class Followed(Protocol):
    """The request at hand, where a sink follows requests (telemetry). `here` names it to later ones."""

    @property
    def here(self) -> bytes:
        """Its trace, span and flags: 16 bytes, 8 and one."""
        ...

    def link(self, earlier: bytes) -> None:
        """Join it to the request that `earlier` names."""
        ...


TRACE: ContextVar[Followed | None] = ContextVar("oncekey_trace", default=None)
# The call that this code makes, and the step that it is, with the attempt whose step that is.
CALL: ContextVar[External | None] = ContextVar("oncekey_call", default=None)
STEP: ContextVar[tuple[Attempt, str] | None] = ContextVar("oncekey_step", default=None)


def step_of(attempt: Attempt) -> str:
    """The step of this attempt that the code at hand is part of; none is the empty name."""
    inside = STEP.get()
    return inside[1] if inside is not None and inside[0] is attempt else ""


__all__ = ["CALL", "OPERATION", "STEP", "TRACE", "Followed", "step_of"]
