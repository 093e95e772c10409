"""One attempt at one operation: the lease as its owner sees it, on the owner's own monotonic clock."""

from __future__ import annotations

import time
from collections.abc import Callable

from oncekey.core.decision import Execute
from oncekey.core.journal import EMPTY, Call, Journal
from oncekey.core.record import Guarantee, State
from oncekey.engine.events import log


class Attempt:
    """A running attempt. Its deadline counts from before the claim was sent, so it ends no later than the store's."""

    __slots__ = (
        "_told",
        "cap_for",
        "entered",
        "id",
        "journal",
        "latched",
        "lease_for",
        "lost",
        "number",
        "renew_at",
        "repeats",
        "started",
        "state",
        "token",
        "until",
    )

    def __init__(
        self,
        execute: Execute,
        started: float,
        lease_for: float,
        cap_for: float,
        state: State,
        guarantee: Guarantee = Guarantee.AT_MOST_ONCE,
        journal: Journal = EMPTY,
    ) -> None:
        self.id = execute.id
        self.token = execute.token
        self.number = execute.attempt
        # When the work began, where somebody wants to know how long it runs.
        self.entered = 0.0
        self.started = started = started + execute.waited_for / 1000
        self.lease_for = lease_for
        self.cap_for = cap_for
        self.state = state
        # Whether an effect may have left that the journal knows nothing of.
        self.latched = state is State.EXECUTING
        # Whether a later attempt may make the calls of this one again, because their receivers deduplicate.
        self.repeats = guarantee is Guarantee.DEDUPLICATED_DOWNSTREAM
        self.journal = journal
        self.until = until = started + min(lease_for, execute.left_for / 1000)
        # A third of the lease, less if a lock wait in the store has eaten part of it.
        self.renew_at = until - lease_for * 2 / 3
        self.lost: str | None = None
        self._told: list[Callable[[str], None]] | None = None

    @property
    def alive(self) -> bool:
        """Whether the lease is surely still ours."""
        return self.lost is None and time.monotonic() < self.until

    @property
    def made(self) -> tuple[Call, ...]:
        """The calls of this attempt that may have had an effect, and that a new attempt would make again.

        What earlier attempts have left open was cleared up before this one could begin, or may be repeated.
        """
        return tuple(call for call in self.journal.open_calls if call.attempt == self.number)

    def on_lost(self, told: Callable[[str], None]) -> None:
        """Call back, from the renewal thread, when the lease is lost."""
        if self._told is None:
            self._told = []
        self._told.append(told)
        if self.lost is not None:
            told(self.lost)

    def lose(self, why: str) -> None:
        """Note that the lease is gone; say so once."""
        if self.lost is None:
            self.lost = why
            for told in self._told or ():
                try:
                    told(why)
                except Exception:  # noqa: BLE001 - whoever listens must not keep the others from hearing it
                    log.exception("a listener for lost leases failed")
