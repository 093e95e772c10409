"""One attempt at one operation: the lease as its owner sees it, on the owner's own monotonic clock."""

from __future__ import annotations

import time
from collections.abc import Callable

from oncekey.core.decision import Execute
from oncekey.core.record import State
from oncekey.engine.events import log


class Attempt:
    """A running attempt. Its deadline counts from before the claim was sent, so it ends no later than the store's."""

    __slots__ = (
        "_told",
        "cap_for",
        "id",
        "journal",
        "lease_for",
        "lost",
        "number",
        "renew_at",
        "started",
        "state",
        "token",
        "until",
    )

    def __init__(self, execute: Execute, started: float, lease_for: float, cap_for: float, state: State) -> None:
        self.id = execute.id
        self.token = execute.token
        self.number = execute.attempt
        self.journal = execute.journal
        self.started = started + execute.waited_for / 1000
        self.lease_for = lease_for
        self.cap_for = cap_for
        self.state = state
        self.until = self.started + min(lease_for, execute.left_for / 1000)
        # A third of the lease, less if a lock wait in the store has eaten part of it.
        self.renew_at = self.until - lease_for * 2 / 3
        self.lost: str | None = None
        self._told: list[Callable[[str], None]] | None = None

    @property
    def alive(self) -> bool:
        """Whether the lease is surely still ours."""
        return self.lost is None and time.monotonic() < self.until

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
